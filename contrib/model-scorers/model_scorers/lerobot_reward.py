"""``lerobot-reward:DIR``: a reward model of LeRobot as scorer, fed what LeRobot itself feeds it.

| family | what it sees of a window | its score |
| --- | --- | --- |
| ``reward_classifier`` | the last frame | the probability of success (LeRobot's reward is whether it exceeds a half) |
| ``sarm`` | frames and states at its own steps before and after the last frame, as far as the window goes | progress |
| ``robometer`` | four frames, evenly spaced (``frames``) | its reward: progress, 0 to 1, or success, 0 or 1 |
| ``topreward`` | all frames, evenly thinned to its own limit (``frames``) | log P("True"), as LeRobot's reward |

A take is scored at the end of each window, window by window, so that no score depends on the batch.

All four classes pass ``trust_remote_code=True`` to transformers, for the checkpoint or for the model below it. So both
are searched for code first, and are then read from their directories without network: nothing else can be loaded.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake import registry
from besttake.demos.library import View
from besttake.encoders.pretrained import missing_weights_error
from besttake.errors import ComponentError, need, one_clear_error
from besttake.files import read_json
from besttake.options import Reader
from besttake.policies.lerobot_checkpoint import digest, directory
from besttake.scorers.base import Footage, Reads, Score, ScorerSpec

Rows = NDArray[np.int64]
_READS: dict[str, tuple[Reads, ...]] = {
    "reward_classifier": ("frames",),
    "sarm": ("frames", "states", "instruction"),
    "robometer": ("frames", "instruction"),
    "topreward": ("frames", "instruction"),
}
_ROBOMETER_FRAMES = 4
"""The number of frames that LeRobot's own tool and Robometer's server use."""


class RewardModel:
    """A saved reward model. It is loaded at the first call, so that reading its spec is cheap."""

    def __init__(
        self, uri: str, where: Path, *, base: Path | None, device: str | None, frames: int | None, head: str,
        name: str | None,
    ) -> None:  # fmt: skip
        saved = read_config(uri, where)
        self.family = str(saved["type"])
        if frames is None and self.family == "robometer":
            frames = _ROBOMETER_FRAMES
        self._uri, self._where, self._base, self._device = uri, where, base, device
        self._frames, self._head = frames, head
        below = digest(base, FILES) if base is not None else ""
        two = self.family == "reward_classifier" and saved.get("num_classes", 2) == 2
        self.spec = ScorerSpec(
            name or f"{self.family} {where.resolve().name}",
            reads=_READS[self.family],
            fingerprint=f"lerobot-reward 1 {digest(where, FILES)} {below} {frames} {head}",
            probability=two,
        )  # fmt: skip

    @cached_property
    def loaded(self) -> Loaded:
        """The model in memory."""
        return load(self._uri, self._where, self._base, self._device, self._frames)

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """The value at the end of each window; windows that end with the same frame are asked about once."""
        value = _VALUES[self.family]
        scores = []
        for take in takes:
            known: dict[int, float] = {0: float("nan")}
            counts = [int(window.sum()) for window in take.windows]
            for count in counts:
                if count not in known:
                    known[count] = value(self, take, np.arange(count))
            scores.append(Score([known[count] for count in counts]))
        return scores

    def classified(self, take: Footage, rows: Rows) -> float:
        """Return the probability that the last frame shows success; of several classes, the number of the likeliest."""
        key = image_key(self._uri, self.loaded.config)
        size = self.loaded.config.input_features[key].shape[-2:]
        batch = self.loaded.before({key: _pictures(take, rows[-1:], size)})
        if self.loaded.config.num_classes == 2:
            return float(self.loaded.model.predict([batch[key]]).probabilities[0])
        return float(self.loaded.model.compute_reward(batch)[0])

    def staged(self, take: Footage, rows: Rows) -> float:
        """SARM's progress at the last frame, as `lerobot.rewards.sarm.compute_rabc_weights` computes it."""
        assert take.states is not None
        config = self.loaded.config
        seen = rows_at(take.steps, rows, config.observation_delta_indices)
        states = _torch().as_tensor(take.states[take.steps[seen]])
        batch = self.loaded.before({
            config.image_key: _pictures(take, seen), config.state_key: states,
            "task": take.instruction or "", "index": 0, "episode_index": 0,
        })  # fmt: skip
        progress = self.loaded.model.calculate_rewards(
            text_embeddings=batch["text_features"], video_embeddings=batch["video_features"],
            state_features=batch["state_features"], lengths=batch["lengths"], return_all_frames=True,
            head_mode=self._head,
        )  # fmt: skip
        return float(np.asarray(progress)[0, config.n_obs_steps // 2])

    def filmed(self, take: Footage, rows: Rows) -> float:
        """Return the reward of the window as a video, evenly thinned."""
        config = self.loaded.config
        count = config.max_frames or len(rows)
        if self.family == "topreward":  # Robometer sees a frame twice where there are too few
            count = min(len(rows), count)
        seen = rows[np.linspace(0, len(rows) - 1, count).round().astype(int)]
        batch = self.loaded.before({config.image_key: _pictures(take, seen)[None], "task": take.instruction or ""})
        return float(self.loaded.model.compute_reward(batch)[0])


_VALUES: dict[str, Callable[[RewardModel, Footage, Rows], float]] = {
    "reward_classifier": RewardModel.classified,
    "sarm": RewardModel.staged,
    "robometer": RewardModel.filmed,
    "topreward": RewardModel.filmed,
}


def rows_at(steps: NDArray[np.int32], rows: Rows, deltas: Sequence[int]) -> Rows:
    """Return, for each of ``deltas``, the row whose step is nearest to the last step plus that delta."""
    there = steps[rows].astype(np.int64)
    wanted = np.clip(there[-1] + np.asarray(deltas, np.int64), there[0], there[-1])
    nearest: Rows = np.abs(there[None] - wanted[:, None]).argmin(axis=1)
    return rows[nearest]


def image_key(uri: str, config: Any) -> str:
    """The one picture that a classifier looks at."""
    keys = [key for key in config.input_features if key.startswith("observation.image")]
    if len(keys) != 1:
        raise ComponentError(f"{uri}: it looks at {len(keys)} cameras ({', '.join(keys)}); takes keep pictures of one")
    return str(keys[0])


def _pictures(take: Footage, rows: Rows, size: Sequence[int] | None = None) -> Any:
    """The frames of ``rows`` as LeRobot's data sets give them: float32 (T, 3, H, W), 0 to 1; resized to ``size``."""
    assert take.frames is not None
    torch = _torch()
    pixels = torch.from_numpy(np.ascontiguousarray(take.frames[rows].transpose(0, 3, 1, 2))).float() / 255
    if size is None or tuple(size) == tuple(pixels.shape[-2:]):
        return pixels
    smooth = {"mode": "bilinear", "align_corners": False, "antialias": True}
    return torch.nn.functional.interpolate(pixels, tuple(size), **smooth).clamp(0, 1)


def _torch() -> Any:
    import torch

    return torch


def make(
    rest: str, *, base: str | None = None, device: str | None = None, frames: str | int | None = None,
    head: str = "sparse", name: str | None = None, trust_remote_code: str | bool = False,
) -> RewardModel:  # fmt: skip
    """The reward model in the directory ``rest``, or in that repository of the hub.

    ``base``: its base model, if it is stored elsewhere than its settings say; ``head`` of SARM.
    """
    uri = f"lerobot-reward:{rest}"
    read = Reader(uri)
    if not rest:
        raise ComponentError(f"{uri} names no reward model; write lerobot-reward:DIRECTORY or lerobot-reward:ORG/NAME")
    where = directory(uri, rest, None, FILES)
    saved = read_config(uri, where)
    key = BASE[saved["type"]]
    below = local(uri, base or str(saved.get(key) or "")) if key else None
    places = [where] if below is None else [where, below]
    if read.flag("trust_remote_code", trust_remote_code):
        registry.trust(*places)
    check_no_code(*places)
    return RewardModel(
        uri, where, base=below, device=device, frames=read.optional_whole("frames", frames, 1, 512),
        head=read.choice("head", head, ("sparse", "dense")), name=name,
    )  # fmt: skip


FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja", "*.model")
BASE = {"reward_classifier": "model_name", "sarm": "", "robometer": "base_model_id", "topreward": "vlm_name"}
"""The supported families, each with the setting that names its base model."""
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


def read_config(uri: str, where: Path) -> dict[str, Any]:
    """Read the saved settings of a reward model; ComponentError if it is not of a known family."""
    try:
        saved = read_json(where / "config.json")
    except (OSError, ValueError):
        raise ComponentError(f"{uri}: no readable config.json in {where}; is it a saved reward model?") from None
    family = saved.get("type") if isinstance(saved, dict) else None
    if family not in BASE:
        raise ComponentError(f"{uri}: its config.json is of type {family!r}, not of a reward model ({', '.join(BASE)})")
    return dict(saved)


def local(uri: str, name: str) -> Path:
    """A directory, or a repository of the hub: from the cache if it is there, else downloaded."""
    if not Path(name).expanduser().is_dir():
        with contextlib.suppress(Exception):  # whatever keeps the cache from having it, the next line says
            kept = Path(need("huggingface_hub", uri, "lerobot").snapshot_download(name, local_files_only=True))
            if (kept / "config.json").is_file():
                return kept
    return directory(uri, name, None, FILES)


def check_no_code(*places: Path) -> None:
    """Raise ComponentError if a file of a model names code to run that the user does not trust."""
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
    """Load the reward model in ``where`` on top of ``base``; it sees at most ``frames`` frames of a take."""
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
    return Loaded(model, config, before)


def _check_weights(uri: str, model: Any, path: Path) -> None:
    """Raise ComponentError if the file lacks weights of the model, which LeRobot would leave random."""
    from safetensors import safe_open

    state = model.state_dict()
    with safe_open(str(path), framework="pt") as file:
        there = [state[key] for key in file.keys() if key in state]  # noqa: SIM118
    shared = {tensor.data_ptr() for tensor in there}  # a tensor with two names is saved under one
    missing = [key for key, tensor in state.items() if tensor.data_ptr() not in shared and tensor.is_floating_point()]
    if missing:
        raise missing_weights_error(f"{uri}: {path.name}", missing)


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
    """Forbid requests to the hub: only local files, which were searched for code, may be loaded."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
