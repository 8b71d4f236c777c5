"""`hog`: histograms of gradient directions and mean colours on a grid, without fitting or download.

Pictures are encoded one at a time, so an embedding cannot depend on its batch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from besttake.encoders.pixels import shrink
from besttake.options import Reader
from besttake.types import F32, U8, EncoderSpec

_CLIP = 0.2


@dataclass(frozen=True)
class Hog:
    """``cells`` x ``cells`` cells of 8 pixels: ``bins`` unsigned gradient directions and a mean colour in each.

    Both halves, gradients and colours, are normalised to the same length before they are joined.
    """

    cells: int = 8
    bins: int = 9

    @property
    def spec(self) -> EncoderSpec:
        """``dim`` = cells * cells * (bins + 3)."""
        mark = hashlib.sha256(f"hog 1 {self.cells} {self.bins}".encode()).hexdigest()[:16]
        return EncoderSpec("hog", self.cells**2 * (self.bins + 3), mark, cheap=True)

    def encode(self, images: U8) -> F32:
        """Uint8 (B, H, W, 3) to float32 (B, dim), L2-normalised."""
        side = 8 * self.cells
        rows = np.empty((len(images), self.spec.dim), np.float32)
        for row, image in zip(rows, shrink(images, side), strict=True):
            row[:] = self._embed(image.reshape(side, side, 3).astype(np.float64) / 255)
        return rows

    def _embed(self, image: NDArray[np.float64]) -> NDArray[np.float64]:
        count = self.cells**2
        colour = np.stack([np.bincount(self._cell, image[..., c].ravel(), count) for c in range(3)], axis=1) / 64
        grey = 0.299 * image[..., 0] + 0.587 * image[..., 1] + 0.114 * image[..., 2]
        down, right = np.gradient(grey)
        strength = np.hypot(down, right).ravel()
        place = (np.arctan2(down, right).ravel() % np.pi) / np.pi * self.bins
        low = np.floor(place)
        upper = place - low
        histogram = np.zeros(count * self.bins)
        for bin_, part in ((low, 1 - upper), (low + 1, upper)):
            slot = self._cell * self.bins + bin_.astype(np.int64) % self.bins
            histogram += np.bincount(slot, strength * part, count * self.bins)
        edges = self._normalised(histogram.reshape(self.cells, self.cells, self.bins))
        return _unit(np.concatenate([_unit(edges.ravel()), _unit((colour - 0.5).ravel())]))

    @cached_property
    def _cell(self) -> NDArray[np.int64]:
        line = np.arange(8 * self.cells) // 8
        return (line[:, None] * self.cells + line[None, :]).ravel()

    def _normalised(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """Divide each cell by the energy of its 3 x 3 neighbourhood and clip, to remove the effect of contrast."""
        energy = np.pad((cells**2).sum(axis=2), 1)
        around = sum(energy[i : i + self.cells, j : j + self.cells] for i in range(3) for j in range(3))
        return np.minimum(cells / np.sqrt(around + 1e-4)[..., None], _CLIP)


def make(*, cells: int | str = 8, bins: int | str = 9) -> Hog:
    """Make ``hog`` or ``hog?cells=8&bins=9``."""
    read = Reader("hog")
    return Hog(read.whole("cells", cells), read.whole("bins", bins, least=2))


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = float(np.sqrt((vector * vector).sum()))
    if norm == 0:
        return np.full_like(vector, 1 / np.sqrt(len(vector)))
    unit: NDArray[np.float64] = vector / norm
    return unit
