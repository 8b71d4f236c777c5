"""RLDS as tfds writes it, read without TensorFlow: ``rlds:DIRECTORY`` (Open X, Bridge, DROID, OpenVLA's LIBERO).

The directory is that of one version, with ``features.json`` and ``NAME-SPLIT.tfrecord-00000-of-00016`` …, or the one
above it, whose newest version is read. An episode is one record; its ``steps`` are lists with an entry per step. The
task and the instruction are the language instruction of the first step. How fast it was recorded is what
``metadata.json`` says (tfds writes there what the author of a data set adds), else what is known of data sets of that
name (of its files, else of its folder), which a note says, else ``fps`` has to say it.

A record of a TFRecord file is its length (8 bytes, little-endian), the masked CRC-32C of those 8 bytes (4), the data,
and the masked CRC-32C of the data (4). The data are a tf.Example, a protocol buffer: a map from names to lists of
bytes, floats or whole numbers.

Options: ``split`` (``train``), ``camera``, ``state`` and ``action`` (features under ``steps``, joined by ``+``),
``fps``, ``size`` (longest side of a frame, 320), ``map`` (``agentview:image``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from besttake.demos.base import Episodes, choose_columns, frame_rate, missing_notes, uri_again
from besttake.demos.cameras import choose_camera
from besttake.demos.reading import (
    FULL_SIZE,
    LARGEST,
    Unreadable,
    check_count,
    check_links,
    digest,
    inside,
    picture,
    read_json,
    stacked,
)
from besttake.errors import LibraryError
from besttake.options import Reader
from besttake.types import F32, U8

_DEEP = 16
_MOST_RECORD = 1 << 31
_STATES = (
    ("observation/state",),
    ("observation/cartesian_position", "observation/gripper_position"),
    ("observation/EEF_state", "observation/gripper_state"),
    ("observation/base_pose_tool_reached", "observation/gripper_closed"),
    ("observation/proprio",),
)
_ACTIONS = (
    ("action_dict/cartesian_velocity", "action_dict/gripper_position"),
    ("action",),
    ("action/world_vector", "action/rotation_delta", "action/gripper_closedness_action"),
    ("action/world_vector", "action/rotation_delta", "action/open_gripper"),
)
_INSTRUCTIONS = ("language_instruction", "observation/natural_language_instruction")
_RATES = ("fps", "control_frequency", "control_freq", "control_hz", "frequency")
_KNOWN = (("libero", 20.0, -1), ("bridge", 5.0, 1), ("droid", 15.0, -1), ("fractal", 3.0, -1))
"""A word of a name begins so; steps a second, and the sign of the gripper command that opens, of data people have."""


@dataclass(frozen=True)
class _RldsReader:
    """Reads the episodes of one split by ``SHARD@BYTE``; a damaged shard is one key without a place.

    ``lengths`` has the number of records in each shard, where the data set says so.
    """

    root: Path
    shards: Sequence[Path]
    lengths: Mapping[str, int]
    camera: str
    state: tuple[str, ...] | None
    action: tuple[str, ...] | None
    text: str | None
    size: int
    last: dict[str, Example] = field(default_factory=dict)
    """The episode that was read last."""

    def ids(self) -> Iterator[str]:
        for shard in self.shards:
            try:
                for place in places(inside(self.root, shard.name), self.lengths.get(shard.name)):
                    yield f"{shard.name}@{place}"
            except (Unreadable, OSError):
                yield f"{shard.name}@"

    def task(self, key: str) -> tuple[str, str]:
        example = self._example(key)
        texts = [] if self.text is None or f"steps/{self.text}" not in example else example.texts(f"steps/{self.text}")
        words = texts[0].decode("utf-8", "replace").strip() if texts else ""
        return words, words

    def numbers(self, key: str) -> tuple[F32 | None, F32 | None]:
        example = self._example(key)
        steps = _steps(example)
        return _joined(example, self.state, steps), _joined(example, self.action, steps)

    def frames(self, key: str) -> U8:
        pictures = self._example(key).texts(f"steps/{self.camera}")
        return stacked([picture(data, self.size) for data in pictures], self.camera)

    def picture(self, key: str, step: int, camera: str) -> U8:
        pictures = self._example(key).texts(f"steps/{camera}")
        if not 0 <= step < len(pictures):
            raise Unreadable(f"has no step {step}")
        return picture(pictures[step], FULL_SIZE)

    def _example(self, key: str) -> Example:
        if key not in self.last:
            shard, _, place = key.rpartition("@")
            try:
                path = inside(self.root, shard)
                if not place.isdecimal():
                    list(places(path, self.lengths.get(shard)))  # says what is wrong with it
                    raise Unreadable("cannot be read")
                example = Example(record_at(path, int(place)))
            except OSError as error:
                raise Unreadable(f"cannot be read ({error.strerror})") from error
            self.last.clear()
            self.last[key] = example
        return self.last[key]


def newest_version(path: Path) -> Path | None:
    """The folder of an RLDS data set: ``path`` where it is a version, else the newest in it; None if there is none."""
    if (path / "features.json").is_file():
        return path
    # While tfds writes, and after it was killed, there is a 1.0.0.incompleteXYZ beside.
    versions = [p.parent for p in path.glob("*/features.json") if re.fullmatch(r"\d{1,9}(\.\d{1,9}){2}", p.parent.name)]
    return max(versions, key=lambda p: [int(n) for n in p.name.split(".")], default=None)


def make(
    rest: str, split: str = "train", camera: str | None = None, state: str | None = None, action: str | None = None,
    fps: float | str | None = None, size: int | str = LARGEST, map: str = "",
) -> Episodes:  # fmt: skip
    """The source ``rlds:rest``."""
    name, read = f"rlds:{rest}", Reader(f"rlds:{rest}")
    check_links(Path(rest), name)
    root = newest_version(Path(rest))
    if root is None:
        raise LibraryError(f"{name} is not an RLDS data set (there is no features.json in it)")
    features = _features(read_json(root / "features.json", name), name)
    named = read.mapping("map", map)
    cameras = [key for key, (kind, shape) in features.items() if kind == "image" and shape[-1:] == (3,)]
    if not cameras:
        raise LibraryError(f"{name} has no pictures among its observations")
    stored, called = choose_camera(cameras, camera, named, name)
    shards = _shards(root, split, name)
    tensors = [key for key, (kind, _) in features.items() if kind == "tensor"]
    states = choose_columns(tensors, state, _STATES, name)
    actions = choose_columns(tensors, action, _ACTIONS, name)
    text = next((key for key in _INSTRUCTIONS if key in features), None)
    lengths, largest = _lengths(root, split, shards, name), read.whole("size", size)
    reader = _RldsReader(root, shards, lengths, stored, states, actions, text, largest)
    set_name = shards[0].name.split(".tfrecord-")[0].rpartition("-")[0]
    fingerprint = digest((root / "features.json", *shards), stored, states, actions, text, reader.size)
    known, rate, sign = _known(set_name, root)
    said = _rate_said(root)
    if fps is None and said is None and rate is None:
        raise LibraryError(f"{name} does not say how many steps a second it was recorded at; add ?fps=… (Bridge has 5)")
    fps_used, rate_note = frame_rate(read, fps, said, rate or 0.0, f"as {known} has")
    notes = [f"an RLDS data set, {set_name} in {root.name}, split {split} in {len(shards)} files", *rate_note]
    notes += missing_notes(features, state=states, action=actions)
    width = sum(int(np.prod(features[key][1])) for key in actions or ())
    is_pose = rate is not None and width == 7  # else seven numbers may as well be seven joints
    return Episodes(
        reader, cameras, named, name,
        uri_again("rlds", root, split=split, camera=camera, state=state, action=action, fps=fps, size=size, map=map),
        called, fps_used, fingerprint, tuple(notes), gripper_dim=6 if is_pose else None,
        gripper_open=sign, eef_dims=(0, 1, 2) if is_pose and states in _STATES[:2] else None,
    )  # fmt: skip


def _rate_said(root: Path) -> float | None:
    """Return the steps per second in the data set's own metadata; None if it has none."""
    try:
        said = read_json(inside(root, "metadata.json"), "rlds")
    except (LibraryError, Unreadable, OSError):
        return None
    rates = [said.get(key) for key in _RATES]
    return next((float(r) for r in rates if isinstance(r, int | float) and 0 < r < 1e4 and r is not True), None)


