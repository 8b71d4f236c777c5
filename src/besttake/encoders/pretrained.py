"""Encoders with a pretrained network: ``dinov2+siglip``, the paper's phi.

``dinov2+siglip`` has 1536 dimensions; ``dinov2`` and ``siglip`` can be used alone. DINOv2 ViT-B/14 gives its class
token after the final layer norm, with which it is trained and evaluated. SigLIP base/16 has no class token and gives
its attention-pooled output, which its contrastive loss uses. The 768 + 768 numbers are concatenated and L2-normalised
as one vector. ``dinov2+siglip:PATH_A,PATH_B`` reads both from local directories (or other repositories).

Preprocessing is our own (PIL bicubic to a square, scale, normalise), so that it needs no torchvision and is part of the
fingerprint. The whole frame is squeezed into the square: a centre crop would cut off the borders, where a gripper often
is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from besttake.encoders.base import check_images
from besttake.errors import ComponentError, need
from besttake.options import Reader
from besttake.types import F32, U8, EncoderSpec

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)
DINOV2, DINOV2_REVISION = "facebook/dinov2-base", "f9e44c814b77203eaa57a6bdbbd535f21ede1415"
SIGLIP, SIGLIP_REVISION = "google/siglip-base-patch16-224", "7fd15f0689c79d79e38b1c2e2e2370a7bf2761ed"
SIZE = 224


@dataclass(frozen=True)
class Tower:
    """One vision model: ``forward`` takes float32 (B, 3, size, size) and gives (B, dim)."""

    module: Any
    forward: Callable[[Any], Any]
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pooling: str


class TorchEncoder:
    """Concatenates the features of one or more towers and L2-normalises them."""

    def __init__(self, name: str, towers: Sequence[Tower], *, device: str, batch: str | int) -> None:
        self._torch, self._towers = need("torch", name), tuple(towers)
        self._device = pick_device(self._torch, device)
        # On a CPU a batch gains nothing, and a padded group costs as much as a full one.
        size = Reader(name).whole("batch", batch)
        self._batch = 1 if self._device.type == "cpu" else size
        digest = hashlib.sha256()
        for tower in self._towers:
            tower.module.eval().requires_grad_(False)
            digest.update(repr((tower.size, tower.mean, tower.std, tower.pooling)).encode())
            for key, tensor in sorted(tower.module.state_dict().items()):
                digest.update(key.encode())
                digest.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data)
            tower.module.to(self._device)
        width = sum(int(self._features(t, np.zeros((1, 8, 8, 3), np.uint8)).shape[1]) for t in self._towers)
        self.spec = EncoderSpec(name, width, digest.hexdigest()[:16])

    def encode(self, images: U8) -> F32:
        """Uint8 (B, H, W, 3) to float32 (B, dim) unit vectors, ``batch`` images at a time (on a CPU one).

        The last group is padded, because products of another shape round differently, and an embedding must have the
        same bits in any batch and any process.
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


def missing_weights_error(name: str, missing: Sequence[str]) -> ComponentError:
    """The error for a checkpoint that lacks weights, which would stay random."""
    return ComponentError(f"{name} lacks {len(missing)} weights, e.g. {min(missing)}: they would be random")


def _make_towers(name: str, rest: str, *, device: str = "auto", batch: str | int = 8) -> TorchEncoder:
    """Load the towers of ``name`` from the checkpoints in ``rest``, or the pinned ones if it is empty."""
    kinds = name.split("+")
    checkpoints = rest.split(",") if rest and len(kinds) > 1 else [rest] * len(kinds)
    if len(checkpoints) != len(kinds):
        raise ComponentError(f"dinov2+siglip:{rest}: write two checkpoints, dinov2+siglip:DINOV2,SIGLIP, or none")
    towers = [
        _dinov2(each) if kind == "dinov2" else _siglip(each) for kind, each in zip(kinds, checkpoints, strict=True)
    ]
    return TorchEncoder(name, towers, device=device, batch=batch)


make, make_dinov2, make_siglip = (partial(_make_towers, name) for name in ("dinov2+siglip", "dinov2", "siglip"))


def _dinov2(name: str) -> Tower:
    transformers = need("transformers", "the encoder dinov2")
    model = _load(transformers.Dinov2Model, name or DINOV2, None if name else DINOV2_REVISION, ("dinov2",))
    return Tower(model, _pooled(model), SIZE, IMAGENET_MEAN, IMAGENET_STD, "class token")


def _siglip(name: str) -> Tower:
    transformers = need("transformers", "the encoder siglip")
    kinds = ("siglip", "siglip_vision_model")
    model = _load(transformers.SiglipVisionModel, name or SIGLIP, None if name else SIGLIP_REVISION, kinds)
    # DINOv2 always interpolates its position table to the size of the input; SigLIP only on request.
    extra = {} if int(model.config.image_size) == SIZE else {"interpolate_pos_encoding": True}
    return Tower(model, _pooled(model, **extra), SIZE, HALF, HALF, "attention pooling")


def _pooled(model: Any, **extra: bool) -> Callable[[Any], Any]:
    return lambda pixels: model(pixel_values=pixels, **extra).pooler_output


def _load(kind: Any, name: str, revision: str | None, model_types: tuple[str, ...]) -> Any:
    """Load ``name`` as a model of class ``kind`` in float32, with every weight from the checkpoint."""
    try:
        config = need("transformers", name).AutoConfig.from_pretrained(name, revision=revision)
        if config.model_type not in model_types:
            raise ComponentError(f"{name} holds a {config.model_type} model where {model_types[0]} is needed")
        model, info = kind.from_pretrained(name, revision=revision, output_loading_info=True)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        hint = "give a local directory, or check network and name"
        raise ComponentError(f"cannot load {name}: {reason[:200]}; {hint}") from None
    if info["missing_keys"]:
        raise missing_weights_error(name, info["missing_keys"])
    return model.float()
