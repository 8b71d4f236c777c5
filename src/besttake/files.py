"""Files: whole or not there at all, where the cache is, and what stands in their heads."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Sequence
from pathlib import Path

import platformdirs


def write_bytes(path: Path, data: bytes, *, parents: bool = False) -> Path:
    """Write ``data`` so that a killed process leaves the old file or the new one, never a part; return ``path``.

    The content goes to a temporary name that ends in ``.tmp``, is flushed to the disk, and is then renamed.
    ``parents`` makes the missing directories.
    """
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return path


def write_text(path: Path, text: str, *, parents: bool = False) -> Path:
    """`write_bytes` of ``text`` in UTF-8."""
    return write_bytes(path, text.encode(), parents=parents)


def sha256_of(path: Path) -> str:
    """The sha256 of a file, read in pieces, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short_hash(*parts: str | bytes) -> str:
    """The first 16 digits of the sha256 of ``parts`` joined, for fingerprints."""
    joined = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return hashlib.sha256(joined).hexdigest()[:16]


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """Several paths or a single one, as a list."""
    return [paths] if isinstance(paths, str | Path) else list(paths)


def cache_dir() -> Path:
    """Where libraries and embeddings are kept between runs: $BESTTAKE_CACHE, else the user's cache directory."""
    named = os.environ.get("BESTTAKE_CACHE")
    return Path(named) if named else platformdirs.user_cache_path("besttake", appauthor=False)


def safetensors_metadata(content: bytes | Path) -> dict[str, str]:
    """The metadata of a safetensors file, or of its bytes, without reading the tensors; empty where it has none.

    Raises ValueError where the bytes are not such a file, and what `safe_open` raises where the file is not.
    """
    if isinstance(content, Path):
        from safetensors import safe_open

        with safe_open(content, framework="np") as file:
            return dict(file.metadata() or {})
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    return {str(key): str(value) for key, value in metadata.items()}


def versions(*distributions: str) -> str:
    """Names and versions in a row, for fingerprints; those that are not installed have no version."""
    return "".join(f"{name} {version(name, '')}".strip() for name in distributions)


def version(distribution: str = "besttake", fallback: str = "unknown") -> str:
    """The version of an installed ``distribution``; ``fallback`` where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return fallback
