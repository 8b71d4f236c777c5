"""Code shared by the torch encoders: device, preprocessing, batched forward pass and fingerprint.

Preprocessing is our own and small (PIL bicubic to a square, scale, normalise) so that it needs no torchvision and is
part of the fingerprint. The whole frame is squeezed into the square: a centre crop would cut away the borders where
a gripper often is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from besttake.encoders.base import check_images
from besttake.errors import ComponentError, need
from besttake.types import F32, U8, EncoderSpec

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Tower:
    """One vision model: ``forward`` takes float32 (B, 3, size, size) and gives (B, dim)."""

    name: str
    module: Any
    forward: Callable[[Any], Any]
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pooling: str


class TorchEncoder:
    """One or more towers side by side: features concatenated, then L2-normalised."""

    def __init__(
        self, name: str, towers: Sequence[Tower], *, device: str = "auto", batch: int = 8, notes: Sequence[str] = ()
    ) -> None:
        self._torch, self._towers = need("torch", name), tuple(towers)
        self._device = pick_device(self._torch, device)
        # A CPU gains nothing by a batch, and a group that is filled up would cost as much as a whole one.
        self._batch = 1 if self._device.type == "cpu" else batch
        digest = hashlib.sha256()
        for tower in self._towers:
            tower.module.eval().requires_grad_(False)
            digest.update(repr((tower.size, tower.mean, tower.std, tower.pooling)).encode())
            for key, tensor in sorted(tower.module.state_dict().items()):
                digest.update(key.encode())
                digest.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data)
            tower.module.to(self._device)
        width = sum(int(self._features(t, np.zeros((1, 8, 8, 3), np.uint8)).shape[1]) for t in self._towers)
        self.spec = EncoderSpec(name, width, digest.hexdigest()[:16], tuple(notes))

    def encode(self, images: U8) -> F32:
        """Uint8 (B, H, W, 3) to float32 (B, dim) unit vectors, ``batch`` images at a time (on a CPU one).

        The last group is padded: products of another shape round differently, and an embedding must have the same
        bits in any batch and any process.
        """
        check_images(images)
        out = np.empty((len(images), self.spec.dim), np.float32)
        for first in range(0, len(images), self._batch):
            part = images[first : first + self._batch]
            filled = np.concatenate([part, part[-1:].repeat(self._batch - len(part), axis=0)])
            features = np.concatenate([self._features(tower, filled)[: len(part)] for tower in self._towers], axis=1)
            out[first : first + len(part)] = features / np.linalg.norm(features, axis=1, keepdims=True)
        if not np.isfinite(out).all():
            raise ComponentError(f"{self.spec.name}: embeddings are not finite; are the weights damaged?")
        return out

    def _features(self, tower: Tower, images: U8) -> F32:
        pixels = self._torch.from_numpy(preprocess(images, tower.size, tower.mean, tower.std)).to(self._device)
        with self._torch.inference_mode():
            features: F32 = tower.forward(pixels).float().cpu().numpy()
        return features


def preprocess(images: U8, size: int, mean: Sequence[float], std: Sequence[float]) -> F32:
    """Uint8 (B, H, W, 3) to float32 (B, 3, size, size): bicubic resize, scale to 0..1, normalise."""
    from PIL import Image

    # Pillow gives back a picture of this size as it is.
    squares = [Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC) for image in images]
    pixels = np.stack([np.asarray(square) for square in squares]).astype(np.float32) / np.float32(255)
    normal = (pixels - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    return np.ascontiguousarray(normal.transpose(0, 3, 1, 2))


def pick_device(torch: Any, device: str) -> Any:
    """Choose a torch device: ``auto`` is CUDA, else MPS, else CPU; ComponentError if it is not available."""
    devices = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(name for name, usable in devices.items() if usable))
    if not devices.get(device.partition(":")[0], False):
        here = ", ".join(name for name, usable in devices.items() if usable)
        raise ComponentError(f"device={device} is not available; this machine has: {here}")
    return torch.device(device)


def hub_failure(name: str, error: Exception) -> ComponentError:
    """A one-line error for a checkpoint that cannot be loaded."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return ComponentError(f"cannot load {name}: {reason[:200]}; give a local directory, or check network and name")


def random_weights(name: str, missing: Sequence[str]) -> ComponentError:
    """The error for a checkpoint that lacks weights, which would stay random."""
    return ComponentError(f"{name} lacks {len(missing)} weights, e.g. {min(missing)}: they would be random")
