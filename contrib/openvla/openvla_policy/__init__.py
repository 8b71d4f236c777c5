"""``openvla:ORG/NAME`` or ``openvla:DIRECTORY``: OpenVLA through its own ``predict_action``.

The model's code comes with the checkpoint, so loading one runs it: only with ``trust_remote_code``. Actions are
tokens, sampled at a temperature (0 is greedy, and then the policy is deterministic). Rows go one at a time, because
the model's own generation takes a batch of one; each row seeds torch from its draw.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from besttake.conventions import COMMANDS, OPENNESS, Convention, gripper_in
from besttake.conventions import Gripper as GripperCommand
from besttake.encoders.pretrained import pick_device
from besttake.errors import ComponentError, need, one_clear_error
from besttake.options import Reader
from besttake.policies.lerobot_checkpoint import DTYPES, digest, directory
from besttake.policies.remote import picture
from besttake.takes.draws import Draw
from besttake.types import F32, Observation, PolicySpec, Warm, Warms

PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
EMPTY_TOKEN = 29871  # the token OpenVLA was trained to see after "Out:"
_FILES = ("*.json", "*.safetensors", "*.py", "*.model")
_ARM_AND_GRIPPER = 7

Gripper = Literal["raw", "libero", "simpler"]


@dataclass(frozen=True)
class OpenvlaSettings:
    """How actions are drawn and read. ``gripper`` turns 0 closed .. 1 open into the commands of an env."""

    camera: str
    unnorm_key: str | None
    temperature: float
    crop: bool
    gripper: Gripper


def make(rest: str, *, trust_remote_code: str | bool = False, **options: Any) -> OpenvlaPolicy:
    """Build from a checkpoint; the options are documented in README.md."""
    if not rest:
        raise ComponentError("openvla: names no checkpoint; write openvla:ORG/NAME or openvla:DIRECTORY")
    read = Reader(f"openvla:{rest}")
    read.only(options, (*(field.name for field in fields(OpenvlaSettings)), "device", "revision", "dtype"))
    dtype = read.choice("dtype", options["dtype"], DTYPES) if "dtype" in options else None
    gripper: Gripper = read.choice("gripper", options.get("gripper", "raw"), get_args(Gripper))
    temperature = read.number("temperature", options.get("temperature", 1.0), least=0)
    crop = read.flag("crop", options.get("crop", False))
    camera, key = options.get("camera", "agentview"), options.get("unnorm_key")
    if not read.flag("trust_remote_code", trust_remote_code):
        raise ComponentError(f"{read.uri} runs code from its checkpoint: read it, then allow `trust_remote_code`")
    settings = OpenvlaSettings(camera, key, temperature, crop, gripper)
    return OpenvlaPolicy(rest, settings, options.get("device", "auto"), options.get("revision"), dtype)


class OpenvlaPolicy:
    """A loaded OpenVLA checkpoint behind the contract of `besttake.policies.base`."""

    def __init__(
        self, name: str, settings: OpenvlaSettings, device: str, revision: str | None, dtype: str | None = None
    ) -> None:
        self._name, self._settings, self._dtype = f"openvla:{name}", settings, dtype
        self._torch = need("torch", self._name)
        self._device = pick_device(self._torch, device)
        where = directory(self._name, name, revision, _FILES)
        refuse_oft(self._name, where)
        self._processor, self._model = self._load(str(where))
        stats = getattr(self._model, "norm_stats", None) or {}
        key = settings.unnorm_key or (next(iter(stats)) if len(stats) == 1 else None)
        if key not in stats:
            asked = f"unnorm_key={key} is not there" if key else "several data sets"
            known = ", ".join(stats) or "none"
            raise ComponentError(f"{self._name}: {asked}; choose with ?unnorm_key= one of: {known}")
        self._key = str(key)
        hot = settings.temperature > 0
        # Runs of earlier versions know this class as `Settings`.
        fingerprint = f"{digest(where, _FILES)}/{repr(settings).removeprefix('Openvla')}{f'/{dtype}' if dtype else ''}"
        notes = ("tokens: cooled is a lower temperature, and a warm start does not exist",)
        self.spec = PolicySpec(
            name=self._name, kind="tokens" if hot else "deterministic", horizon=1, replan=1,
            action_dim=int(self._model.get_action_dim(self._key)), cameras=(settings.camera,), cools=hot,
            fingerprint=fingerprint, notes=notes, convention=convention_of(stats[self._key], settings.gripper),
            prompted=True, turns_gripper=True,
        )  # fmt: skip

    def sample(self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Warms = None) -> F32:
        """One action per row, float32 (B, 1, action_dim)."""
        rows = [self._act(*row) for row in zip(observations, draws, warm or [None] * len(draws), strict=True)]
        return np.stack(rows)[:, None] if rows else np.empty((0, 1, self.spec.action_dim), np.float32)

    def _act(self, seen: Observation, draw: Draw, warm: Warm | None) -> F32:
        heat = self._temperature(warm)
        inputs = self._inputs(seen)
        sampling = {"do_sample": True, "temperature": heat} if heat > 0 else {"do_sample": False}
        devices = [self._device] if self._device.type == "cuda" else []
        with self._torch.random.fork_rng(devices=devices), self._torch.inference_mode():
            self._torch.manual_seed(draw.integer())
            predicted = self._model.predict_action(**inputs, unnorm_key=self._key, **sampling)
        action = np.asarray(predicted, np.float32).reshape(-1)
        if action.shape != (self.spec.action_dim,) or not np.isfinite(action).all():
            raise ComponentError(f"{self._name}: predicted {action}, not {self.spec.action_dim} finite numbers")
        if self._settings.gripper in COMMANDS:
            action[-1:] = COMMANDS[self._settings.gripper].command(action[-1:])
        return action

    def _temperature(self, warm: Warm | None) -> float:
        if warm is None:
            return self._settings.temperature
        if warm.chunk is not None or not self.spec.cools:
            why = "a token policy cannot be warm-started" if warm.chunk is not None else "greedy: nothing to cool"
            raise ComponentError(f"{self._name}: {why}")
        return self._settings.temperature * warm.noise

    def _inputs(self, seen: Observation) -> dict[str, Any]:
        from PIL import Image

        image = Image.fromarray(picture(seen, self._settings.camera, self._name))
        if self._settings.crop:
            image = _central(image)
        inputs = self._processor(PROMPT.format(instruction=seen.instruction.lower()), image)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        if int(ids[0, -1]) != EMPTY_TOKEN:
            # predict_action would add the token to the ids alone and leave the mask one short.
            ids = self._torch.cat([ids, ids.new_full((1, 1), EMPTY_TOKEN)], dim=1)
            mask = self._torch.cat([mask, mask.new_ones((1, 1))], dim=1)
        pixels = inputs["pixel_values"].to(self._device, self._model.dtype)
        return {"input_ids": ids.to(self._device), "attention_mask": mask.to(self._device), "pixel_values": pixels}

    def _load(self, where: str) -> tuple[Any, Any]:
        transformers = need("transformers", self._name)
        kind = getattr(transformers, "AutoModelForVision2Seq", None)
        if kind is None:
            here = transformers.__version__
            why = f"OpenVLA's code was written for transformers 4.40.1, this is {here}"
            raise ComponentError(f"{self._name}: {why}; install the plug-in in an environment of its own")
        dtype = getattr(self._torch, self._dtype or ("float32" if self._device.type == "cpu" else "bfloat16"))
        with one_clear_error(f"{self._name}: cannot be loaded: {{}}"), contextlib.redirect_stdout(sys.stderr):
            processor = transformers.AutoProcessor.from_pretrained(where, trust_remote_code=True)
            model = kind.from_pretrained(where, trust_remote_code=True, torch_dtype=dtype)
        if not hasattr(model, "predict_action"):
            raise ComponentError(f"{self._name}: a {type(model).__name__}, which has no predict_action; not an OpenVLA")
        return processor, model.to(self._device).eval()


def refuse_oft(uri: str, where: Path) -> None:
    """ComponentError for an OpenVLA-OFT: its actions come from a head beside the model, not from the model's tokens."""
    code = where / "modeling_prismatic.py"
    if any(where.glob("action_head--*")) or (code.is_file() and "action_head" in code.read_text(errors="replace")):
        raise ComponentError(
            f"{uri}: an OpenVLA-OFT; serve it with vla-eval's OFT server and name it vla-eval:ws://host:port"
            " (docs/policies.md, OpenVLA-OFT)"
        )


def convention_of(stats: Mapping[str, Any], gripper: Gripper) -> Convention:
    """What the gripper of its actions means, by the statistics of the data that it was trained on.

    0 to 1 is how open it is, as in all data sets that OpenVLA's own code prepares.
    """
    if gripper in COMMANDS:
        return Convention(COMMANDS[gripper])
    kept = stats.get("action", {})
    ends = next(((kept[low], kept[high]) for low, high in (("min", "max"), ("q01", "q99")) if low in kept), ((), ()))
    ranges = list(zip(*ends, strict=False))
    known = gripper_in(ranges, -1) if len(ranges) == _ARM_AND_GRIPPER else None
    return Convention(OPENNESS if known == GripperCommand(0, 1) else known)


def _central(image: Any) -> Any:
    """The central 90 % of the area at the old size, as OpenVLA's fine-tuned checkpoints expect."""
    side = 0.9**0.5
    width, height = image.size
    left, top = (1 - side) / 2 * width, (1 - side) / 2 * height
    return image.resize((width, height), 2, box=(left, top, width - left, height - top))
