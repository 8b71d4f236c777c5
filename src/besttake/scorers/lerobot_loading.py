"""Load a saved reward model of LeRobot with the processors that LeRobot makes for it, from files of this machine.

All four classes hand ``trust_remote_code=True`` to transformers, for the checkpoint or for the model below it. So both
are searched for code first, and are then read from their directories without network: nothing else can be loaded.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from besttake import registry
from besttake.encoders.torch_common import random_weights
from besttake.errors import ComponentError, need, one_clear_error
from besttake.files import read_json
from besttake.policies.checkpoints import directory

FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja", "*.model")
BASE = {"reward_classifier": "model_name", "sarm": "", "robometer": "base_model_id", "topreward": "vlm_name"}
"""The families, each with the setting that names the model it stands on."""
_CLIP = "openai/clip-vit-base-patch32"
"""LeRobot's SARM always embeds pictures and words with this one."""
_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
_STATISTICS = "*preprocessor*normalizer_processor.safetensors"


@dataclass(frozen=True)
class Loaded:
    """A reward model, its settings, and the processor that LeRobot puts before it."""

    model: Any
    config: Any
    before: Any
    device: str


def read_config(uri: str, where: Path) -> dict[str, Any]:
    """The saved settings of a reward model; ComponentError where there is none of a known family."""
    try:
        saved = read_json(where / "config.json")
    except (OSError, ValueError):
        raise ComponentError(f"{uri}: no readable config.json in {where}; is it a saved reward model?") from None
    family = saved.get("type") if isinstance(saved, dict) else None
    if family not in BASE:
        raise ComponentError(f"{uri}: its config.json is of type {family!r}, not of a reward model ({', '.join(BASE)})")
    return dict(saved)


def base_of(uri: str, saved: dict[str, Any], given: str | None) -> Path | None:
    """The directory of the model that a reward model stands on: ``given``, else the one that it names."""
    key = BASE[saved["type"]]
    if not key:
        return None
    return local(uri, given or str(saved.get(key) or ""))


def local(uri: str, name: str) -> Path:
    """A directory, or a repository of the hub: from the cache if it is there, else downloaded."""
    if not Path(name).expanduser().is_dir():
        with contextlib.suppress(Exception):  # whatever keeps the cache from having it, the next line says
            kept = Path(need("huggingface_hub", uri, "lerobot").snapshot_download(name, local_files_only=True))
            if (kept / "config.json").is_file():
                return kept
    return directory(uri, name, None, FILES)


def check_no_code(*places: Path) -> None:
    """ComponentError where a file of a model names code to run, and nobody trusts it."""
    for file in (file for place in places for file in sorted(place.glob("*.json"))):
        try:
            content = read_json(file)
        except (OSError, ValueError):
            continue  # what needs it says so
        for key, value in _items(content):
            kernel = key.endswith("attn_implementation") and value is not None and value not in _ATTENTION
            if key == "auto_map" or kernel:
                registry.check_trusted(file, f"by {key}; `trust_remote_code` allows it")
    for place in places:
        if any(place.glob("*.bin")) and not any(place.glob("*.safetensors")):
            raise ComponentError(f"{place} holds weights as pickle only; save them as safetensors")


def _items(content: Any) -> Iterator[tuple[str, Any]]:
    """All keys of nested mappings, with their values."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield str(key), value
            yield from _items(value)
    elif isinstance(content, list):
        for value in content:
            yield from _items(value)


def load(uri: str, where: Path, base: Path | None, device: str | None, frames: int | None) -> Loaded:
    """The reward model in ``where`` on top of ``base``; ``frames`` is how many of a take it may see at most."""
    configs = need("lerobot.configs.rewards", uri, "lerobot")
    rewards = need("lerobot.rewards", uri, "lerobot")
    family = read_config(uri, where)["type"]
    check_no_code(*([where] if base is None else [where, base]))
    if family == "sarm":
        check_no_code(local(uri, _CLIP))
    # LeRobot prints while it loads; stdout belongs to our caller's answer.
    quiet = contextlib.redirect_stdout(sys.stderr)
    with one_clear_error(f"{uri}: cannot be loaded: {{}}"), quiet, _without_network():
        config = configs.RewardModelConfig.from_pretrained(where)
        if device:
            config.device = device
        if base is not None:
            setattr(config, BASE[family], str(base))
        if family == "robometer":
            config.pretrained_path = str(where)  # or it would load the weights below it, to overwrite them
        if frames is not None and hasattr(config, "max_frames"):
            config.max_frames = frames
        model = rewards.get_reward_model_class(family).from_pretrained(where, config=config)
        before, _ = rewards.make_reward_pre_post_processors(config, dataset_stats=_statistics(where))
    if family != "topreward":  # which has no weights of its own
        _check_weights(uri, model, where / "model.safetensors")
    for step in before.steps:
        if hasattr(step, "eval"):
            step.eval()  # SARM's would otherwise perturb what it sees, as in training
    model.eval().requires_grad_(False)
    return Loaded(model, config, before, str(config.device))


def _check_weights(uri: str, model: Any, path: Path) -> None:
    """ComponentError where the file lacks weights of the model: LeRobot would go on with random ones."""
    from safetensors import safe_open

    state = model.state_dict()
    with safe_open(str(path), framework="pt") as file:
        there = [state[key] for key in file.keys() if key in state]  # noqa: SIM118
    shared = {tensor.data_ptr() for tensor in there}  # a tensor with two names is saved under one
    missing = [key for key, tensor in state.items() if tensor.data_ptr() not in shared and tensor.is_floating_point()]
    if missing:
        raise random_weights(f"{uri}: {path.name}", missing)


def _statistics(where: Path) -> dict[str, dict[str, Any]] | None:
    """The statistics of the training data, which LeRobot saves with the processor but does not read back."""
    from safetensors.torch import load_file

    stats: dict[str, dict[str, Any]] = {}
    for file in sorted(where.glob(_STATISTICS)):
        for name, tensor in load_file(file).items():
            feature, _, kind = name.rpartition(".")
            stats.setdefault(feature, {})[kind] = tensor
    return stats or None


@contextlib.contextmanager
def _without_network() -> Iterator[None]:
    """No request to the hub meanwhile: all files are here, and only what was searched for code may be loaded."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
