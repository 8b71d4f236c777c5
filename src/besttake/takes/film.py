"""Frames of a take as one compressed picture: small on disk, shown by any browser, exact for small cameras.

Measured on testbed takes (17 frames of 48 px): lossless WebP 4.5 kB, PNG 6.0 kB, H.264 crf 18 9.2 kB
(and lossy); see `bench/film.py`.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from besttake.errors import RunError, one_line
from besttake.types import U8

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
        """Whether the layout can be one that `pack` makes."""
        layout = (self.count, self.height, self.width, self.columns)
        if not all(type(number) is int and number >= 0 for number in layout):
            return False
        return self.count == 0 or (0 < self.columns <= self.count and self.height > 0 and self.width > 0)

    @classmethod
    def pack(cls, frames: U8, quality: int | None = None) -> Film:
        """Compress frames (F, H, W, 3): with ``quality``, else lossless up to 128 px and quality 90 above."""
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
        """The frames, uint8 (F, H, W, 3); RunError where the picture is not one of them."""
        from PIL import Image

        if self.count == 0:
            return np.zeros((0, self.height, self.width, 3), np.uint8)
        rows = -(-self.count // self.columns)
        try:
            # WebP alone: Pillow reads some formats by programs of their own.
            with Image.open(io.BytesIO(self.data), formats=("WEBP",)) as image:
                if image.size != (self.columns * self.width, rows * self.height):
                    raise ValueError("its size is not that of its frames")
                picture = np.asarray(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise RunError(f"the pictures of a take are damaged ({one_line(error, 100)})") from error
        tiles = picture.reshape(rows, self.height, self.columns, self.width, 3).swapaxes(1, 2)
        return np.ascontiguousarray(tiles.reshape(-1, self.height, self.width, 3)[: self.count])
