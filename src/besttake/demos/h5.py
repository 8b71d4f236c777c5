"""Read HDF5 files from untrusted sources with h5py: no link or storage may lead out of the file, sizes are checked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from besttake import files
from besttake.demos.frames import Unreadable, check_size, fitted_array
from besttake.demos.paths import check_links
from besttake.errors import need, one_line
from besttake.types import F32, U8

SUFFIXES = (".hdf5", ".h5")
_MOST_NUMBERS = 1 << 28
_MOST_LINKS = 16
_BLOCK = 64


def h5py() -> Any:
    """Import h5py, or raise `MissingExtra`."""
    return need("h5py", "hdf5 demonstrations", "hdf5")


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a file for reading; errors, also during the block, become `Unreadable` with a one-line reason."""
    try:
        with h5py().File(path, "r") as file:
            yield file
    except OSError as error:
        if not h5py().is_hdf5(path):
            raise Unreadable("is not an HDF5 file") from error
        raise Unreadable(f"cannot be read ({one_line(error, 120)})") from error
    except (KeyError, ValueError, TypeError, RuntimeError, AttributeError, OverflowError, MemoryError) as error:
        raise Unreadable(f"cannot be read ({one_line(error, 120)})") from error


@contextmanager
def opened_at(path: Path, group: str) -> Iterator[Any]:
    """Open a ``group`` of the file for reading; `Unreadable` if it does not exist."""
    with opened(path) as file:
        content = item(file, group)
        if not isinstance(content, h5py().Group):
            raise Unreadable(f"is not there (no {group} in {path.name})")
        yield content


def names(group: Any, path: str) -> list[str]:
    """Names of the members of the group at ``path``; empty if there is no such group."""
    content = item(group, path)
    return [str(key) for key in content] if isinstance(content, h5py().Group) else []


def item(group: Any, path: str, links: int = _MOST_LINKS) -> Any:
    """The group or dataset at ``path``; None if there is none, `Unreadable` if it lies outside this file."""
    library = h5py()
    for part in (part for part in path.split("/") if part):
        if not isinstance(group, library.Group):
            return None
        # Look at the link itself: ``part in group`` would follow it and open the file that it leads to.
        stored, name = group.id.links, part.encode()
        if not stored.exists(name):
            return None
        kind = stored.get_info(name).type
        if kind == library.h5l.TYPE_SOFT:
            if not links:
                raise Unreadable(f"has links at {part} that lead nowhere")
            target = stored.get_val(name).decode("utf-8", "replace")
            group = item(group.file if target.startswith("/") else group, target, links - 1)
        elif kind == library.h5l.TYPE_HARD:
            group = group[part]
        else:
            raise Unreadable(f"has {part} in another file, which is not read")
    if isinstance(group, library.Dataset) and (group.external or group.is_virtual):
        raise Unreadable(f"has {path} in another file, which is not read")
    return group


def dataset(group: Any, path: str) -> Any:
    """The dataset at ``path``; `Unreadable` if there is none."""
    values = item(group, path)
    if not isinstance(values, h5py().Dataset):
        raise Unreadable(f"has no {path}")
    return values


def numbers(group: Any, path: str) -> F32:
    """The numbers at ``path`` as float32 (T, n)."""
    values = dataset(group, path)
    if values.dtype.kind not in "fiub" or values.ndim < 1:
        raise Unreadable(f"has {path} that are not numbers ({values.dtype})")
    if values.size > _MOST_NUMBERS:
        raise Unreadable(f"has {values.size} numbers in {path}, more than are read")
    rows = np.asarray(values[()], np.float64)
    return rows.reshape(len(rows), int(np.prod(rows.shape[1:]))).astype(np.float32)


def pictures(group: Any, path: str, largest: int) -> U8:
    """The pictures at ``path`` as uint8 (T, h, w, 3), their longest side at most ``largest``, read piece by piece."""
    values = dataset(group, path)
    if values.ndim != 4 or values.shape[3] != 3 or values.dtype != np.uint8:
        raise Unreadable(f"has {path} of {values.dtype} {values.shape}, not pictures uint8 (T, H, W, 3)")
    count, height, width = values.shape[:3]
    if not count:
        return np.zeros((0, 1, 1, 3), np.uint8)
    check_size(width, height, count, largest)
    blocks = [fitted_array(np.asarray(values[i : i + _BLOCK]), largest) for i in range(0, count, _BLOCK)]
    return np.concatenate(blocks)


def one_picture(group: Any, path: str, step: int) -> U8:
    """The picture at ``path`` of one ``step``, full size."""
    values = dataset(group, path)
    if values.ndim != 4 or not 0 <= step < len(values):
        raise Unreadable(f"has no step {step} in {path}")
    check_size(values.shape[2], values.shape[1])
    return np.asarray(values[step], np.uint8)


def attributes(group: Any) -> dict[str, Any]:
    """The readable attributes of a group."""
    values = {}
    for key in group.attrs:
        try:
            values[str(key)] = group.attrs[key]
        except (OSError, TypeError, ValueError, RuntimeError):
            continue  # a type that h5py does not know is nothing that is asked for
    return values


def json_attribute(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The JSON object that an attribute holds; empty where there is none."""
    try:
        value = files.read_json(values.get(key, "{}"))
    except (ValueError, TypeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def by_number(keys: Iterable[str]) -> list[str]:
    """``demo_2`` before ``demo_10``."""
    return sorted(keys, key=by_number_key)


def by_number_key(name: str) -> tuple[int, str]:
    """The number at the end of ``name``, and the name."""
    digits = re.search(r"\d{1,15}$", name)
    return (int(digits.group()) if digits else -1, name)


def files_of(path: Path, name: str) -> list[Path]:
    """The file itself, or the HDF5 files of a directory."""
    if path.is_file():
        return [path]
    check_links(path, name)
    return sorted(p for p in path.glob("*") if p.suffix in SUFFIXES and p.is_file()) if path.is_dir() else []


def digest(files: Iterable[Path], *choices: object) -> str:
    """A hash of the names, sizes, first and last megabyte of files, and of the reader's options."""
    total = hashlib.sha256(repr(choices).encode())
    for path in files:
        with path.open("rb") as file:
            head = file.read(1 << 20)
            file.seek(max(0, path.stat().st_size - (1 << 20)))
            total.update(f"{path.name} {path.stat().st_size}\n".encode() + head + file.read())
    return total.hexdigest()[:16]
