"""Untrusted metadata of data sets: keep their paths inside the data set, and bound the size of patterns and texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from besttake import files, registry
from besttake.demos.frames import Unreadable
from besttake.errors import LibraryError

_MOST_TEXT = 256 << 20
_FIELD = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")


def inside(root: Path, path: str | Path) -> Path:
    """The file ``path`` of the data set in ``root``; `Unreadable` if it lies outside, directly or through a link.

    Pipes and devices are refused as well, since reading them could block forever.
    """
    try:
        outside = files.leads_out(root, path)
    except ValueError:
        raise Unreadable(f"names a file that cannot be ({str(path)[:80]!r})") from None
    if outside and root.resolve() not in registry.trusted():
        raise Unreadable(f"names a file outside the data set ({str(path)[:80]}); copy the file into it")
    place = root.resolve() / path
    try:
        odd = place.exists() and not place.is_file()
    except OSError as error:
        raise Unreadable(f"names a file that cannot be ({str(path)[-80:]!r}: {error.strerror})") from None
    if odd:
        raise Unreadable(f"names what is not a file ({str(path)[:80]})")
    return place


def check_links(root: Path, name: str) -> None:
    """Raise LibraryError if a link below ``root`` leads out of it, unless the user trusts the directory (`trust`).

    Every reader calls it before it opens a file. The directory itself may be a link: the user named it.
    """
    try:
        link = next(files.links_out(root), None)
    except ValueError as error:
        raise LibraryError(f"{name}: has a link that cannot be followed ({str(error)[:120]})") from error
    if link is not None and root.resolve() not in registry.trusted():
        raise LibraryError(
            f"{name}: {link.relative_to(root)} is a link that leads out of the data set; copy the file into it or, if"
            f" you made the link, add `trust` {root}"
        )


def filled(pattern: str, values: Mapping[str, int | str]) -> str:
    """Fill in the fields of a path pattern such as ``data/chunk-{chunk_index:03d}/file.parquet``.

    Only plain fields and zero-padded integers are supported. The pattern comes with the data, and Python's own format
    language could request any amount of memory or read attributes of its arguments.
    """

    def fill(match: re.Match[str]) -> str:
        name, width = match.group(1), match.group(2)
        if name not in values or (width and not isinstance(values[name], int)):
            raise Unreadable(f"names its files by {pattern[:80]!r}, which has a field that is not known ({name[:20]})")
        return f"{values[name]:0{int(width)}d}" if width else str(values[name])

    text = _FIELD.sub(fill, pattern)
    if "{" in _FIELD.sub("", pattern) or len(text) > 4096:
        raise Unreadable(f"names its files by {pattern[:80]!r}, which cannot be filled in")
    return text


def read_json(path: Path, name: str) -> dict[str, Any]:
    """Read the JSON object in ``path``; LibraryError, which begins with ``name``, if it is not one or too large."""
    with _damage(path, name):
        return _object(files.read_json(path, _MOST_TEXT))


def read_json_lines(path: Path, name: str) -> list[dict[str, Any]]:
    """Read the JSON objects in ``path``, one per line; LibraryError as in `read_json`."""
    with _damage(path, name):
        # Only at \n: texts may hold other line ends, such as U+2028.
        lines = files.read_regular(path, _MOST_TEXT).decode("utf-8").split("\n")
        return [_object(files.read_json(line)) for line in lines if line.strip()]


@contextmanager
def _damage(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LibraryError(f"{name}: {path.name} is damaged ({reason[:120]})") from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__}, not an object")
    return value
