"""How each LeRobot family is sampled: the shape of its noise, where a chunk lies in it, and the call."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from besttake.conventions import CLOSES_UP, EE6D_STATE, POSE, Convention, Gripper
from besttake.errors import one_line
from besttake.policies.torch_noise import given_noise
from besttake.takes.draws import Draw
from besttake.types import F32, PolicyKind, Warms

Batch = dict[str, Any]
STATE = "observation.state"
COOLED_TOKENS = "tokens: the arm cooled lowers the temperature; no warm start"
ZEROS = "tokens that are not an action are played as zeros in the policy's own space, as by LeRobot"
_NO_ACTION = (
    "did not emit end token",  # MolmoAct2
    "generated no decodable action tokens",  # MolmoAct2
    "Token sequence does not start with",  # pi0-FAST
)
"""Messages of errors that mean: the tokens are not an action."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PolicyFamily:
    """One way of sampling. ``latent`` is the shape of a row's noise, empty if we cannot give it any.

    ``alone``: rows are sampled one by one. ``resizes``: the model resizes pictures itself. ``stacks``: if it does so
    only by a setting, it stacks all cameras first, which needs pictures of one size. ``looks``: it has `look` and
    `sample_from` instead of `predict`. ``prompted``: it always reads an instruction, even without a tokenizer step.
    """

    horizon: int
    replan: int
    latent: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    kind: ClassVar[PolicyKind] = "flow"
    alone: ClassVar[bool] = False
    resizes: ClassVar[bool] = False
    stacks: ClassVar[bool] = False
    looks: ClassVar[bool] = False
    prompted: ClassVar[bool] = False

    @property
    def cools(self) -> bool:
        """Whether it can be cooled, by less noise or by a lower temperature of its tokens."""
        return bool(self.latent) or self.kind == "tokens"

    def noise(self, draw: Draw) -> F32:
        """The noise that a row starts from, float32 of the shape ``latent``."""
        return draw.normal(self.latent)

    def place(self, chunk: Any) -> Any:
        """Convert normalised chunks (B, horizon, action_dim) to latents (B, *latent), in a family that has them."""
        raise NotImplementedError

    def predict(self, policy: Any, batch: Batch, noise: Any, draws: Sequence[Draw], warms: Warms = None) -> Any:
        """Sample normalised actions (B, horizon, action_dim) for a preprocessed batch."""
        raise NotImplementedError

    def look(self, policy: Any, batch: Batch) -> Sequence[Any]:
        """Compute what depends on each observation of a preprocessed batch alone, in a family that looks."""
        raise NotImplementedError

    def sample_from(self, policy: Any, kept: Sequence[Any], noise: Any) -> Any:
        """Sample normalised actions (B, horizon, action_dim), each row from the `look` of its observation."""
        raise NotImplementedError

    def size_of(self, kept: Any) -> int:
        """The size of a row of `look`, in bytes."""
        return int(kept.nbytes)


class PaddedFamily(PolicyFamily):
    """Families whose latent is a chunk (chunk_size, max_action_dim)."""

    resizes = True

    def place(self, chunk: Any) -> Any:
        """Pad with zeros beyond the dimensions of an action, as in training."""
        latent = chunk.new_zeros((len(chunk), *self.latent))
        latent[:, :, : chunk.shape[2]] = chunk
        return latent


class InternalNoise(PaddedFamily):
    """EO-1, VLA-JEPA, WALL-X, FastWAM and GR00T, which draw noise inside; it is replaced by the row's own.

    Their processors pad instructions to the longest of a batch, so rows are sampled one by one.
    """

    alone = True
    prompted = True

    def predict(self, policy: Any, batch: Batch, noise: Any, draws: Sequence[Draw], warms: Warms = None) -> Any:
        """Call the class with the row's noise in place of its own."""
        policy.reset()
        with given_noise(type(policy).__name__, noise, draws):
            return policy.predict_action_chunk(dict(batch))


class XVla(InternalNoise):
    """X-VLA: like `InternalNoise`, with instructions of one length."""

    alone = False
    resizes = False


