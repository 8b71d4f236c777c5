"""A library on disk: the schema of ``library.json``, and the atomic writing of its directory."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator

from besttake.core.events import EventConfig
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.base import UnreadableDemo
from besttake.errors import LibraryError, one_line
from besttake.files import read_json, sha256_of, write_text
from besttake.types import U8

FORMAT = 1
FILE = "library.json"
PICTURE_PX = 128
_NPY_HEADER = 128
_LARGEST = 1 << 31
_BESIDE = ("source", "shows", "retrieval", "fingerprint", "checksum")
_CONFIG = TypeAdapter(RetrievalConfig)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class EncoderHead(_Part):
    """The encoder of the frames: its URI and its fingerprint."""

    uri: str
    name: str
    dim: int
    fingerprint: str


class StoredFile(_Part):
    """A file of the library."""

    size: int
    sha256: str


class DemoHead(_Part):
    """One demonstration: its steps, its embedded frames, the steps of its events, and where it comes from."""

    id: str
    task: str
    instruction: str
    length: int
    frames: int
    events: tuple[int, ...]
    source: dict[str, Any]


class LibraryContent(_Part):
    """The part of the head that, with the files, defines the fingerprint of a library.

    ``notes`` are remarks for the user: what was assumed about the data.
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

    @model_validator(mode="after")
    def _fits_together(self) -> LibraryContent:
        """Check that all indexes are valid: dimensions of actions and states, steps of demonstrations."""
        sizes = {
            "stride": self.stride, "encoder.dim": self.encoder.dim,
            "action_dim": self.action_dim, "state_dim": self.state_dim,
        }  # fmt: skip
        for name, size in sizes.items():
            if size is not None and not 0 < size < _LARGEST:
                raise ValueError(f"{name} is {size}"[:60])
        if self.gripper_dim is not None and not 0 <= self.gripper_dim < (self.action_dim or 0):
            raise ValueError(f"gripper_dim is {self.gripper_dim} where actions have {self.action_dim}"[:100])
        if self.eef_dims is not None and not all(0 <= dim < (self.state_dim or 0) for dim in self.eef_dims):
            raise ValueError(f"eef_dims are {self.eef_dims} where states have {self.state_dim}"[:100])
        for demo in self.demos:
            if not (0 < demo.length < _LARGEST and 0 <= demo.frames <= demo.length):
                raise ValueError(f"{demo.id[:60]} has {demo.frames} frames in {demo.length} steps"[:150])
            if not all(0 <= event < demo.length for event in demo.events):
                raise ValueError(f"{demo.id[:60]} has events outside its {demo.length} steps"[:150])
        return self


class LibraryHead(LibraryContent):
    """All of ``library.json``. ``shows`` is the URI of a source that can show its cameras to a policy.

    ``checksum`` covers the rest of the file, ``fingerprint`` the content and the files.
    """

    files: dict[str, StoredFile]
    source: str
    shows: str | None = None
    fingerprint: str
    checksum: str = ""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(
        cls, content: LibraryContent, files: Mapping[str, StoredFile], source: str, shows: str | None
    ) -> LibraryHead:
        """The head of a new library, with its fingerprint."""
        parts = {**content.model_dump(), "files": {name: file.model_dump() for name, file in files.items()}}
        head = cls(**parts, source=source, shows=shows, fingerprint="")
        return head.model_copy(update={"fingerprint": _fingerprint(head.model_dump())})

    @classmethod
    def read(cls, directory: Path) -> LibraryHead:
        """The head of the library in ``directory``; LibraryError when it is missing, damaged or of a newer format."""
        damaged = f"{directory}/{FILE} is damaged"
        try:
            values = read_json(directory / FILE)
            version = _version(values["format"])
        except (FileNotFoundError, NotADirectoryError):
            raise LibraryError(
                f"{directory} is not a library (it has no {FILE}); make one with `besttake library build`"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LibraryError(f"{damaged} ({one_line(error, 150)}); build the library again") from error
        if version > FORMAT:
            raise LibraryError(
                f"{directory}/{FILE} was written by a newer BestTake (format {version}, this one knows {FORMAT});"
                " upgrade besttake"
            )
        if values.get("checksum") != _checksum(values) or values.get("fingerprint") != _fingerprint(values):
            raise LibraryError(
                f"{damaged} (it is not as it was written: its checksum differs); build the library again"
            )
        try:
            head = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise LibraryError(f"{damaged} ({place}: {first['msg']}); build the library again") from error
        if outside := [name for name in head.files if Path(name).name != name or len(name) > 100]:
            raise LibraryError(
                f"{damaged} ({outside[0][:80]!r} is not the name of a file in it); build the library again"
            )
        return head

    def write(self, directory: Path) -> None:
        """Write ``library.json`` atomically."""
        values = json.loads(json.dumps(self.model_dump(exclude={"checksum"})))
        values["checksum"] = _checksum(values)
        write_text(directory / FILE, json.dumps(values, indent=1, sort_keys=True))


def _version(value: Any) -> int:
    if not isinstance(value, int) or not 0 < value < 1000:
        raise ValueError("its format is not the number of one")
    return value


def _fingerprint(values: Mapping[str, Any]) -> str:
    """The sha256 over the content and the files of a library."""
    parts = {name: value for name, value in values.items() if name not in _BESIDE}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _checksum(values: Mapping[str, Any]) -> str:
    """The sha256 over ``values`` without the checksum itself."""
    rest = {name: value for name, value in values.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


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
        self._file.seek(0)
        size = _NPY_HEADER - 10
        self._file.write(b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n")
        self._file.close()


class LibraryWriter:
    """A library under construction in a temporary directory beside ``out``; `finish` renames it into place."""

    def __init__(self, out: Path) -> None:
        self.out = out
        if out.exists() and not (out / FILE).exists() and (not out.is_dir() or any(out.iterdir())):
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
def writing(out: Path) -> Iterator[LibraryWriter]:
    """A `LibraryWriter` whose temporary directory does not outlive the block."""
    writer = LibraryWriter(out)
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
    """Prefix of the names of directories under construction; each name ends with the id of its process."""
    return f".{out.name}-{socket.gethostname()}-"


def _remove_leftovers(out: Path) -> None:
    """Remove temporary directories that killed processes of this machine left beside ``out``."""
    start = _beside(out)
    for path in out.parent.iterdir():
        pid = path.name.removeprefix(start).partition("-")[0]
        if path.name.startswith(start) and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _umask() -> int:
    """The umask of the process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _replace_directory(made: Path, out: Path) -> None:
    """Rename ``made`` to ``out``; an existing library is moved away first and then removed."""
    for path in made.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    old = out.with_name(f".{out.name}-{os.getpid()}-old")
    if out.exists():
        out.rename(old)
    made.rename(out)
    shutil.rmtree(old, ignore_errors=True)
