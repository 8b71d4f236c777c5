"""A library of demonstrations for Ray nodes that share no file system with the driver."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from besttake.files import leads_out

_HEAD = "library.json"


@dataclass(frozen=True)
class LibraryCopy:
    """A directory as Ray objects: ``files`` by their path in it, and a ``name`` that is a hash of them all."""

    name: str
    files: dict[str, Any]

    @classmethod
    def of(cls, directory: Path, put: Callable[[bytes], Any]) -> LibraryCopy:
        """All files of ``directory``, but for links that lead out of it."""
        digest, files = hashlib.sha256(), {}
        own = (path for path in directory.rglob("*") if path.name != ".lock" and not leads_out(directory, path))
        for path in sorted(path for path in own if path.is_file()):
            data, name = path.read_bytes(), path.relative_to(directory).as_posix()
            digest.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
            files[name] = put(data)
        return cls(digest.hexdigest()[:24], files)

    def place(self, there: Path, get: Callable[[Any], bytes], home: Path) -> Path:
        """``there``, if this node has the same library at that path, else a copy under ``home``, made if need be."""
        head = self.files.get(_HEAD)
        if head is not None and (there / _HEAD).is_file() and (there / _HEAD).read_bytes() == get(head):
            return there
        copy = home / self.name
        if not copy.is_dir():
            half = home / f"{self.name}.{uuid.uuid4().hex}.tmp"
            for name, reference in self.files.items():
                (half / name).parent.mkdir(parents=True, exist_ok=True)
                (half / name).write_bytes(get(reference))
            with suppress(OSError):  # another replica of this node was faster
                half.rename(copy)
            shutil.rmtree(half, ignore_errors=True)
        return copy