class MolmoAct2(InternalNoise):
    """MolmoAct2: like `InternalNoise`, but it returns only the beginning of the chunk that it denoises."""

    def place(self, chunk: Any) -> Any:
        """Repeat the last action up to the end of the latent, as for DiffusionPolicy."""
        index = np.minimum(np.arange(self.latent[0]), chunk.shape[1] - 1)
        return super().place(chunk[:, index])


class Evo1(InternalNoise):
    """EVO-1: like `InternalNoise`, but with uniform noise from -1 to 1, the range of its normalised actions."""

    def noise(self, draw: Draw) -> F32:
        """Uniform numbers from -1 to 1."""
        return draw.uniform(self.latent)

    def predict(self, policy: Any, batch: Batch, noise: Any, draws: Sequence[Draw], warms: Warms = None) -> Any:
        """Call the class, which draws a flat row from 0 to 1 and rescales it."""
        policy.reset()
        with given_noise(type(policy).__name__, (noise.flatten(1) + 1) / 2, draws, uniform=True):
            return policy.predict_action_chunk(dict(batch))


@dataclass(frozen=True)
class Prefix:
    """What a flow policy computes from one observation, as tensors of one row: masks and state (``given``), and the
    keys and values of its attention, layer by layer."""

    given: Mapping[str, Any]
    layers: tuple[tuple[Any, Any, Any], ...]

    @property
    def nbytes(self) -> int:
        """The memory of all tensors."""
        tensors = [*self.given.values(), *(part for layer in self.layers for part in layer[:2])]
        return sum(tensor.nbytes for tensor in tensors)


class _PrefixReady(Exception):
    """A flow policy has computed the prefix and is about to denoise."""


class Flow(PaddedFamily):
    """pi0, pi0.5 and SmolVLA: noise (chunk_size, max_action_dim), integrated from t = 1 to the actions at t = 0.

    They first compute a prefix from pictures, instruction (and state), and then denoise with attention to it.
    """

    looks = True

    def look(self, policy: Any, batch: Batch) -> list[Prefix]:
        """Compute the prefix, by the class's own call up to its first denoising step."""
        model, computed = policy.model, {}
        rows = len(batch["observation.language.tokens"])

        def stop(x_t: Any, timestep: Any, **given: Any) -> None:
            computed.update(given)
            raise _PrefixReady

        model.denoise_step = stop
        try:
            policy.predict_action_chunk(batch, noise=batch[STATE].new_zeros((rows, *self.latent)))
        except _PrefixReady:
            pass
        finally:
            del model.denoise_step
        layers = list(computed.pop("past_key_values"))
        return [
            Prefix(
                {name: value[row : row + 1].clone() for name, value in computed.items()},
                tuple((k[row : row + 1].clone(), v[row : row + 1].clone(), window) for k, v, window in layers),
            )
            for row in range(rows)
        ]

    def sample_from(self, policy: Any, kept: Sequence[Prefix], noise: Any) -> Any:
        """Integrate the class's denoising step with LeRobot's function, and cut off the padding of the actions."""
        from lerobot.policies.common.flow_matching import euler_integrate
        from torch import cat
        from transformers import DynamicCache

        model, config = policy.model, policy.config
        given = {name: cat([prefix.given[name] for prefix in kept]) for name in kept[0].given}
        layers = zip(*(prefix.layers for prefix in kept), strict=True)
        cache = DynamicCache(
            tuple((cat([k for k, _, _ in same]), cat([v for _, v, _ in same]), same[0][2]) for same in layers)
        )

        def step(x_t: Any, timestep: Any) -> Any:
            return model.denoise_step(x_t=x_t, timestep=timestep, past_key_values=cache, **given)

        steps = config.num_steps if hasattr(config, "num_steps") else config.num_inference_steps
        actions = euler_integrate(step, noise, steps)[:, :, : sizes_of(config)[1]]
        return policy._pi_aloha_encode_actions(actions) if getattr(config, "adapt_to_pi_aloha", False) else actions


