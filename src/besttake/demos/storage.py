"""The files of a library: the schema of ``library.json``, the check of its files, and their atomic writing."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from besttake.core.events import EventConfig
from besttake.demos.base import UnreadableDemo
from besttake.errors import LibraryError, one_line
from besttake.files import read_json, read_sealed_json, sealed_json, sha256_of, write_bytes
from besttake.types import U8

FORMAT = 1
FILE = "library.json"
PICTURE_PX = 128
_NPY_HEADER = 128


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True)


class EncoderHead(_Stored):
    """The encoder of the frames."""

    uri: str
    name: str
    dim: int
    fingerprint: str


class StoredFile(_Stored):
    """A file of the library."""

    size: int
    sha256: str


class DemoHead(_Stored):
    """One demonstration: its steps, its embedded frames, the steps of its events, and where it comes from."""

    id: str
    task: str
    instruction: str
    length: int
    frames: int
    events: tuple[int, ...]
    source: dict[str, Any]


class LibraryHead(_Stored):
    """The content of ``library.json``, which is sealed with a checksum (`files.sealed_json`).

    ``notes`` tell the user what was assumed about the data. ``shows`` is the URI of a source that can show its cameras
    to a policy. The ``fingerprint`` covers everything except ``source`` (its name) and ``shows``.
    """

    format: int
    source_fingerprint: str
    encoder: EncoderHead
    camera: str
    fps: float
    stride: int
    pad: Literal["hold", "repeat"]
    action_dim: int | None
    state_dim: int | None
    gripper_dim: int | None
    eef_dims: tuple[int, ...] | None
    event_config: EventConfig
    demos: tuple[DemoHead, ...]
    left_out: tuple[UnreadableDemo, ...]
    notes: tuple[str, ...] = ()
    files: dict[str, StoredFile] = {}
    source: str
    shows: str | None = None
    fingerprint: str = ""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, directory: Path) -> LibraryHead:
        """The head of the library in ``directory``; LibraryError if it is missing, damaged or of a newer format.

        Only this function checks a library: the head against its seal, and every file against its checksum.
        """
        try:
            version = read_json(directory / FILE)["format"]
            if isinstance(version, int) and FORMAT < version < 1000:
                raise LibraryError(
                    f"{directory}/{FILE} was written by a newer BestTake (format {version}, this one knows {FORMAT});"
                    " upgrade besttake"
                )
            head = cls.model_validate(read_sealed_json(directory / FILE))
        except (FileNotFoundError, NotADirectoryError):
            raise LibraryError(
                f"{directory} is not a library (it has no {FILE}); make one with `besttake library build`"
            ) from None
        except ValidationError as error:
            first = error.errors()[0]
            raise _damaged(directory / FILE, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(directory / FILE, one_line(error, 150)) from error
        for name, file in head.files.items():
            if Path(name).name != name:
                raise _damaged(directory / FILE, f"{name[:80]!r} is not the name of a file in it")
            try:
                same = (directory / name).stat().st_size == file.size and sha256_of(directory / name) == file.sha256
            except OSError as error:
                raise _damaged(directory / name, error.strerror) from error
            if not same:
                raise _damaged(directory / name, "its checksum differs")
        return head

    def write(self, directory: Path) -> None:
        """Write ``library.json`` atomically."""
        write_bytes(directory / FILE, sealed_json(self.model_dump()))


def _damaged(path: Path, why: str | None) -> LibraryError:
    return LibraryError(f"{path} is damaged ({why}); build the library again")


class GrowingArray:
    """A ``.npy`` file whose first axis can grow: space is reserved for the header, which is written last."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file = path.open("wb")
        self._file.write(b"\0" * _NPY_HEADER)
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
        size = _NPY_HEADER - 10
        with self._file:
            self._file.seek(0)
            self._file.write(b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n")


class LibraryWriter:
    """Writes a library into a temporary directory beside ``out``; `finish` renames it to ``out``."""

    def __init__(self, out: Path) -> None:
        self.out = out
        if out.exists() and not (out / FILE).exists() and (not out.is_dir() or any(out.iterdir())):
            raise LibraryError(f"{out} holds something that is not a library; choose an empty directory (`out`)")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            self.path = out.with_name(f".{out.name}-{uuid.uuid4().hex[:12]}.partial")
            self.path.mkdir()
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
        """Add frames (n, H, W, 3) as thumbnails for people: JPEG, at most 128 px a side."""
        from PIL import Image

        for frame in frames:
            picture = Image.fromarray(frame)
            picture.thumbnail((PICTURE_PX, PICTURE_PX))
            buffer = io.BytesIO()
            picture.save(buffer, format="JPEG", quality=88)
            self._pictures.write(buffer.getvalue())
            self._ends.append(self._pictures.tell())

    def finish(self, head: LibraryHead, encoder: Mapping[str, NDArray[Any]] | None) -> None:
        """Write ``library.json`` with the sha256 of every file, and rename the directory to ``out``."""
        self.close()
        np.save(self.path / "picture_ends.npy", np.array(self._ends, np.int64))
        if encoder is not None:
            from safetensors.numpy import save

            stored = save({name: np.ascontiguousarray(values) for name, values in encoder.items()})
            (self.path / "encoder.safetensors").write_bytes(stored)
        files = {
            path.name: StoredFile(size=path.stat().st_size, sha256=sha256_of(path))
            for path in sorted(self.path.iterdir())
        }
        head = head.model_copy(update={"files": files})
        content = json.dumps(head.model_dump(exclude={"source", "shows", "fingerprint"}), sort_keys=True)
        fingerprint = hashlib.sha256(content.encode()).hexdigest()
        head.model_copy(update={"fingerprint": fingerprint}).write(self.path)
        self._move_into_place()

    def _move_into_place(self) -> None:
        """Flush the files to disk and rename the directory; a library at ``out`` is moved away first, then removed."""
        for path in self.path.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        old = self.path.with_suffix(".old")
        if self.out.exists():
            self.out.rename(old)
        self.path.rename(self.out)
        shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        """Close all files; closing twice does nothing."""
        for array in self._arrays.values():
            array.close()
        self._pictures.close()


@contextlib.contextmanager
def writing(out: Path) -> Iterator[LibraryWriter]:
    """A `LibraryWriter` whose temporary directory is removed at the end of the block."""
    writer = LibraryWriter(out)
    try:
        yield writer
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None):  # numpy raises OSError without errno
            raise LibraryError(f"no space left on the disk of {out}; free some and build the library again") from error
        raise
    finally:
        with contextlib.suppress(OSError):
            writer.close()
        shutil.rmtree(writer.path, ignore_errors=True)
