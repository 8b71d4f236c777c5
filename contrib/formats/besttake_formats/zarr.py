"""Diffusion Policy's ReplayBuffer: ``zarr:DIRECTORY`` or ``zarr:FILE.zarr.zip``, read with the zarr library.

``data/…`` holds all steps of all episodes one after the other, ``meta/episode_ends`` where each ends. Pictures are
arrays (N, H, W, 3), whole numbers or floats from 0 to 255 (or to 1). The state is ``state``, or else the pose and the
gripper width of UMI's robot 0; actions are ``action``. The task is the option ``task``, by default the file's name.

Only plain codecs are read. A Zarr file can ask for codecs that unpickle what it holds, and those would run its code.

A piece of an array that is not there reads as its fill value, so a copy that was interrupted would be full of zeros.
It is refused. A writer may also leave out pieces that hold nothing but the fill value (zarr's ``write_empty_chunks``);
the two cannot be told apart, and ``missing=fill`` says that it is so.

Options: ``camera`` (a picture under ``data``; by default the one in the hand, else the first), ``state`` and
``action`` (arrays under ``data`` joined by ``+``), ``task``, ``fps`` (10), ``size`` (longest side of a frame, 320),
``missing`` (``refuse`` or ``fill``).
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from besttake.demos.base import Episodes, choose_columns, frame_rate, missing_notes, uri_again
from besttake.demos.cameras import choose_camera
from besttake.demos.reading import LARGEST, Unreadable, check_count, check_links, check_size, fitted_array
from besttake.errors import LibraryError, one_line
from besttake.options import Reader
from besttake.types import F32, U8

_PLAIN = {
    "blosc", "zlib", "gzip", "zstd", "lz4", "bz2", "lzma", "shuffle", "delta", "bytes", "crc32c", "transpose",
    "sharding_indexed", "bitround", "fixedscaleoffset", "astype", "quantize", "packbits",
}  # fmt: skip
_STATES = (("state",), ("robot0_eef_pos", "robot0_eef_rot_axis_angle", "robot0_gripper_width"))
_MOST_ROWS = 1 << 26
_MOST_JSON = 1 << 20
_DESCRIPTIONS = (".zarray", "zarr.json", ".zmetadata")
_MOST_CHUNK = 1 << 32
_MOST_NUMBERS = 1 << 28
_BLOSC_HEAD = 16
_BLOCK = 64


@dataclass(frozen=True)
class _ZarrReader:
    """Reads episodes by ``episode N``."""

    data: Any
    ends: Sequence[int]
    camera: str
    state: tuple[str, ...] | None
    action: tuple[str, ...] | None
    task_of_all: str
    size: int

    def ids(self) -> Iterator[str]:
        return (f"episode {i}" for i in range(len(self.ends)))

    def task(self, key: str) -> tuple[str, str]:
        return self.task_of_all, self.task_of_all.replace("_", " ")

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        first, end = self._span(key)
        return _numbers(self.data, self.state, first, end), _numbers(self.data, self.action, first, end)

    def frames(self, key: str) -> U8:
        first, end = self._span(key)
        height, width = self.data[self.camera].shape[1:3]
        check_size(width, height, end - first, self.size)
        blocks = [
            fitted_array(_pictures(self.data[self.camera], i, min(i + _BLOCK, end)), self.size)
            for i in range(first, end, _BLOCK)
        ]
        return np.concatenate(blocks) if blocks else np.zeros((0, 1, 1, 3), np.uint8)

    def picture(self, key: str, step: int, camera: str) -> U8:
        first, end = self._span(key)
        if not 0 <= step < end - first:
            raise Unreadable(f"has no step {step}")
        check_size(*self.data[camera].shape[2:0:-1])
        shown: U8 = _pictures(self.data[camera], first + step, first + step + 1)[0]
        return shown

    def _span(self, key: str) -> tuple[int, int]:
        number = int(key.rpartition(" ")[2])
        return (self.ends[number - 1] if number else 0), self.ends[number]


def make(
    rest: str, camera: str | None = None, state: str | None = None, action: str | None = None, task: str | None = None,
    fps: float | str | None = None, size: int | str = LARGEST, **more: str,
) -> Episodes:  # fmt: skip
    """The source ``zarr:rest``."""
    name, read, path = f"zarr:{rest}", Reader(f"zarr:{rest}"), Path(rest)
    read.only(more, ("map", "missing"))
    data, ends = _opened(path, name)
    arrays = {str(key): data[key] for key in data if getattr(data[key], "shape", ())}
    cameras = [key for key, each in arrays.items() if len(each.shape) == 4 and each.shape[-1] == 3]
    if not cameras:
        raise LibraryError(f"{name} has no pictures under data/; it has {', '.join(arrays) or 'nothing'}")
    for key, each in arrays.items():
        if each.shape[0] < ends[-1]:
            raise LibraryError(f"{name}: data/{key} has {each.shape[0]} rows, but the last episode ends at {ends[-1]}")
    named = read.mapping("map", more.get("map", ""))
    stored, called = choose_camera(cameras, camera, named, name)
    states = choose_columns(arrays, state, _STATES, name)
    actions = choose_columns(arrays, action, (("action",),), name)
    if read.choice("missing", more.get("missing", "refuse"), ("refuse", "fill")) == "refuse":
        used = (*cameras, *(states or ()), *(actions or ()))  # any camera may be shown to a policy
        _check_pieces(path, [arrays[key] for key in used], ends[-1], name)
    task_of_all = task or path.name.split(".zarr")[0]
    reader = _ZarrReader(arrays, ends, stored, states, actions, task_of_all, read.whole("size", size))
    notes = [f"a Zarr replay buffer of {len(ends)} episodes", *missing_notes(arrays, state=states, action=actions)]
    rate, rate_note = frame_rate(read, fps, None, 10.0, "as Diffusion Policy's PushT has (UMI's have 60)")
    return Episodes(
        reader, cameras, named, name,
        uri_again(
            "zarr", path, camera=camera, state=state, action=action, task=task, fps=fps, size=size, **more
        ),
        called, rate, _fingerprint(path, reader), (*notes, *rate_note),
    )  # fmt: skip


def _opened(path: Path, name: str) -> tuple[Any, list[int]]:
    """Open the group ``data`` and read the ends of the episodes; LibraryError for another layout or codec."""
    import zarr

    if not path.exists():
        raise LibraryError(f"{name}: there is no such file or directory")
    check_links(path, name)
    try:
        if large := [part for part, size in _parts(path) if size > _MOST_JSON and part.endswith(_DESCRIPTIONS)]:
            raise LibraryError(f"{name}: {large[0]} is too large")
        store = zarr.storage.ZipStore(str(path), mode="r") if path.is_file() else str(path)
        root = zarr.open_group(store, mode="r")
        data, stored = root["data"], root["meta/episode_ends"]
        with warnings.catch_warnings(action="ignore"):  # of what is told in the next lines
            keys = list(map(str, data))
        there = {part.split("/")[1] for part, _ in _parts(path) if re.match("data/[^/]+/", part)}
        if lost := sorted(there.difference(keys)):
            raise LibraryError(f"{name}: data/{lost[0]} has no .zarray or zarr.json; copy the data set again")
        arrays = {"meta/episode_ends": stored, **{f"data/{key}": data[key] for key in keys}}
        _check_arrays(arrays, name)
        if path.is_dir():  # an archive has checksums of its own
            _check_lengths(path, arrays, name)
        _check_pieces(path, [stored], stored.shape[0], name)
        ends = np.asarray(stored[:])
    except LibraryError:
        raise
    except Exception as error:  # zarr and its codecs raise whatever a damaged file leads them to
        raise LibraryError(f"{name} is not a replay buffer of Diffusion Policy ({one_line(error, 120)})") from error
    if ends.ndim != 1 or ends.dtype.kind not in "iu" or (np.diff(ends.astype(np.int64), prepend=0) < 0).any():
        raise LibraryError(f"{name}: meta/episode_ends are no rising whole numbers")
    if not len(ends) or int(ends[-1]) > _MOST_ROWS:
        raise LibraryError(f"{name} has {len(ends)} episodes of {int(ends[-1]) if len(ends) else 0} steps")
    return data, [int(end) for end in ends]


def _check_arrays(arrays: Mapping[str, Any], name: str) -> None:
    """Raise LibraryError for an array of absurd size, or with a codec that is not on the list."""
    for key, each in arrays.items():
        chunks, shape = getattr(each, "chunks", ()), getattr(each, "shape", ())
        if int(np.prod(chunks, dtype=object)) * 8 > _MOST_CHUNK or (shape and shape[0] > _MOST_ROWS):
            raise LibraryError(f"{name}: {key} of shape {shape} is stored in pieces of {chunks}, larger than are read")
        for codec in _codecs(each.metadata.to_dict()):
            if codec not in _PLAIN:
                raise LibraryError(f"{name}: {key} asks for the codec {codec[:40]!r}, which is not read")


def _check_lengths(path: Path, arrays: Mapping[str, Any], name: str) -> None:
    """Raise LibraryError if a Blosc chunk is shorter than its header says: Blosc would read beyond its end."""
    for key, each in arrays.items():
        made_by = each.metadata.to_dict()
        packed = made_by.get("compressor") or (made_by.get("codecs") or [None])[-1]
        packer = (
            packed.get("id", packed.get("name")) if isinstance(packed, Mapping) else getattr(packed, "codec_id", "")
        )
        if str(packer).removeprefix("numcodecs.") != "blosc":
            continue
        for piece in sorted((path / key).rglob("*")):
            if piece.is_file() and piece.name not in (*_DESCRIPTIONS, ".zattrs"):
                with piece.open("rb") as file:
                    head = file.read(_BLOSC_HEAD)
                said, size = int.from_bytes(head[-4:], "little"), piece.stat().st_size
                if len(head) < _BLOSC_HEAD or said != size:
                    where = piece.relative_to(path)
                    raise LibraryError(f"{name}: {where} has {size} of its {said} bytes; copy the data set again")


def _check_pieces(path: Path, arrays: Iterable[Any], rows: int, name: str) -> None:
    """Raise LibraryError unless every chunk of the first ``rows`` of each array is stored below ``path``."""
    stored = {part for part, size in _parts(path) if size}  # an empty shard reads as its fill value, too
    for each in arrays:
        sizes = zip((rows, *each.shape[1:]), each.shards or each.chunks, strict=True)
        grid = [-(-size // piece) for size, piece in sizes]
        needed = (f"{each.path}/{each.metadata.encode_chunk_key(place)}" for place in np.ndindex(*grid))
        try:
            check_count(sum(part in stored for part in needed), math.prod(grid), "pieces", each.path)
        except Unreadable as error:
            why = "or, if its writer left out what is all zero, add ?missing=fill"
            raise LibraryError(f"{name} {error}, {why}") from None


def _parts(path: Path) -> Iterator[tuple[str, int]]:
    """The names and sizes of the files of a store."""
    if path.is_file():
        with zipfile.ZipFile(path) as archive:
            yield from ((entry.filename, entry.file_size) for entry in archive.infolist())
        return
    for part in sorted(path.rglob("*")):
        if part.is_file():
            yield str(part.relative_to(path)), part.stat().st_size
        elif not part.is_dir():
            raise ValueError(f"{part.name} is not a file")


def _codecs(node: Any) -> Iterator[str]:
    """Return the names of all codecs in the metadata of an array, version 2 (``id``) or 3 (``name``), at any depth."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in ("compressor", "filters", "codecs", "serializer", "compressors", "index_codecs"):
                for codec in value if isinstance(value, list | tuple) else [value]:
                    if codec is not None:
                        named = codec.get("id", codec.get("name", "")) if isinstance(codec, Mapping) else codec
                        yield str(named).removeprefix("numcodecs.")
            if key == "dtype" and value == "|O":
                yield "object"
            yield from _codecs(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _codecs(value)


def _numbers(data: Any, keys: tuple[str, ...] | None, first: int, end: int) -> F32 | None:
    if keys is None:
        return None
    parts = []
    for key in keys:
        if (end - first) * int(np.prod(data[key].shape[1:], dtype=object)) > _MOST_NUMBERS:
            raise Unreadable(f"has more numbers in {key} than are read")
        rows = _read(data[key], first, end)
        parts.append(rows.reshape(len(rows), math.prod(rows.shape[1:])).astype(np.float32))
    return np.concatenate(parts, axis=1)


def _pictures(array: Any, first: int, end: int) -> U8:
    """Rows of pictures as uint8; those of floats are from 0 to 255, as PushT's, or from 0 to 1."""
    rows = _read(array, first, end)
    if rows.dtype != np.uint8:
        scale = 255 if rows.dtype.kind == "f" and rows.size and rows.max() <= 1 else 1
        rows = np.clip(rows * scale, 0, 255).round()
    return np.asarray(rows, np.uint8)


def _read(array: Any, first: int, end: int) -> Any:
    try:
        return np.asarray(array[first:end])
    except Exception as error:  # as above
        raise Unreadable(f"cannot be read ({one_line(error, 120)})") from error


def _fingerprint(path: Path, reader: _ZarrReader) -> str:
    chosen = (reader.camera, reader.state, reader.action, reader.task_of_all, reader.size, list(reader.ends))
    stored = {key: str(each.metadata.to_dict()) for key, each in reader.data.items()}
    return hashlib.sha256(repr((chosen, stored, list(_parts(path)))).encode()).hexdigest()[:16]