@dataclass(frozen=True)
class Diffusion(PolicyFamily):
    """DiffusionPolicy, whose noise (horizon, action_dim) also covers the ``n_obs_steps - 1`` steps before now."""

    past: int = 0
    stacks: ClassVar[bool] = True

    def place(self, chunk: Any) -> Any:
        """Put the chunk at its place; repeat the first action before it and the last one after it."""
        index = np.clip(np.arange(self.latent[0]) - self.past, 0, chunk.shape[1] - 1)
        return chunk[:, index]

    def predict(self, policy: Any, batch: Batch, noise: Any, draws: Sequence[Draw], warms: Warms = None) -> Any:
        """Repeat the observation for the whole window of the past; DDPM's later noise comes from each row's draw."""
        import torch

        window = {key: _repeat(value, self.past + 1) for key, value in batch.items() if key.startswith("observation.")}
        generators = [torch.Generator(device="cpu").manual_seed(draw.integer()) for draw in draws]
        policy.reset()
        model = policy.diffusion
        # `generate_actions` has no argument for generators, `conditional_sample` beneath it has.
        model.conditional_sample = partial(type(model).conditional_sample, model, generator=generators)
        try:
            return policy.predict_action_chunk(window, noise=noise)
        finally:
            del model.conditional_sample


class MultiTask(Diffusion):
    """Multi-task DiT, by diffusion or flow matching, with the window and latent of DiffusionPolicy."""

    def predict(self, policy: Any, batch: Batch, noise: Any, draws: Sequence[Draw], warms: Warms = None) -> Any:
        """Take all actions of one inference, whose internal noise is replaced by the row's own."""
        import torch

        policy.reset()
        with given_noise(type(policy).__name__, noise, draws):
            return torch.stack([policy.select_action(dict(batch)) for _ in range(self.horizon)], dim=1)


class DeterministicFamily(PolicyFamily):
    """ACT: no randomness at test time, so `look` returns the actions."""

    kind = "deterministic"
    looks = True

    def look(self, policy: Any, batch: Batch) -> Any:
        """Compute the actions."""
        policy.reset()
        return policy.predict_action_chunk(batch)

    def sample_from(self, policy: Any, kept: Sequence[Any], noise: Any) -> Any:
        """Return the same actions for every draw."""
        from torch import stack

        return stack(list(kept))


class SeededFamily(PolicyFamily):
    """Any other family: its rows are sampled one by one, with torch's global generator seeded for each."""

    alone = True

    def predict(self, policy: Any, batch: Batch, noise: Any, draws: Sequence[Draw], warms: Warms = None) -> Any:
        """Call `select_action`, which every class has, with a seed, once for each action of the chunk.

        The class fills its window of past observations with this one, as at the start of an episode.
        """
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(draws[0].integer())
            policy.reset()
            return torch.stack([policy.select_action(dict(batch)) for _ in range(self.horizon)], dim=1)


class GreedyFamily(PolicyFamily):
    """pi0-FAST at temperature 0, and MolmoAct2 with actions as tokens; one call returns the whole chunk."""

    kind: ClassVar[PolicyKind] = "deterministic"
    alone = True
    resizes = True
    prompted = True

    def predict(self, policy: Any, batch: Batch, noise: Any, draws: Sequence[Draw], warms: Warms = None) -> Any:
        """Call the class. Tokens that are not an action become zeros, as LeRobot does with those it cannot decode.

        Such a take must count as a failure of the policy, which happens more often the higher the temperature is.
        """
        import torch

        policy.reset()
        try:
            return policy.predict_action_chunk(dict(batch))
        except (RuntimeError, AssertionError) as error:
            if not any(words in str(error) for words in _NO_ACTION):
                raise
            who, why = type(policy).__name__, one_line(error, 100)
            _log.warning("%s: zeros are played, its tokens are not an action (%s)", who, why)
            return torch.zeros(1, self.horizon, sizes_of(policy.config)[1], device=policy.config.device)


