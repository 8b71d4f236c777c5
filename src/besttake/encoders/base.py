"""The contract of an encoder, the paper's phi. Check yours with ``besttake.testing.check_encoder``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from besttake.errors import ComponentError, blaming
from besttake.types import F32, U8, Array, EncoderSpec


class Encoder(Protocol):
    """A frozen visual encoder, which turns images into unit vectors.

    `besttake.testing.check_encoder` checks an implementation.
    """

    @property
    def spec(self) -> EncoderSpec:
        """The name, dimension and fingerprint of the encoder."""

    def encode(self, images: U8) -> F32:
        """Embed images, uint8 (B, H, W, 3), as L2-normalised float32 (B, dim). Row b may depend only on image b."""


@runtime_checkable
class Fitted(Protocol):
    """An encoder that is fitted to the library's own frames once, when the library is built, and stored in it."""

    def fit(self, images: U8) -> Encoder:
        """Return the encoder fitted to ``images``."""

    def arrays(self) -> Mapping[str, Array]:
        """Return the arrays from which `from_arrays` restores this encoder."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Restore an encoder from its `arrays`."""


def embeddings_of(encoder: Encoder, images: U8, caller: Callable[..., Any] | None = None) -> F32:
    """Embed images, through ``caller`` if given; ComponentError unless the result is a float32 (dim,) for each."""
    spec = encoder.spec
    with blaming(f"the encoder {spec.name}"):
        vectors = np.asarray(caller(encoder.encode, images) if caller else encoder.encode(images))
    if vectors.dtype.kind != "f" or vectors.shape != (len(images), spec.dim):
        raise ComponentError(
            f"the encoder {spec.name} gave {vectors.dtype} of shape {vectors.shape}, not float32"
            f" {(len(images), spec.dim)}"
        )
    return vectors.astype(np.float32, copy=False)


def check_images(images: U8) -> None:
    """ComponentError unless ``images`` are uint8 (B, H, W, 3)."""
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        raise ComponentError(f"an encoder takes uint8 (B, H, W, 3), not {images.dtype} {images.shape}")
