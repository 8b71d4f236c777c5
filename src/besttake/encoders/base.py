"""The contract of an encoder phi. Check yours with ``besttake.testing.check_encoder``."""

from __future__ import annotations

from collections.abc import Mapping
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
        """The encoder fitted to ``images``."""

    def arrays(self) -> Mapping[str, Array]:
        """The arrays from which `from_arrays` restores this encoder."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self:
        """Restore an encoder from its `arrays`."""


def embed_images(encoder: Encoder, images: U8) -> F32:
    """The embeddings (B, dim) of ``images``; ComponentError where the encoder fails, or gives something else."""
    name, shape = encoder.spec.name, (len(images), encoder.spec.dim)
    with blaming(f"the encoder {name}"):
        made: Any = encoder.encode(images)
    if not isinstance(made, np.ndarray) or made.shape != shape or made.dtype.kind != "f":
        gave = f"{made.dtype} {made.shape}" if isinstance(made, np.ndarray) else f"a {type(made).__name__}"
        raise ComponentError(f"the encoder {name} gave {gave} for {len(images)} images, not float32 {shape}")
    return np.asarray(made, np.float32)


def check_images(images: U8) -> None:
    """ComponentError unless ``images`` are uint8 (B, H, W, 3)."""
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        raise ComponentError(f"an encoder takes uint8 (B, H, W, 3), not {images.dtype} {images.shape}")
