"""Where a checkpoint is (a directory here, or a repository of the hub) and what identifies its content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from besttake.errors import ComponentError, one_line
from besttake.files import sha256_of, short_hash


def directory(uri: str, name: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """The directory called ``name``, else the hub's repository ``name``, downloaded; ``uri`` is for the message."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise ComponentError(f"{uri}: no such directory, and not a repository name (ORG/NAME)")
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the hub's client raises its own, requests', httpx' and plain OS errors
        reason = one_line(error, 200)
        raise ComponentError(f"{uri}: not a directory here, and the hub did not give it ({reason})") from None


def digest(where: Path, patterns: Sequence[str]) -> str:
    """A hash of the files that match, by content."""
    parts: list[str | bytes] = []
    for path in sorted(path for pattern in patterns for path in where.glob(pattern)):
        blob = path.resolve().name  # the hub's cache names large files by their sha256
        parts += [path.name, blob if len(blob) == 64 else bytes.fromhex(sha256_of(path))]
    return short_hash(*parts)
