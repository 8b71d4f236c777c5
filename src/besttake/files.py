"""Reading and writing files: atomic writes, bounded reads, checksums, hashes, and the cache directory."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs

from besttake.errors import RunError

_LARGEST = 512 << 20
_SEAL = "sha256"


def write_bytes(path: Path, data: bytes, *, parents: bool = False) -> Path:
    """Write ``data`` so that a killed process leaves the old file or the new one, never a part; return ``path``.

    The content is written under a temporary name that ends in ``.tmp``, flushed to the disk, and renamed. ``parents``
    creates missing directories.
    """
    return stage_bytes(path, data, parents=parents)()


def stage_bytes(path: Path, data: bytes, *, parents: bool = False) -> Callable[[], Path]:
    """Do the first, slow half of `write_bytes`; the function that this returns renames the file."""
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with _removed_on_error(temporary, path), temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())

    def rename() -> Path:
        with _removed_on_error(temporary, path):
            temporary.replace(path)
        return path

    return rename


@contextmanager
def _removed_on_error(temporary: Path, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        error.filename, error.filename2 = str(path), None  # the name that the user knows
        raise


def write_text(path: Path, text: str, *, parents: bool = False) -> Path:
    """Write ``text`` in UTF-8 like `write_bytes`; a byte of a name that is not UTF-8 is escaped."""
    return write_bytes(path, text.encode(errors="backslashreplace"), parents=parents)


def read_regular(path: Path, most: int = _LARGEST) -> bytes:
    """Read a regular file of at most ``most`` bytes; OSError if it cannot be read, ValueError if it is larger.

    Anything else (a pipe, a device), which could block or never end, is a ValueError as well.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        kind = os.fstat(descriptor)
        if stat.S_ISDIR(kind.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind.st_mode):
            raise ValueError("not a regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"more than {most >> 20} MB" if most >= 1 << 20 else f"more than {most} bytes")
    return data


def read_json(source: Path | str | bytes, most: int = _LARGEST) -> Any:
    """Read a JSON file or JSON text of bounded size; OSError if the file cannot be read, else ValueError."""
    data = read_regular(source, most) if isinstance(source, Path) else source
    if not isinstance(data, str | bytes):
        raise ValueError(f"a {type(data).__name__} is not JSON text")
    try:
        return json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data)
    except RecursionError:
        raise ValueError("nested too deep") from None


def sealed_json(values: Mapping[str, Any], indent: int | None = None) -> bytes:
    """``values`` as JSON with their checksum, for `read_sealed_json`."""
    return json.dumps({**values, _SEAL: _sum_of(values)}, indent=indent).encode()


def read_sealed_json(source: Path | bytes, most: int = _LARGEST) -> dict[str, Any]:
    """Read what `sealed_json` wrote; OSError if the file cannot be read, ValueError if it was changed."""
    values = read_json(source, most)
    if not isinstance(values, dict) or values.pop(_SEAL, None) != _sum_of(values):
        raise ValueError("it is not what was written")
    return values


def check_run(path: Path, run: str) -> None:
    """RunError if a file belongs to another ``run`` than the ``run.json`` beside it (if there is one)."""
    try:
        expected = read_sealed_json(path.parent / "run.json").get("run")
    except (OSError, ValueError):  # a run of outcomes alone; if damaged, whoever reads it reports that
        return
    if expected != run:
        raise RunError(f"{path} belongs to another run than the run.json beside it; put back the one that was here")


def _sum_of(values: Mapping[str, Any]) -> str:
    return short_hash(json.dumps(values, sort_keys=True))


def leads_out(root: Path, path: str | Path) -> bool:
    """Whether ``path`` below ``root`` leads outside of it, also by links; ValueError if it cannot be a path.

    A snapshot in the cache of the Hugging Face hub consists of links to the blobs beside it, which count as inside.
    """
    home = root.resolve()
    homes = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    try:
        target = (home / path).resolve()
    except (OSError, RuntimeError) as error:
        raise ValueError(str(error)) from error
    return not any(target.is_relative_to(each) for each in homes)


def links_out(root: Path) -> Iterator[Path]:
    """The links below the directory ``root`` that lead outside."""
    for folder, inner, names in os.walk(root):
        for name in (*inner, *names):
            path = Path(folder) / name
            if path.is_symlink() and leads_out(root, path.absolute()):
                yield path


def clear(path: Path) -> None:
    """Make ``path`` free: remove a file or a link, or move a directory to a name that ends in ``.aside``."""
    if path.is_dir() and not path.is_symlink():
        names = (path.with_name(f"{path.name}{number or ''}.aside") for number in itertools.count())
        path.rename(next(name for name in names if not name.exists()))
    else:
        path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The sha256 of a file, read in pieces, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_hash(*parts: str | bytes) -> str:
    """The first 16 digits of the sha256 of the joined ``parts``, for fingerprints."""
    joined = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return hashlib.sha256(joined).hexdigest()[:16]


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """Turn a path or several paths into a list."""
    return [paths] if isinstance(paths, str | Path) else list(paths)


def cache_dir() -> Path:
    """The directory of cached libraries and embeddings: $BESTTAKE_CACHE, or the user's cache directory."""
    named = os.environ.get("BESTTAKE_CACHE")
    return Path(named) if named else platformdirs.user_cache_path("besttake", appauthor=False)


def safetensors_metadata(content: bytes | Path) -> dict[str, str]:
    """Read the metadata of a safetensors file, or of its bytes, without the tensors.

    Raises ValueError if the bytes are not such a file, and whatever `safe_open` raises if the file is not.
    """
    if isinstance(content, Path):
        from safetensors import safe_open

        with safe_open(content, framework="np") as file:
            return dict(file.metadata() or {})
    size = int.from_bytes(content[:8], "little")
    head = read_json(content[8 : 8 + size])
    metadata = head.get("__metadata__", {}) if isinstance(head, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("the head of a safetensors file is a mapping")
    return {str(key): str(value) for key, value in metadata.items()}


def versions(*distributions: str) -> str:
    """Names and versions in one text, for fingerprints; what is not installed has no version."""
    return "".join(f"{name} {version(name, '')}".strip() for name in distributions)


def version(distribution: str = "besttake", fallback: str = "unknown") -> str:
    """The version of an installed ``distribution``; ``fallback`` if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return fallback