class Pi0Fast(GreedyFamily):
    """pi0-FAST at a temperature above 0, whose draws from torch's global generator are seeded row by row."""

    kind = "tokens"

    def predict(self, policy: Any, batch: Batch, noise: Any, draws: Sequence[Draw], warms: Warms = None) -> Any:
        """Call the class with a seed, and with the temperature in its config."""
        import torch

        config = policy.config
        plain, (warm,) = config.temperature, warms or (None,)
        config.temperature = plain if warm is None else plain * warm.noise
        try:
            with torch.random.fork_rng():
                torch.manual_seed(draws[0].integer())
                return super().predict(policy, batch, noise, draws)
        finally:
            config.temperature = plain


def family_of(name: str, config: Any, policy: Any) -> PolicyFamily:
    """The `PolicyFamily` of a policy whose type is ``name``."""
    replan = int(getattr(config, "n_action_steps", 1))
    horizon = int(getattr(config, "chunk_size", replan))
    if name in ("pi0", "pi05", "smolvla"):
        return Flow(horizon, replan, (horizon, int(config.max_action_dim)))
    if name == "pi0_fast" or getattr(config, "inference_action_mode", "") == "discrete":
        hot = bool(getattr(config, "temperature", 0))
        note = COOLED_TOKENS if hot else "greedy: sampling has nothing to reuse"
        if name == "pi0_fast" and not hot:
            note += "; ?temperature= above 0 samples"
        return (Pi0Fast if hot else GreedyFamily)(replan, replan, notes=(note, ZEROS))
    if name in _INTERNAL_NOISE:
        return _internal_noise(name, config, policy, replan)
    if name in ("diffusion", "multi_task_dit"):
        past = int(config.n_obs_steps) - 1
        note = f"its window of {past + 1} observations is the current one repeated: rows have no history"
        shape = (int(config.horizon), int(config.action_feature.shape[0]))
        kind = Diffusion if name == "diffusion" else MultiTask
        return kind(replan, replan, shape, (note,) if past else (), past)
    if name == "act":
        notes = ["deterministic: sampling has nothing to reuse"]
        if config.temporal_ensemble_coeff is not None:
            notes.append("its temporal ensembling is left out: rows have no history")
        return DeterministicFamily(horizon, replan, notes=tuple(notes))
    # The names of the number of actions that are executed per inference, by class.
    ready = max(
        int(getattr(config, key, None) or 1) for key in ("n_action_steps", "action_chunk_size", "n_action_repeats")
    )
    note = "sampled one row at a time with torch's generator seeded; no warm start or cooling"
    return SeededFamily(ready, ready, notes=(note,))


_INTERNAL_NOISE: Mapping[str, type[InternalNoise]] = {
    **dict.fromkeys(("eo1", "fastwam", "groot", "vla_jepa", "wall_x"), InternalNoise),
    "xvla": XVla,
    "molmoact2": MolmoAct2,
    "evo1": Evo1,
}


def _internal_noise(name: str, config: Any, policy: Any, replan: int) -> PolicyFamily:
    steps, dim = int(getattr(config, "chunk_size", 0)), int(getattr(config, "max_action_dim", 0))
    horizon = steps
    if name == "vla_jepa":
        steps, dim = int(policy.model.action_model.action_horizon), int(config.action_dim)
        horizon, replan = steps, min(replan, steps)
    if name == "groot":
        # The class cuts its chunk to the shortest of several horizons, and its queue may be shorter still.
        sizes = policy._groot_model.config
        steps, dim = int(sizes.action_horizon), int(sizes.max_action_dim)
        horizon = int(policy._resolve_prediction_horizon(np.empty((1, steps, 1))))
        replan = min(int(policy._action_queue_steps), horizon)
    if name == "fastwam":
        steps = horizon = int(config.action_horizon)
        dim = int(config.action_dim)
    if name == "xvla":
        dim = int(policy.model.dim_action)
    if name == "molmoact2":
        horizon, dim = replan, int(config.expected_max_action_dim)
    return _INTERNAL_NOISE[name](horizon, replan, (steps, dim))


