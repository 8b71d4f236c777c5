"""``dinov2+siglip``: the paper's phi, 1536-d. Also ``dinov2`` and ``siglip`` alone.

DINOv2 ViT-B/14 gives its class token after the final layer norm: it is what DINOv2 is trained and evaluated with as
the picture's descriptor. SigLIP base/16 gives its attention-pooled output: SigLIP has no class token, and this is
the vector that its contrastive loss sees. 768 + 768 numbers, concatenated, then L2-normalised as one vector.

``dinov2+siglip:PATH_A,PATH_B`` reads both from local directories (or other repositories).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from besttake.encoders.torch_common import (
    HALF,
    IMAGENET_MEAN,
    IMAGENET_STD,
    TorchEncoder,
    Tower,
    hub_failure,
    random_weights,
)
from besttake.errors import ComponentError, need
from besttake.options import Reader

DINOV2, DINOV2_REVISION = "facebook/dinov2-base", "f9e44c814b77203eaa57a6bdbbd535f21ede1415"
SIGLIP, SIGLIP_REVISION = "google/siglip-base-patch16-224", "7fd15f0689c79d79e38b1c2e2e2370a7bf2761ed"
SIZE = 224


def _make(name: str, rest: str, *, device: str = "auto", batch: str | int = 8) -> TorchEncoder:
    """The towers of ``name``, from the checkpoints in ``rest`` or, where it is empty, from the pinned ones."""
    kinds = name.split("+")
    checkpoints = rest.split(",") if rest and len(kinds) > 1 else [rest] * len(kinds)
    if len(checkpoints) != len(kinds):
        raise ComponentError(f"dinov2+siglip:{rest}: write two checkpoints, dinov2+siglip:DINOV2,SIGLIP, or none")
    size = Reader(name).whole("batch", batch)
    towers = [
        _dinov2(each) if kind == "dinov2" else _siglip(each) for kind, each in zip(kinds, checkpoints, strict=True)
    ]
    return TorchEncoder(name, towers, device=device, batch=size)


make, make_dinov2, make_siglip = (partial(_make, name) for name in ("dinov2+siglip", "dinov2", "siglip"))


def _dinov2(name: str) -> Tower:
    transformers = need("transformers", "the encoder dinov2")
    model = _load(transformers.Dinov2Model, name or DINOV2, None if name else DINOV2_REVISION, ("dinov2",))
    return Tower("dinov2", model, _pooled(model), SIZE, IMAGENET_MEAN, IMAGENET_STD, "class token")


def _siglip(name: str) -> Tower:
    transformers = need("transformers", "the encoder siglip")
    kinds = ("siglip", "siglip_vision_model")
    model = _load(transformers.SiglipVisionModel, name or SIGLIP, None if name else SIGLIP_REVISION, kinds)
    # DINOv2 always interpolates its position table to the size it is given; SigLIP only on request.
    extra = {} if int(model.config.image_size) == SIZE else {"interpolate_pos_encoding": True}
    return Tower("siglip", model, _pooled(model, **extra), SIZE, HALF, HALF, "attention pooling")


def _pooled(model: Any, **extra: bool) -> Callable[[Any], Any]:
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
        raise random_weights(name, info["missing_keys"])
    return model.float()
