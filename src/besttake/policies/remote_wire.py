"""Messages to and from model servers as bytes, for both wire formats: msgpack with plain arrays, never pickle.

vla-eval wraps everything in an envelope ``{"type", "payload", "seq", "timestamp"}`` and writes an array as
``{"__ndarray__": True, "data", "dtype", "shape"}`` or, for a picture, ``{"__image__": True, "format": "png", "data"}``.
openpi sends bare dicts and writes an array with the same keys as bytes (``b"__ndarray__"``).
Whatever does not decode into bool, integer or float arrays of the size they claim raises `WireError`.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from besttake.errors import ComponentError, need
from besttake.types import Array

VLA_EVAL_VERSION = 1
MESSAGE_TYPES = ("hello", "observation", "action", "episode_start", "episode_end", "error")
MOST_BYTES = 32 << 20
"""The most bytes of a message, enough for ten pictures of 1280 x 720 without compression."""
_MOST_PIXELS = 32_000_000
_MOST_PARTS = 200_000
_VLA_EVAL_KEYS = ("__ndarray__", "data", "dtype", "shape")
_OPENPI_KEYS = tuple(key.encode() for key in _VLA_EVAL_KEYS)


class WireError(ComponentError):
    """Bytes that are not a message of the protocol."""


@dataclass(frozen=True)
class Message:
    """One vla-eval message; ``seq`` of an answer repeats the request's."""

    type: str
    payload: Mapping[str, Any]
    seq: int = 0
    timestamp: float = field(default_factory=time.time)


def pack_message(message: Message) -> bytes:
    """A vla-eval message as bytes."""
    return _packb({**vars(message), "payload": dict(message.payload)}, _VLA_EVAL_KEYS)


def unpack_message(data: bytes | str) -> Message:
    """The vla-eval message in ``data``."""
    raw = _unpackb(data, _read_vla_eval)
    if not isinstance(raw, dict) or not {"type", "payload", "seq"} <= raw.keys():
        raise WireError("not a vla-eval message: expected a map with type, payload and seq")
    kind, payload, seq = raw["type"], raw["payload"], raw["seq"]
    if kind not in MESSAGE_TYPES:
        raise WireError(f"unknown vla-eval message type {kind!r}; known: {', '.join(MESSAGE_TYPES)}")
    if not isinstance(payload, dict) or not isinstance(seq, int):
        raise WireError(f"vla-eval {kind} message: payload must be a map and seq an integer")
    stamp = raw.get("timestamp", 0.0)
    return Message(kind, payload, seq, float(stamp) if isinstance(stamp, int | float) else 0.0)


def pack_openpi(value: Mapping[str, Any]) -> bytes:
    """A dict of plain values and arrays as an openpi frame."""
    return _packb(dict(value), _OPENPI_KEYS)


def unpack_openpi(data: bytes | str) -> dict[str, Any]:
    """The dict in an openpi frame; a text frame is an error report of the other side."""
    raw = _unpackb(data, _read_openpi)
    if not isinstance(raw, dict):
        raise WireError(f"not an openpi frame: expected a map, got {type(raw).__name__}")
    return raw


def last_line(report: Any) -> str:
    """The last line of a traceback or error report, which says what happened."""
    lines = [line.strip() for line in str(report).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"


def _packb(value: Any, keys: Sequence[str | bytes]) -> bytes:
    return bytes(_msgpack().packb(value, default=partial(_written, keys=keys), use_bin_type=True))


class _Bounds:
    """Counts the maps, lists and pixels of an unpacked message, and refuses too many: bytes can become gigabytes."""

    def __init__(self) -> None:
        self.parts = self.pixels = 0

    def part(self, value: Any) -> Any:
        """Count one map or list; WireError if there are too many."""
        self.parts += 1
        if self.parts > _MOST_PARTS:
            raise WireError(f"a message of more than {_MOST_PARTS} maps and lists refused")
        return value

    def picture(self, width: int, height: int) -> None:
        """Count the pixels of a picture before it is unpacked; WireError if there are too many."""
        self.pixels += width * height
        if self.pixels > _MOST_PIXELS:
            raise WireError(f"image of {width} x {height} pixels refused: a message may hold {_MOST_PIXELS}")


def _unpackb(data: bytes | str, hook: Callable[[dict[Any, Any], _Bounds], Any]) -> Any:
    if isinstance(data, str):
        raise WireError(f"expected a binary frame, got text: {last_line(data)}")
    bounds = _Bounds()
    try:
        return _msgpack().unpackb(
            data, object_hook=lambda value: hook(bounds.part(value), bounds), list_hook=bounds.part, raw=False,
            strict_map_key=False,
        )  # fmt: skip
    except WireError:
        raise
    except Exception as error:  # msgpack has no common base class for what malformed bytes raise
        raise WireError(f"cannot decode {len(data)} bytes as msgpack: {type(error).__name__}: {error}") from error


def _msgpack() -> Any:
    return need("msgpack", "talking to a model server", "serve")


def _read_vla_eval(value: dict[Any, Any], bounds: _Bounds) -> Any:
    if "__image__" in value:
        return _image(value, bounds)
    return _array(value, _VLA_EVAL_KEYS) if "__ndarray__" in value else value


def _read_openpi(value: dict[Any, Any], _: _Bounds) -> Any:
    if b"__npgeneric__" in value and b"__ndarray__" not in value:
        number, dtype = value.get(b"data"), _dtype(value.get(b"dtype"))
        if not isinstance(number, bool | int | float):
            raise WireError(f"a {type(number).__name__} is not a number")
        return np.asarray(number, dtype)[()]
    return _array(value, _OPENPI_KEYS) if b"__ndarray__" in value else value


def _written(value: Any, keys: Sequence[str | bytes]) -> Any:
    if isinstance(value, np.ndarray):
        _dtype(value.dtype.str)
        return dict(zip(keys, (True, value.tobytes(), value.dtype.str, list(value.shape)), strict=True))
    if isinstance(value, np.generic):
        return value.item()
    raise WireError(f"cannot send a {type(value).__name__}")


def _dtype(name: Any) -> np.dtype[Any]:
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in "biuf":
        raise WireError(f"array dtype {str(name)[:40]!r} refused: only bool, integer and float arrays travel")
    return dtype


def _array(value: dict[Any, Any], keys: Sequence[str | bytes]) -> Array:
    data, dtype_name, shape = (value.get(key) for key in keys[1:])
    dtype = _dtype(dtype_name)
    if not isinstance(data, bytes) or not isinstance(shape, list | tuple):
        raise WireError("an array needs data as bytes and shape as a list")
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        raise WireError(f"array shape {shape!r} is not a list of sizes")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise WireError(f"array of shape {tuple(shape)} {dtype} does not hold {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _image(value: dict[Any, Any], bounds: _Bounds) -> Array:
    if value.get("format") == "raw":
        return _array(value, _VLA_EVAL_KEYS)
    from PIL import Image

    data = value.get("data")
    if value.get("format") not in ("png", "jpeg") or not isinstance(data, bytes):
        raise WireError(f"image format {str(value.get('format'))[:40]!r} refused: raw, png or jpeg")
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as picture:
            bounds.picture(picture.width, picture.height)
            return np.array(picture)
    except (OSError, SyntaxError, ValueError) as error:
        raise WireError(f"damaged image: {error}") from error
