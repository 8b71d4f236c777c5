"""Load a LeRobot checkpoint from disk or hub, with its saved processors, and check that its weights were read."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from besttake import registry
from besttake.conventions import Convention, Gripper, action_in, gripper_by_moments, gripper_in, state_in
from besttake.errors import ComponentError, need, one_clear_error, one_line
from besttake.files import read_json, sha256_of, short_hash
from besttake.policies.lerobot_families import turned_gripper

_FILES = ("*.json", "*.safetensors")
_WEIGHTS = "model.safetensors"
_PROCESSORS = ("policy_preprocessor.json", "policy_postprocessor.json")
_SAMPLED_TENSORS = 16
_OWN_STEPS = re.compile(r"lerobot\.(processor|policies)\.[\w.]+\.[A-Z]\w*Step")
"""Classes that a saved processor may name, because LeRobot imports and calls any class that it finds there."""

_RUNS_NO_CODE = (
    *("act", "diffusion", "eo1", "evo1", "fastwam", "gaussian_actor", "molmoact2", "multi_task_dit", "pi0", "pi05"),
    *("smolvla", "tdmpc", "vla_jepa", "vqbet", "wall_x", "xvla"),
)
"""Families that load nothing with transformers' ``trust_remote_code``; groot and pi0_fast do so unasked."""

_RUNS_CODE_OF = {"gaussian_actor": "vision_encoder_name"}
"""The setting that makes a family load what it names with ``trust_remote_code``."""

_STEPS = ("num_inference_steps", "num_steps", "num_denoise_steps", "num_denoising_steps", "num_inference_timesteps")
"""Names of the setting for the number of denoising steps."""

_ARM_AND_GRIPPER = 7
"""The last of this many numbers of an action is the gripper."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded policy with its own processors, ``before`` and ``after`` the model, and the context to sample ``under``.

    ``computes`` is the precision for the fingerprint; empty if it is the checkpoint's own.
    """

    name: str
    family: str
    policy: Any
    config: Any
    before: Any
    after: Any
    fingerprint: str
    under: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    computes: str = ""


@dataclass(frozen=True)
class LoadOptions:
    """The user's settings for a checkpoint; None leaves one as saved. ``steps`` are of denoising, ``temperature`` is of
    tokens."""

    revision: str | None = None
    device: str | None = None
    steps: int | None = None
    temperature: float | None = None
    dtype: str | None = None


def load(name: str, options: LoadOptions, *, trust_remote_code: bool = False) -> Checkpoint:
    """Load the checkpoint ``name``, a directory or a repository of the hub.

    It may run code that it names only with ``trust_remote_code``.
    """
    configs = need("lerobot.configs.policies", f"lerobot:{name}", "lerobot")
    factory = need("lerobot.policies.factory", f"lerobot:{name}", "lerobot")
    where = directory(f"lerobot:{name}", name, options.revision, _FILES)
    family = _family(where, name)
    if trust_remote_code:
        registry.trust(Path(where))
    check_family(where, family)
    check_processors(where)
    # LeRobot prints while it loads; stdout is for our results.
    with one_clear_error(f"lerobot:{name}: cannot be loaded: {{}}"), contextlib.redirect_stdout(sys.stderr):
        config = configs.PreTrainedConfig.from_pretrained(where)
        _configure(config, options, name)
        under = settle_dtype(config, options.dtype, name)
        policy = factory.get_policy_class(family).from_pretrained(where, config=config)
        # This machine may lack the device that was saved.
        device_here = {"device_processor": {"device": str(config.device)}}
        before, after = factory.make_pre_post_processors(
            config, pretrained_path=str(where), preprocessor_overrides=device_here
        )
    _check_weights(policy, where / _WEIGHTS, name)
    for step in before.steps:
        if hasattr(step, "tokenizer_name") and hasattr(step, "padding"):
            # With "longest", a row's tokens would depend on the other instructions in its batch.
            step.padding = "max_length"
    policy.eval().requires_grad_(False)
    if options.dtype == "float32":
        policy.float()
    precision = options.dtype or ("amp" if config.use_amp else "")
    computes = f"/{precision}" if precision else ""
    return Checkpoint(name, family, policy, config, before, after, digest(where, _FILES), under, computes)


def trained_on(checkpoint: Checkpoint) -> Convention:
    """The conventions of the training data, judged by the statistics with which the preprocessor normalises."""
    config, ranges = checkpoint.config, {key: _ranges(checkpoint, key) for key in ("observation.state", "action")}
    if getattr(config, "use_relative_actions", False):
        ranges["action"] = []
    actions = ranges["action"]
    gripper = gripper_in(actions, -1) if len(actions) == _ARM_AND_GRIPPER else None
    if not actions and not getattr(config, "use_relative_actions", False):
        gripper = _gripper_by_moments(checkpoint)
    if turned := turned_gripper(config):
        gripper = replace(turned[1], open=None)  # whether 1 means open or closed is unknown
    return Convention(gripper, state_in(ranges["observation.state"]), action_in(actions))


