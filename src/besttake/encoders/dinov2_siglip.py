"""``dinov2+siglip``: the paper's phi, 1536-d. Also ``dinov2`` and ``siglip`` alone.

DINOv2 ViT-B/14 gives its class token after the final layer norm: it is what DINOv2 is trained and evaluated with as
the picture's descriptor. SigLIP base/16 gives its attention-pooled output: SigLIP has no class token, and this is
the vector that its contrastive loss sees. 768 + 768 numbers, concatenated, then L2-normalised as one vector.

``dinov2+siglip:PATH_A,PATH_B`` reads both from local directories (or other repositories).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from besttake.encoders.torch_common import (
    HALF,
    IMAGENET_MEAN,
    IMAGENET_STD,
    TorchEncoder,
    Tower,
    hub_failure,
)
from besttake.errors import ComponentError, need
from besttake.options import Reader

DINOV2, DINOV2_REVISION = "facebook/dinov2-base", "f9e44c814b77203eaa57a6bdbbd535f21ede1415"
SIGLIP, SIGLIP_REVISION = "google/siglip-base-patch16-224", "7fd15f0689c79d79e38b1c2e2e2370a7bf2761ed"
SIZE = 224


def make(rest: str, *, device: str = "auto", batch: str | int = 8) -> TorchEncoder:
    """Both towers; ``rest`` is empty (the pinned checkpoints) or ``DINOV2,SIGLIP``."""
    names = rest.split(",") if rest else ["", ""]
    if len(names) != 2:
        raise ComponentError(f"dinov2+siglip:{rest}: write two checkpoints, dinov2+siglip:DINOV2,SIGLIP, or none")
    size = Reader("dinov2+siglip").whole("batch", batch)
    return TorchEncoder("dinov2+siglip", (_dinov2(names[0]), _siglip(names[1])), device=device, batch=size)


def make_dinov2(rest: str, *, device: str = "auto", batch: str | int = 8) -> TorchEncoder:
    """DINOv2 alone, from ``rest`` or the pinned checkpoint."""
    size = Reader("dinov2").whole("batch", batch)
    return TorchEncoder("dinov2", (_dinov2(rest),), device=device, batch=size)


def make_siglip(rest: str, *, device: str = "auto", batch: str | int = 8) -> TorchEncoder:
    """SigLIP's vision tower alone, from ``rest`` or the pinned checkpoint."""
    size = Reader("siglip").whole("batch", batch)
    return TorchEncoder("siglip", (_siglip(rest),), device=device, batch=size)


def _dinov2(name: str) -> Tower:
    transformers = need("transformers", "the encoder dinov2")
    model = _load(transformers.Dinov2Model, name or DINOV2, None if name else DINOV2_REVISION, ("dinov2",))
    return Tower("dinov2", model, _pooled(model, interpolate=False), SIZE, IMAGENET_MEAN, IMAGENET_STD, "class token")


def _siglip(name: str) -> Tower:
    transformers = need("transformers", "the encoder siglip")
    kinds = ("siglip", "siglip_vision_model")
    model = _load(transformers.SiglipVisionModel, name or SIGLIP, None if name else SIGLIP_REVISION, kinds)
    interpolate = int(model.config.image_size) != SIZE
    return Tower("siglip", model, _pooled(model, interpolate=interpolate), SIZE, HALF, HALF, "attention pooling")


def _pooled(model: Any, *, interpolate: bool) -> Callable[[Any], Any]:
    # DINOv2 always interpolates its position table to the size it is given; SigLIP must be told to.
    extra = {"interpolate_pos_encoding": True} if interpolate else {}
    return lambda pixels: model(pixel_values=pixels, **extra).pooler_output


def _load(kind: Any, name: str, revision: str | None, model_types: tuple[str, ...]) -> Any:
    """``name`` as a model of class ``kind``, in float32, with every one of its weights read from the checkpoint."""
    try:
        config = need("transformers", name).AutoConfig.from_pretrained(name, revision=revision)
    except (OSError, ValueError, KeyError) as error:
        raise hub_failure(name, error) from None
    if config.model_type not in model_types:
        raise ComponentError(f"{name} holds a {config.model_type} model where {model_types[0]} is needed")
    try:
        model, info = kind.from_pretrained(name, revision=revision, output_loading_info=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise hub_failure(name, error) from None
    if info["missing_keys"]:
        raise ComponentError(
            f"{name} lacks {len(info['missing_keys'])} weights, e.g. {min(info['missing_keys'])}: they would be random"
        )
    return model.float()
