"""TFRecord files and the tf.Example messages in them, read without TensorFlow.

A record is its length (8 bytes, little-endian), the masked CRC-32C of those 8 bytes (4), the data, and the masked
CRC-32C of the data (4). A tf.Example is a protocol buffer: a map from names to lists of bytes, floats or whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from besttake.demos.frames import Unreadable
from besttake.errors import need

_MOST = 1 << 31


def places(path: Path) -> Iterator[int]:
    """Where each record begins; `Unreadable` where the file is damaged, from there on."""
    place, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while place < size:
            file.seek(place)
            length = _length(file.read(12), size - place, path.name)
            yield place
            place += length + 16


def record_at(path: Path, place: int) -> bytes:
    """The record that begins at byte ``place``; `Unreadable` where it is not as it was written."""
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
    if length > min(_MOST, left - 16):
        raise Unreadable(f"is cut off, or has a record of {length} bytes ({name})")
    return length


def masked_crc(data: bytes) -> int:
    """The CRC-32C of ``data``, rotated and shifted as TFRecord stores it."""
    crc = int(need("google_crc32c", "RLDS demonstrations", "rlds").value(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class Example:
    """A tf.Example: the features of a record by name, decoded when they are asked for."""

    def __init__(self, data: bytes) -> None:
        self._features: dict[str, memoryview] = {}
        for field, features in _fields(memoryview(data)):
            if field != 1:
                continue
            for inner, entry in _fields(features):
                if inner == 1:
                    parts = dict(_fields(entry))
                    name = bytes(parts.get(1, b"")).decode("utf-8", "replace")
                    self._features[name] = parts.get(2, memoryview(b""))

    def __contains__(self, name: str) -> bool:
        return name in self._features

    def names(self) -> list[str]:
        """The names of all features."""
        return list(self._features)

    def texts(self, name: str) -> list[bytes]:
        """A list of bytes: texts, or encoded pictures; empty where there is none."""
        return [bytes(value) for field, value in self._list(name, 1) if field == 1]

    def numbers(self, name: str) -> NDArray[np.float32]:
        """A list of floats or whole numbers as float32; empty where there is none."""
        floats = self._list(name, 2)
        if floats:
            if any(len(value) % 4 for _, value in floats):
                raise Unreadable(f"has damaged numbers in {name}")
            joined = b"".join(bytes(value) for field, value in floats if field == 1)
            return np.frombuffer(joined, "<f4").astype(np.float32)
        whole: list[int] = []
        for field, value in self._list(name, 3):
            if field == 1:
                whole += _varints(value)
        return np.array(whole, np.int64).astype(np.float32)

    def _list(self, name: str, kind: int) -> list[tuple[int, memoryview]]:
        if name not in self._features:
            raise Unreadable(f"has no {name}")
        for field, value in _fields(self._features[name]):
            if field == kind:
                return list(_fields(value))
        return []


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a message: numbers as the bytes that stand for them."""
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
