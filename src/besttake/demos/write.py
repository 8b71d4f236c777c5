"""Writing a library directory as a stream: arrays grow on disk, and the directory appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.demos.head import LibraryContent, LibraryHead, StoredFile
from besttake.errors import LibraryError
from besttake.files import sha256_of
from besttake.types import U8

PICTURE_PX = 128
_HEADER = 128


class GrowingArray:
    """A ``.npy`` file whose first axis grows: space is left for the header, which is written last."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file = path.open("wb")
        self._file.write(b"\0" * _HEADER)
        self._dtype, self._shape = np.dtype(dtype), (0,)

    def append(self, block: NDArray[Any]) -> None:
        """Add rows (n, ...)."""
        self._shape = (self._shape[0] + len(block), *block.shape[1:])
        self._file.write(np.ascontiguousarray(block, dtype=self._dtype).tobytes())

    def close(self) -> None:
        """Write the header. Closing twice does nothing."""
        if self._file.closed:
            return
        text = f"{{'descr': '{self._dtype.str}', 'fortran_order': False, 'shape': {self._shape!r}, }}".encode()
        self._file.seek(0)
        size = _HEADER - 10
        self._file.write(b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n")
        self._file.close()


class Writer:
    """A library under construction in a temporary directory beside ``out``; `finish` renames it into place."""

    def __init__(self, out: Path) -> None:
        self.out = out
        if out.exists() and not (out / "library.json").exists() and (not out.is_dir() or any(out.iterdir())):
            raise LibraryError(f"{out} holds something that is not a library; choose an empty directory (`out`)")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(out)
            self.path = Path(tempfile.mkdtemp(prefix=f"{_beside(out)}{os.getpid()}-", dir=out.parent))
            self.path.chmod(0o777 & ~_umask())  # mkdtemp lets nobody else in
        except OSError as error:
            raise LibraryError(f"cannot write {out}: {error.strerror}; choose another directory (`out`)") from error
        self._arrays: dict[str, GrowingArray] = {}
        self._pictures = (self.path / "pictures.bin").open("wb")
        self._ends: list[int] = []

    def append(self, name: str, block: NDArray[Any], dtype: str) -> None:
        """Add rows to the array ``name``."""
        if name not in self._arrays:
            self._arrays[name] = GrowingArray(self.path / f"{name}.npy", dtype)
        self._arrays[name].append(block)

    def append_pictures(self, frames: U8) -> None:
        """Add frames (n, H, W, 3) for people to look at: JPEG, at most 128 px a side."""
        from PIL import Image

        for frame in frames:
            picture = Image.fromarray(frame)
            picture.thumbnail((PICTURE_PX, PICTURE_PX))
            buffer = io.BytesIO()
            picture.save(buffer, format="JPEG", quality=88)
            self._pictures.write(buffer.getvalue())
            self._ends.append(self._pictures.tell())

    def finish(
        self, content: LibraryContent, encoder: Mapping[str, NDArray[Any]] | None, source: str, shows: str | None
    ) -> None:
        """Write ``library.json`` with the sha256 of every file, and put the directory in its place.

        The fingerprint covers ``content`` and all files, not the name of the ``source`` nor what it ``shows``.
        """
        self.close()
        np.save(self.path / "picture_ends.npy", np.array(self._ends, np.int64))
        if encoder is not None:
            from safetensors.numpy import save_file

            save_file({k: np.ascontiguousarray(v) for k, v in encoder.items()}, self.path / "encoder.safetensors")
        paths = sorted(self.path.iterdir())
        for path in paths:
            path.chmod(0o666 & ~_umask())  # safetensors, too, lets nobody else in
        files = {path.name: StoredFile(size=path.stat().st_size, sha256=sha256_of(path)) for path in paths}
        LibraryHead.of(content, files, source, shows).write(self.path)
        _replace_directory(self.path, self.out)

    def close(self) -> None:
        """Close all files; closing twice does nothing."""
        for array in self._arrays.values():
            array.close()
        self._pictures.close()


@contextlib.contextmanager
def writing(out: Path) -> Iterator[Writer]:
    """A `Writer` whose temporary directory does not outlive the block."""
    writer = Writer(out)
    try:
        yield writer
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise LibraryError(f"no space left on the disk of {out}; free some and build the library again") from error
        raise
    finally:
        writer.close()
        shutil.rmtree(writer.path, ignore_errors=True)


def _beside(out: Path) -> str:
    """How the names of directories under construction begin: each ends with the process that makes it."""
    return f".{out.name}-{socket.gethostname()}-"


def _remove_leftovers(out: Path) -> None:
    """Remove what killed processes of this machine left beside ``out``."""
    start = _beside(out)
    for path in out.parent.iterdir():
        pid = path.name.removeprefix(start).partition("-")[0]
        if path.name.startswith(start) and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _umask() -> int:
    """The mask of the process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _replace_directory(made: Path, out: Path) -> None:
    """Rename ``made`` to ``out``; a library that stands there is moved away first and then removed."""
    for path in made.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    old = out.with_name(f".{out.name}-{os.getpid()}-old")
    if out.exists():
        out.rename(old)
    made.rename(out)
    shutil.rmtree(old, ignore_errors=True)
