"""The contract of an encoder."""

from __future__ import annotations

import numpy as np

from besttake.encoders.base import Encoder
from besttake.testing.compare import check, check_close
from besttake.types import U8


def check_encoder(encoder: Encoder, *, images: U8 | None = None, atol: float = 1e-5) -> tuple[str, ...]:
    """Check that ``encoder`` keeps the contract of `Encoder`, and return the names of the properties that hold.

    These are: embeddings have the right shape and length 1; the same images give the same embeddings; an image alone
    gives the same embedding as in a batch, within ``atol``; and there is a fingerprint.

    Args:
        encoder: The encoder to check.
        images: Images, uint8 (B, H, W, 3) (default: five random ones of 64 x 64).
        atol: Largest difference that a batch may make.

    Raises:
        ContractError: A property is violated.
    """
    spec = encoder.spec
    pictures = images if images is not None else np.random.default_rng(5).integers(0, 256, (5, 64, 64, 3), np.uint8)
    batch = encoder.encode(pictures)
    fits = batch.shape == (len(pictures), spec.dim) and batch.dtype == np.float32
    check(fits, f"{spec.name}: encode gave {batch.dtype} {batch.shape}, its spec says dim {spec.dim}")
    norms = np.linalg.norm(batch.astype(np.float64), axis=1)
    unit = np.allclose(norms, 1.0, atol=1e-5)
    check(unit, f"{spec.name}: embeddings are not unit vectors (norms {norms.min():.6f}..{norms.max():.6f})")
    check_close(batch, encoder.encode(pictures), 0.0, f"{spec.name}: the same images, another embedding")
    singles = np.concatenate([encoder.encode(pictures[i : i + 1]) for i in range(len(pictures))])
    check_close(batch, singles, atol, f"{spec.name}: an image alone differs from the image in a batch")
    check(spec.fingerprint, f"{spec.name}: the spec has no fingerprint, so caches could not tell it from another")
    return ("shape", "unit", "repeat", "batch", "fingerprint")
