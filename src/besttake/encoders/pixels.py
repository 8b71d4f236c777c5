"""`pixels`: principal components of small pictures, fitted to the library's own frames. This is the default encoder.

The projection is exact. Pixels are integers and the axes are rounded to multiples of 2**-30, so every partial sum of
the float64 product fits its 53 bits, whatever the order of summation: an embedding is the same to the last bit alone or
in any batch, with any BLAS and any number of threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from besttake.core.arithmetic import F64, eigh, orthonormal, product
from besttake.encoders.base import check_images
from besttake.errors import ComponentError
from besttake.options import Reader
from besttake.types import F32, U8, Array, EncoderSpec

_UNIT = 2.0**30
_BATCH = 256


@dataclass(frozen=True)
class Pixels:
    """PCA of pictures of ``size`` x ``size``: ``axes`` float64 (size * size * 3, dim), ``mean`` (size * size * 3,).

    Before it is fitted it has no axes, and only `fit` can be called. `fit` keeps at most ``keep`` axes, or as many as
    the frames have.
    """

    size: int = 32
    keep: int = 64
    axes: F64 | None = None
    mean: F64 | None = None

    @property
    def spec(self) -> EncoderSpec:
        """The spec; `fit` changes ``dim`` and fingerprint."""
        digest = hashlib.sha256(f"pixels 1 {self.size} {self.keep}".encode())
        if self.axes is not None and self.mean is not None:
            digest.update(self.axes.tobytes() + self.mean.tobytes())
        dim = self.keep if self.axes is None else self.axes.shape[1]
        return EncoderSpec("pixels", dim, digest.hexdigest()[:16], ("fitted to the library's own frames",), cheap=True)

    def fit(self, images: U8) -> Pixels:
        """Fit the principal axes to ``images`` uint8 (B, H, W, 3)."""
        flat = shrink(images, self.size).astype(np.float64)
        mean = np.round(flat.mean(axis=0) * 256) / 256
        flat -= mean
        axes = _principal(flat, min(self.keep, max(1, len(flat) - 1), flat.shape[1]))
        axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
        return Pixels(self.size, self.keep, np.round(axes * _UNIT) / _UNIT, mean)

    def encode(self, images: U8) -> F32:
        """Uint8 (B, H, W, 3) to float32 (B, dim), L2-normalised."""
        if self.axes is None or self.mean is None:
            raise ComponentError("pixels: this encoder is fitted to a library; build a library with it first")
        parts = [self._project(images[i : i + _BATCH]) for i in range(0, len(images), _BATCH)]
        return np.concatenate(parts) if parts else np.zeros((0, self.axes.shape[1]), np.float32)

    def arrays(self) -> Mapping[str, Array]:
        """Return axes, mean and sizes."""
        if self.axes is None or self.mean is None:
            raise ComponentError("pixels: it is not fitted yet, so there is nothing to store")
        return {"axes": self.axes, "mean": self.mean, "sizes": np.array([self.size, self.keep], np.int64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Restore an encoder from its `arrays`."""
        size, keep = (int(v) for v in arrays["sizes"])
        return cls(size, keep, np.asarray(arrays["axes"], np.float64), np.asarray(arrays["mean"], np.float64))

    def _project(self, images: U8) -> F32:
        assert self.axes is not None
        assert self.mean is not None
        # The mean has 16 significant bits and pixels 8, so both products are exact and so is their difference.
        pictures = shrink(images, self.size).astype(np.float64)
        values = pictures @ self.axes - self.mean @ self.axes  # any order: every partial sum is exact
        norms = np.sqrt((values * values).sum(axis=1))
        values[norms == 0, 0] = 1.0
        unit: F32 = (values / np.where(norms > 0, norms, 1.0)[:, None]).astype(np.float32)
        return unit


def shrink(images: U8, size: int) -> U8:
    """Resize pictures (B, H, W, 3) by area with Pillow, to rows (B, size * size * 3) that do not affect each other.

    Resizing by area never mixes pixels across the edge of a picture, so a batch is resized as one tall picture, first
    across and then down. Pillow computes positions in floating point, which is exact if ``size`` is a power of two;
    with other sizes, each picture is resized alone.
    """
    from PIL import Image

    check_images(images)
    if not len(images):
        return np.empty((0, size * size * 3), np.uint8)
    if images.shape[1:3] == (size, size):
        return images.reshape(len(images), -1)
    is_power_of_two = size & (size - 1) == 0
    parts = []
    for stack in [images] if is_power_of_two else images[:, None]:
        count, height, width, _ = stack.shape
        tall = Image.fromarray(np.ascontiguousarray(stack).reshape(count * height, width, 3))
        across = tall.resize((size, count * height), Image.Resampling.BOX)
        parts.append(np.asarray(across.resize((size, count * size), Image.Resampling.BOX)).reshape(count, -1))
    return np.concatenate(parts)


def make(*, dim: int | str = 64, size: int | str = 32) -> Pixels:
    """Make ``pixels`` or ``pixels?dim=64&size=32``."""
    read = Reader("pixels")
    return Pixels(read.whole("size", size, least=2), read.whole("dim", dim))


def _principal(flat: F64, width: int) -> F64:
    """The leading principal axes (n, width) of ``flat`` (B, n) by subspace iteration."""
    rng = np.random.Generator(np.random.Philox(0))
    block = rng.standard_normal((flat.shape[1], min(width + 16, *flat.shape)))
    for _ in range(6):
        block = orthonormal(_exact_product(flat.T, _exact_product(flat, block)))
    projected = _exact_product(flat, block)
    rotation = eigh(product(projected.T, projected))[1][:, ::-1]
    return product(block, rotation)[:, :width]


def _exact_product(flat: F64, columns: F64) -> F64:
    """``flat @ columns`` (pictures minus their mean: integers below 2**16 over 256), the same with every BLAS.

    Columns are rounded to few enough bits that every partial sum fits the 53 bits of a float64.
    """
    bits = 37 - flat.shape[1].bit_length()
    unit = np.ldexp(1.0, np.frexp(np.abs(columns).max(axis=0, initial=0.0))[1] - bits)
    exact: F64 = flat @ (np.rint(columns / unit) * unit)  # any order: every partial sum is exact
    return exact