def _repeat(value: Any, times: int) -> Any:
    return value.unsqueeze(1).repeat_interleave(times, dim=1) if hasattr(value, "unsqueeze") else value


def unfed(config: Any) -> list[str]:
    """The inputs of a policy other than pictures and the robot's state, which no observation here has."""
    return [key for key, feature in (config.input_features or {}).items() if key != STATE and not _is_image(feature)]


def images_in(config: Any) -> Mapping[str, Any]:
    """The image features of a policy, without placeholders for cameras that it lacks."""
    features = (config.input_features or {}).items()  # not every class's `image_features` is a map
    return {key: feature for key, feature in features if _is_image(feature) and "empty_camera" not in key}


def _is_image(feature: Any) -> bool:
    return str(feature.type.value) == "VISUAL"


def sizes_of(config: Any) -> tuple[int | None, int]:
    """The sizes of state (None if it reads none) and action."""
    state = config.robot_state_feature
    return None if state is None else int(state.shape[0]), int(config.action_feature.shape[0])


def resizes(config: Any) -> bool:
    """Whether a policy's settings make it resize pictures itself."""
    keys = ("resize_shape", "image_resize_shape", "resize_imgs_with_padding")  # DiffusionPolicy, multi-task DiT, X-VLA
    return any(getattr(config, key, None) for key in keys)


def turned_gripper(config: Any) -> tuple[list[int], Gripper] | None:
    """Which numbers of an action the processor replaces by a gripper command, and the two commands; None if none."""
    if getattr(config, "action_decode_transform", None) == "libero":  # GR00T: above a half is -1, below it +1
        return [-1], CLOSES_UP
    if toggled := getattr(config, "toggle_action_dimensions", None):  # FastWAM: the same
        return list(toggled), CLOSES_UP
    if not getattr(config, "binarize_gripper", False):  # EVO-1
        return None
    low, high = (float(getattr(config, f"gripper_{side}_threshold_value")) for side in ("below", "above"))
    return [int(config.gripper_index)], Gripper(min(low, high), max(low, high), open=high)


_AGENTVIEW = "observation.images.image"
_NORMALISES = "XVLAImageNetNormalizeProcessorStep"


class LiberoSteps:
    """The steps of lerobot-eval between LIBERO and an X-VLA that commands poses (``action_mode=ee6d``).

    The state is that of ``libero:…?state=ee6d``; unlike for other policies, the wrist picture is not turned; pictures
    are normalised before the checkpoint's own preprocessor (``before``); and an action of twenty numbers, six of them
    the rotation, becomes a pose of seven.
    """

    sizes = 20, 7
    """The sizes of the state and of an action."""
    convention = Convention(Gripper(-1, 1), EE6D_STATE, POSE)

    def __init__(self, before: Any) -> None:
        from lerobot.policies.xvla.processor_xvla import LiberoProcessorStep, make_xvla_libero_pre_post_processors
        from lerobot.processor import PolicyProcessorPipeline

        first, self._last = make_xvla_libero_pre_post_processors()
        # `libero:` has prepared the state already. lerobot-eval cannot run a checkpoint that normalises pictures
        # itself, because it would do so twice; here that step is left out.
        twice = _NORMALISES in [type(step).__name__ for step in before.steps]
        steps = [step for step in first.steps if not isinstance(step, LiberoProcessorStep)]
        steps = [step for step in steps if not (twice and type(step).__name__ == _NORMALISES)]
        self._first: Any = PolicyProcessorPipeline(steps=steps)

    def turns_back(self, feature: str) -> bool:
        """Whether it needs a picture as robosuite renders it, while `libero:` turns pictures by 180 degrees."""
        return feature != _AGENTVIEW

    def before(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Prepare a batch for the checkpoint's own preprocessor."""
        return dict(self._first(batch))

    def after(self, actions: Any) -> Any:
        """Convert the output of the checkpoint's postprocessor (B, horizon, 20) to poses (B, horizon, 7)."""
        rows, horizon, dim = actions.shape
        return self._last({"action": actions.reshape(-1, dim)})["action"].reshape(rows, horizon, -1)