def _statistics(checkpoint: Checkpoint, key: str, names: Sequence[str]) -> list[list[float]]:
    """The statistics ``names`` of a feature from the first processor step that has all of them; else empty."""
    for step in checkpoint.before.steps:
        stats = (getattr(step, "stats", None) or {}).get(key) or {}
        if all(name in stats for name in names):
            return [np.asarray(stats[name], np.float64).ravel().tolist() for name in names]
    return []


def _gripper_by_moments(checkpoint: Checkpoint) -> Gripper | None:
    """The gripper convention by mean and standard deviation, all that older checkpoints keep."""
    means, sds = _statistics(checkpoint, "action", ("mean", "std")) or [[], []]
    return gripper_by_moments(means[-1], sds[-1]) if len(means) == len(sds) == _ARM_AND_GRIPPER else None


def _ranges(checkpoint: Checkpoint, key: str) -> list[tuple[float, float]]:
    """The range of each number of a feature, or its outer quantiles; empty if the checkpoint has neither."""
    config = checkpoint.config
    feature = {**(config.input_features or {}), **(config.output_features or {})}.get(key)
    ends = _statistics(checkpoint, key, ("min", "max")) or _statistics(checkpoint, key, ("q01", "q99")) or [[], []]
    # EVO-1 pads its statistics to the width of its network.
    return list(zip(*ends, strict=True))[: None if feature is None else int(feature.shape[0])]


def _family(where: Path, name: str) -> str:
    try:
        saved = read_json(where / "config.json")
    except (OSError, ValueError):
        raise ComponentError(f"lerobot:{name}: no readable config.json in {where}; is it a saved policy?") from None
    if not isinstance(saved, dict) or not isinstance(saved.get("type"), str):
        kind = saved.get("model_type") if isinstance(saved, dict) else None
        hint = f"it holds a transformers model ({kind})" if kind else "its config.json names no policy type"
        raise ComponentError(f"lerobot:{name}: not a LeRobot policy, {hint}")
    if saved["type"] == "lingbot_va":  # reset for each row, it would silently play other actions than LeRobot
        raise ComponentError(
            f"lerobot:{name}: a lingbot_va policy remembers its whole episode, and rows here have no history; "
            "play it with lerobot-eval and read its outcomes with `besttake ingest`"
        )
    if saved["type"] == "wall_x" and saved.get("prediction_mode") == "fast":
        raise ComponentError(
            f"lerobot:{name}: LeRobot 0.6.1 cannot act by WALL-X's tokens (prediction_mode=fast), its own call raises; "
            "use a checkpoint of its flow head (prediction_mode=diffusion)"
        )
    if saved.get("use_peft") or (where / "adapter_config.json").exists():
        raise ComponentError(f"lerobot:{name}: a PEFT adapter; merge it into its base policy and save that")
    missing = [file for file in (_WEIGHTS, *_PROCESSORS) if not (where / file).exists()]
    if missing:
        hint = "convert it with LeRobot's migrate_policy_normalization" if missing[0] != _WEIGHTS else "save it again"
        raise ComponentError(f"lerobot:{name}: {', '.join(missing)} not in the checkpoint; {hint}")
    return str(saved["type"])


def check_family(where: Path, family: str) -> None:
    """ComponentError if a family may run code that the checkpoint names, and the user does not trust it."""
    named = _RUNS_CODE_OF.get(family, "")
    if named and read_json(where / "config.json").get(named):
        registry.check_trusted(where / "config.json", f"by {named} of a {family} policy; `trust_remote_code` allows it")
    if family not in _RUNS_NO_CODE:
        registry.check_trusted(where / "config.json", f"by a {family} policy; `trust_remote_code` allows it")


