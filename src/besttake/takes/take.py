"""A take: its actions, states, outcome and frames, and the file that stores them."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from besttake import files
from besttake.errors import RunError, one_line
from besttake.takes.key import TakeKey
from besttake.types import F32, U8

_UNKNOWN = "0" * 64
_KEY = (str, str, str, int, str, int)


@dataclass(frozen=True)
class Take:
    """What happened in a take.

    ``actions`` float32 (T, action_dim); ``states`` float32 (T + 1, state_dim); ``film`` holds the score camera's
    frames seen before the actions of ``frame_steps`` (F,). ``success_step`` counts the actions until success.
    """

    key: TakeKey
    success_step: int | None
    actions: F32
    states: F32
    film: Film
    frame_steps: NDArray[np.int32]
    calls: int = 0

    @property
    def success(self) -> bool:
        """Whether the task was done at any step."""
        return self.success_step is not None

    @property
    def steps(self) -> int:
        """How many actions were executed."""
        return len(self.actions)

    def frames(self) -> U8:
        """The frames, uint8 (F, H, W, 3)."""
        return self.film.unpack()

    def _is_whole(self) -> bool:
        """Whether the parts fit each other: a checksum reveals damage, but not a forged file."""
        names = all(type(value) is kind for value, kind in zip(astuple(self.key), _KEY, strict=True))
        step, film = self.success_step, self.film
        outcome = step is None or (type(step) is int and 0 <= step <= self.steps)
        shapes = (self.actions.ndim, self.states.ndim, self.frame_steps.ndim) == (2, 2, 1)
        kinds = self.actions.dtype.kind + self.states.dtype.kind + self.frame_steps.dtype.kind == "ffi"
        return names and outcome and shapes and kinds and film.is_whole() and film.count == len(self.frame_steps)

    def to_bytes(self) -> bytes:
        """The content of the take's file (safetensors), with a checksum, so that files alone can restore the table."""
        data, *layout = astuple(self.film)
        head = {
            "sha256": _UNKNOWN,
            "key": json.dumps(astuple(self.key)),
            "success_step": json.dumps(self.success_step),
            "film": json.dumps(layout),
            "calls": str(self.calls),
        }
        arrays = {
            "actions": np.ascontiguousarray(self.actions),
            "film": np.frombuffer(data, np.uint8),
            "frame_steps": np.ascontiguousarray(self.frame_steps),
            "states": np.ascontiguousarray(self.states),
        }
        return _sealed(bytes(save(arrays, {"head": json.dumps(head)})))

    @classmethod
    def from_sealed(cls, data: bytes) -> Take:
        """Read a file that no row of the table describes; RunError unless its own checksum is right."""
        take = cls.from_bytes(data)
        checksum = json.loads(files.safetensors_metadata(data)["head"]).get("sha256", "")
        if len(checksum) != len(_UNKNOWN) or _sealed(data.replace(checksum.encode(), _UNKNOWN.encode(), 1)) != data:
            raise RunError("a take file has no checksum, or a wrong one")
        return take

    @classmethod
    def from_bytes(cls, data: bytes) -> Take:
        """Read a take from its `to_bytes`; RunError if it is damaged."""
        try:
            head = json.loads(files.safetensors_metadata(data)["head"])
            arrays = load(data)
            take = cls(
                TakeKey(*json.loads(head["key"])), json.loads(head["success_step"]), arrays["actions"],
                arrays["states"], Film(arrays["film"].tobytes(), *json.loads(head["film"])), arrays["frame_steps"],
                int(head["calls"]),
            )  # fmt: skip
            if not take._is_whole():
                raise ValueError("its parts do not fit")
            return take
        except Exception as error:
            raise RunError(
                f"a take file is damaged ({type(error).__name__}); run the diagnosis again to redo it"
            ) from error


def _sealed(data: bytes) -> bytes:
    """Write the sha256 of a file into its own head, computed with zeros in that place."""
    return data.replace(_UNKNOWN.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


LOSSLESS_UP_TO = 128
_WEBP_LIMIT = 16383


@dataclass(frozen=True)
class Film:
    """``count`` frames of (height, width) laid out row by row in one WebP picture of ``columns`` columns."""

    data: bytes
    count: int
    height: int
    width: int
    columns: int

    def is_whole(self) -> bool:
        """Whether `pack` can have made this layout."""
        layout = (self.count, self.height, self.width, self.columns)
        if not all(type(number) is int and number >= 0 for number in layout):
            return False
        return self.count == 0 or (0 < self.columns <= self.count and self.height > 0 and self.width > 0)

    @classmethod
    def pack(cls, frames: U8, quality: int | None = None) -> Film:
        """Compress frames (F, H, W, 3); by default lossless up to 128 px and with quality 90 above."""
        from PIL import Image

        count, height, width, _ = frames.shape
        if count == 0:
            return cls(b"", 0, height, width, 0)
        columns = min(count, _WEBP_LIMIT // width)
        rows = -(-count // columns)
        sheet = np.zeros((rows * columns, height, width, 3), np.uint8)
        sheet[:count] = frames
        picture = sheet.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, -1, 3)
        exact = quality is None and max(height, width) <= LOSSLESS_UP_TO
        quality, method = (0, 0) if exact else (quality or 90, 2)
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, format="WEBP", lossless=exact, quality=quality, method=method)
        return cls(buffer.getvalue(), count, height, width, columns)

    def unpack(self) -> U8:
        """The frames, uint8 (F, H, W, 3); RunError if the picture does not hold them."""
        from PIL import Image

        if self.count == 0:
            return np.zeros((0, self.height, self.width, 3), np.uint8)
        rows = -(-self.count // self.columns)
        try:
            # WebP only: for some formats Pillow runs other programs.
            with Image.open(io.BytesIO(self.data), formats=("WEBP",)) as image:
                if image.size != (self.columns * self.width, rows * self.height):
                    raise ValueError("its size is not that of its frames")
                picture = np.asarray(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise RunError(f"the pictures of a take are damaged ({one_line(error, 100)})") from error
        tiles = picture.reshape(rows, self.height, self.columns, self.width, 3).swapaxes(1, 2)
        return np.ascontiguousarray(tiles.reshape(-1, self.height, self.width, 3)[: self.count])
