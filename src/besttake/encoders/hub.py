"""``hf:NAME`` and ``timm:NAME``: any vision model of the transformers or timm hub, or from a local directory.

Pooling: transformers' ``pooler_output`` where the checkpoint has one (many a classifier's does not, and the layer would
then be random), else the mean over its tokens or positions; timm's own pooled features (``num_classes=0``). Size, mean
and standard deviation come from the model's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from besttake.encoders.torch_common import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    TorchEncoder,
    Tower,
    hub_failure,
    random_weights,
)
from besttake.errors import ComponentError, need
from besttake.options import Reader


def make_hf(rest: str, *, revision: str | None = None, device: str = "auto", batch: str | int = 8) -> TorchEncoder:
    """A vision model loaded by ``transformers.AutoModel``; never runs code from the repository."""
    if not rest:
        raise ComponentError("hf: names no model; write hf:ORG/NAME or hf:DIRECTORY")
    images_at_once = Reader(f"hf:{rest}").whole("batch", batch)
    transformers = need("transformers", f"the encoder hf:{rest}")
    try:
        config = transformers.AutoConfig.from_pretrained(rest, revision=revision, trust_remote_code=False)
        settings = _processor_settings(rest, revision)
        model, info = transformers.AutoModel.from_pretrained(
            rest, revision=revision, output_loading_info=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise hub_failure(rest, error) from None
    prefix = ""
    if hasattr(config, "vision_config") and hasattr(model, "vision_model"):
        model, config, prefix = model.vision_model, config.vision_config, "vision_model."
    _without_random_weights(model, [key.removeprefix(prefix) for key in info["missing_keys"] if prefix in key], rest)
    size = _square(settings.get("crop_size") or settings.get("size")) or _square(getattr(config, "image_size", None))
    mean = tuple(settings.get("image_mean") or IMAGENET_MEAN)
    std = tuple(settings.get("image_std") or IMAGENET_STD)
    tower = Tower(
        rest, model.float(), lambda pixels: _pool(model, pixels, rest), size or 224, mean, std, "pooler or mean"
    )
    notes = () if revision or "/" not in rest else ("the revision is not pinned: add ?revision=COMMIT",)
    return TorchEncoder(f"hf:{rest}", (tower,), device=device, batch=images_at_once, notes=notes)


def make_timm(rest: str, *, weights: str | None = None, device: str = "auto", batch: str | int = 8) -> TorchEncoder:
    """A timm model with its pretrained weights, or with those in the safetensors file ``weights``."""
    if not rest:
        raise ComponentError("timm: names no model; write timm:NAME, e.g. timm:vit_small_patch14_dinov2")
    images_at_once = Reader(f"timm:{rest}").whole("batch", batch)
    _check_no_pickle(rest)
    timm = need("timm", f"the encoder timm:{rest}", "timm")
    # timm drops a classifier head that the file has and we do not ask for only on its way to "pretrained" weights.
    source = {} if weights is None else {"pretrained_cfg_overlay": {"file": weights}}
    if weights is not None and not weights.endswith(".safetensors"):
        raise ComponentError(f"timm:{rest}: weights={weights} must be a .safetensors file (no pickle is read)")
    try:
        model = timm.create_model(rest, pretrained=True, num_classes=0, **source)
    except (OSError, ValueError, RuntimeError) as error:
        raise hub_failure(f"timm:{rest}", error) from None
    settings = timm.data.resolve_model_data_config(model)
    tower = Tower(rest, model, model, settings["input_size"][-1], settings["mean"], settings["std"], "timm")
    return TorchEncoder(f"timm:{rest}", (tower,), device=device, batch=images_at_once)


def _check_no_pickle(rest: str) -> None:
    """ComponentError when timm would have to unpickle weights of a directory, which old versions do without a guard."""
    kind, _, place = rest.partition(":")
    if kind == "local-dir" and not (Path(place) / "model.safetensors").is_file():
        raise ComponentError(f"timm:{rest}: no model.safetensors in {place} (no pickle is read)")


def _pool(model: Any, pixels: Any, name: str) -> Any:
    try:
        out = model(pixel_values=pixels)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ComponentError(f"hf:{name}: a {type(model).__name__} does not encode pictures ({reason[:150]})") from None
    pooled = getattr(out, "pooler_output", None)
    if pooled is not None:
        return pooled.flatten(1)
    hidden = getattr(out, "last_hidden_state", None)
    if hidden is None:
        raise ComponentError(f"hf:{name}: its output has neither pooler_output nor last_hidden_state")
    return hidden.mean(dim=1) if hidden.ndim == 3 else hidden.flatten(2).mean(dim=2)


def _without_random_weights(model: Any, missing: list[str], name: str) -> None:
    """Leave out a pooler that the checkpoint has no weights for; anything else that is missing is an error."""
    if missing and all(key.startswith("pooler.") for key in missing):
        model.pooler = None
    elif missing:
        raise random_weights(name, missing)


def _processor_settings(name: str, revision: str | None) -> Mapping[str, Any]:
    """The checkpoint's preprocessor_config.json, which not every checkpoint has."""
    from transformers.image_processing_utils import BaseImageProcessor

    try:
        settings, _ = BaseImageProcessor.get_image_processor_dict(name, revision=revision)
    except OSError:
        return {}
    return dict(settings)


def _square(size: Any) -> int | None:
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge")
    if isinstance(size, list | tuple):
        size = size[0]
    return int(size) if size else None