def check_processors(where: Path) -> None:
    """Raise ComponentError if a saved processor cannot be read, or would run code that is not LeRobot's or trusted."""
    for file in (where / each for each in _PROCESSORS):
        try:
            steps = read_json(file)["steps"]
            classes = [str(step["class"]) for step in steps if "registry_name" not in step]
            states = [str(step["state_file"]) for step in steps if step.get("state_file")]
            remote = [str(step.get("registry_name")) for step in steps if _loads_code(step)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ComponentError(f"{file} cannot be read ({one_line(error, 100)}); save the policy again") from None
        for path in classes:
            if not _OWN_STEPS.fullmatch(path):
                registry.check_trusted(file, path)
        for step in remote:
            registry.check_trusted(file, f"by the step {step}")
        for path in states:
            if Path(path).name != path:
                raise ComponentError(f"{file} names the file {path}, which lies outside the checkpoint")


def _loads_code(step: dict[str, Any]) -> bool:
    """Whether a step passes ``trust_remote_code`` to transformers; the action tokenizer's does so by default."""
    config = step.get("config") or {}
    return step.get("registry_name") == "action_tokenizer_processor" or "trust_remote_code" in config


def _configure(config: Any, options: LoadOptions, name: str) -> None:
    """Change the settings that the training run left in the config to those of the user and of a diagnosis."""
    steps, temperature = options.steps, options.temperature
    if options.device:
        config.device = options.device
    for flag in ("compile_model", "load_vlm_weights"):
        # Compiling takes minutes; the VLM's own weights would be overwritten by the checkpoint's.
        if getattr(config, flag, False):
            setattr(config, flag, False)
    if getattr(config, "rtc_config", None) is not None:
        config.rtc_config = None  # real-time chunking needs the last chunk, and rows have no history
    if config.type == "molmoact2":
        # Its config must say which of its heads acts.
        only_tokens = config.action_mode == "discrete"
        config.inference_action_mode = "discrete" if only_tokens else config.inference_action_mode or "continuous"
    if steps is not None:
        key = steps_key(config)
        if key is None:
            raise ComponentError(
                f"lerobot:{name}: steps={steps}, but a {config.type} policy does not denoise, or has no setting for it"
            )
        setattr(config, key, steps)
    if temperature is not None:
        if not hasattr(config, "temperature"):
            raise ComponentError(f"lerobot:{name}: temperature={temperature:g}, but a {config.type} policy has none")
        config.temperature = temperature


def steps_key(config: Any) -> str | None:
    """The name of a config's setting for the number of denoising steps; None if it has none."""
    if getattr(config, "objective", "") == "flow_matching":
        return "num_integration_steps"
    return next((key for key in _STEPS if hasattr(config, key)), None)


def _check_weights(policy: Any, path: Path, name: str) -> None:
    """Compare some tensors with the file, because LeRobot's pi0 keeps random weights if it cannot read it."""
    import torch
    from safetensors import safe_open

    state = policy.state_dict()
    with safe_open(str(path), framework="pt") as file:
        names = {key: key if key in state else f"model.{key}" for key in file.keys()}  # noqa: SIM118
        known = sorted(key for key, name in names.items() if name in state)
        sampled = known[:: max(1, len(known) // _SAMPLED_TENSORS)]
        same = all(torch.equal(file.get_tensor(k).to(state[names[k]]), state[names[k]]) for k in sampled)
    if not same or len(known) < 0.9 * len(names):
        raise ComponentError(f"lerobot:{name}: the policy did not take the weights in {path.name}; is it of this type?")


DTYPES = ("float32", "bfloat16", "float16")
_OWN_SETTINGS = ("dtype", "torch_dtype", "model_dtype", "vlm_dtype", "use_bf16")
"""Names of the setting for a model's precision. A class without one runs under torch's autocast, except GR00T, which
would end it and has ``use_bf16`` instead."""

_FIXED = {"wall_x": "bfloat16"}
"""Classes whose own code computes in one precision only."""


def settle_dtype(config: Any, dtype: str | None, name: str) -> Callable[[], AbstractContextManager[Any]]:
    """Set ``dtype`` in a config; return the context to sample under, autocast if its class has no such setting.

    Without ``dtype``, a checkpoint that was saved with ``use_amp`` is sampled under autocast, as by lerobot-eval.
    """
    if dtype is None:
        return _autocast(config.device) if config.use_amp else nullcontext
    if config.type in _FIXED:
        fixed = _FIXED[config.type]
        if dtype != fixed:
            raise ComponentError(f"lerobot:{name}: dtype={dtype}: a {config.type} policy computes in {fixed} alone")
        return nullcontext
    key = next((key for key in _OWN_SETTINGS if hasattr(config, key)), None)
    if key is not None:
        if key in ("dtype", "use_bf16") and dtype == "float16":
            raise ComponentError(
                f"lerobot:{name}: dtype=float16: a {config.type} policy computes in float32 or bfloat16"
            )
        setattr(config, key, dtype == "bfloat16" if key == "use_bf16" else dtype)
        if key == "vlm_dtype":
            config.use_amp = dtype == "bfloat16"  # on CUDA this decides for EVO-1, whatever its weights are
        return nullcontext
    if dtype == "float32":
        return nullcontext
    return _autocast(config.device, dtype)


def _autocast(device: Any, dtype: str | None = None) -> Callable[[], AbstractContextManager[Any]]:
    import torch

    kind = str(device).partition(":")[0]
    return lambda: torch.autocast(kind, dtype=None if dtype is None else getattr(torch, dtype))


def directory(uri: str, name: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """The directory ``name``, or else the repository ``name`` downloaded from the hub; ``uri`` is for the message."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise ComponentError(f"{uri}: no such directory, and not a repository name (ORG/NAME)")
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the hub's client raises its own, requests', httpx' and plain OS errors
        reason = one_line(error, 200)
        raise ComponentError(f"{uri}: not a directory here, and not available from the hub ({reason})") from None


def digest(where: Path, patterns: Sequence[str]) -> str:
    """A hash of the names and contents of the files that match."""
    parts: list[str | bytes] = []
    for path in sorted(path for pattern in patterns for path in where.glob(pattern)):
        blob = path.resolve().name  # the hub's cache names large files by their sha256
        parts += [path.name, blob if len(blob) == 64 else bytes.fromhex(sha256_of(path))]
    return short_hash(*parts)