def _known(name: str, root: Path) -> tuple[str, float | None, int | None]:
    """Return what is known of data sets of this name, or else of data sets in such a folder.

    Files need not be named as the set is: tfds writes those of a class LIBERO10 as ``liber_o10-train…``.
    """
    for words in (re.split(r"[^a-z0-9]+", name.lower()), (root.name.lower(), root.parent.name.lower())):
        for known in _KNOWN:
            if any(word.startswith(known[0]) for word in words):
                return known
    return "", None, None


def _features(described: Mapping[str, Any], name: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The kind (``image``, ``text`` or ``tensor``) and shape of a step's features by path, ``observation/image`` …"""
    leaves: dict[str, tuple[str, tuple[int, ...]]] = {}

    def walk(node: Any, path: str, depth: int) -> None:
        if not isinstance(node, dict) or depth > _DEEP:
            return
        inner = node.get("featuresDict")
        if isinstance(inner, dict) and isinstance(inner.get("features"), dict):
            for key, child in inner["features"].items():
                walk(child, f"{path}/{key}", depth + 1)
        elif isinstance(node.get("sequence"), dict):
            walk(node["sequence"].get("feature"), path, depth + 1)
        else:
            for kind in ("image", "text", "tensor"):
                if isinstance(node.get(kind), dict) and path.startswith("/steps/"):
                    leaves[path.removeprefix("/steps/")] = kind, _shape(node[kind])

    walk(described, "", 0)
    if not leaves:
        raise LibraryError(f"{name}: features.json describes no steps; this is not RLDS")
    return leaves


def _shape(node: Mapping[str, Any]) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in node["shape"]["dimensions"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return ()


def _shards(root: Path, split: str, name: str) -> list[Path]:
    files = sorted(p for p in root.iterdir() if re.fullmatch(r".+\.tfrecord-\d+-of-\d+", p.name))
    chosen = [p for p in files if p.name.split(".tfrecord-")[0].endswith(f"-{split}")]
    if not chosen:
        known = sorted({p.name.split(".tfrecord-")[0].rpartition("-")[2] for p in files})
        raise LibraryError(f"{name} has no split {split}; it has {', '.join(known) or 'no TFRecord files'}")
    total = int(chosen[0].name.rpartition("-of-")[2])
    if len(chosen) != total:
        raise LibraryError(f"{name} has {len(chosen)} of the {total} files of split {split}; download the rest")
    return chosen


def _lengths(root: Path, split: str, shards: Sequence[Path], name: str) -> dict[str, int]:
    """The number of records in each shard by ``dataset_info.json``; empty where it does not say."""
    path = root / "dataset_info.json"
    described = read_json(path, name) if path.exists() else {}
    try:
        counts = next(each["shardLengths"] for each in described["splits"] if each["name"] == split)
        return {shard.name: int(count) for shard, count in zip(shards, counts, strict=True)}
    except (StopIteration, KeyError, TypeError, ValueError):
        return {}


def _steps(example: Example) -> int:
    for key in ("steps/is_first", "steps/is_last", "steps/is_terminal"):
        if key in example:
            return len(example.numbers(key))
    raise Unreadable("does not say how many steps it has")


def _joined(example: Example, keys: tuple[str, ...] | None, steps: int) -> F32 | None:
    """The numbers of several features side by side, (steps, n)."""
    if keys is None:
        return None
    parts = []
    for key in keys:
        values = example.numbers(f"steps/{key}")
        if steps and len(values) % steps:
            raise Unreadable(f"has {len(values)} numbers of {key} for {steps} steps")
        parts.append(values.reshape(steps, -1) if steps else np.zeros((0, 1), np.float32))
    return np.concatenate(parts, axis=1)


def places(path: Path, promised: int | None = None) -> Iterator[int]:
    """Where each of the ``promised`` records begins; `Unreadable` where the file is damaged, from there on."""
    place, size, count = 0, path.stat().st_size, 0
    with path.open("rb") as file:
        while place < size:
            file.seek(place)
            length = _length(file.read(12), size - place, path.name)
            yield place
            place, count = place + length + 16, count + 1
    check_count(count, promised, "records", path.name)


def record_at(path: Path, place: int) -> bytes:
    """Read the record that begins at byte ``place``; `Unreadable` if its checksum is wrong."""
    with path.open("rb") as file:
        file.seek(place)
        data = file.read(_length(file.read(12), path.stat().st_size - place, path.name))
        check = file.read(4)
    if masked_crc(data) != int.from_bytes(check, "little"):
        raise Unreadable(f"has a checksum that is wrong in {path.name}")
    return data


def _length(head: bytes, left: int, name: str) -> int:
    """The length of the record that begins with ``head``, where ``left`` bytes are left of the file."""
    if len(head) < 12 or masked_crc(head[:8]) != int.from_bytes(head[8:], "little"):
        raise Unreadable(f"is damaged, or is no uncompressed TFRecord ({name})")
    length = int.from_bytes(head[:8], "little")
    if length > min(_MOST_RECORD, left - 16):
        raise Unreadable(f"is cut off, or has a record of {length} bytes ({name})")
    return length


def masked_crc(data: bytes) -> int:
    """The CRC-32C of ``data``, rotated and shifted as TFRecord stores it."""
    import google_crc32c

    crc = int(google_crc32c.value(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class Example:
    """A tf.Example: the features of a record by name, decoded when they are asked for."""

    def __init__(self, data: bytes) -> None:
        self._features: dict[str, memoryview] = {}
        for entry in _values(_values([memoryview(data)], 1), 1):
            parts = dict(_fields(entry))
            self._features[bytes(parts.get(1, b"")).decode("utf-8", "replace")] = parts.get(2, memoryview(b""))

    def __contains__(self, name: str) -> bool:
        return name in self._features

    def names(self) -> list[str]:
        """The names of all features."""
        return list(self._features)

    def texts(self, name: str) -> list[bytes]:
        """A list of bytes: texts, or encoded pictures; empty where there is none."""
        return [bytes(value) for value in self._list(name, 1)]

    def numbers(self, name: str) -> F32:
        """A list of floats or whole numbers as float32; empty where there is none."""
        if floats := self._list(name, 2):
            if any(len(value) % 4 for value in floats):
                raise Unreadable(f"has damaged numbers in {name}")
            return np.frombuffer(b"".join(floats), "<f4").astype(np.float32)
        whole = [number for value in self._list(name, 3) for number in _varints(value)]
        return np.array(whole, np.int64).astype(np.float32)

    def _list(self, name: str, kind: int) -> list[memoryview]:
        """The values of a feature that is a list of bytes (1), of floats (2) or of whole numbers (3)."""
        if name not in self._features:
            raise Unreadable(f"has no {name}")
        return _values(_values([self._features[name]], kind), 1)


def _values(messages: Iterable[memoryview], wanted: int) -> list[memoryview]:
    """The values of the field number ``wanted`` in all ``messages``."""
    return [value for message in messages for number, value in _fields(message) if number == wanted]


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Split a message into fields; numbers stay bytes."""
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place)
        kind, first = key & 7, place
        if kind == 0:
            _, place = _varint(data, place)
        elif kind == 1:
            place += 8
        elif kind == 2:
            length, first = _varint(data, place)
            place = first + length
        elif kind == 5:
            place += 4
        else:
            raise Unreadable("holds a message that is no tf.Example")
        if place > end:
            raise Unreadable("holds a message that is cut off")
        yield key >> 3, data[first:place]


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise Unreadable("holds a message that is no tf.Example")
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _varints(data: memoryview) -> list[int]:
    values, place = [], 0
    while place < len(data):
        value, place = _varint(data, place)
        value &= (1 << 64) - 1
        values.append(value - (1 << 64) if value >> 63 else value)
    return values
