"""A rehearsal before the first take: does the same happen twice where the same is asked for?

Starts are fixed and takes can be repeated only if the user's env resets exactly and the user's policy takes its noise
from the draw. Neither shows in a result, so both are tried: one chunk is sampled twice and executed twice, from one
start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake import registry
from besttake.envs.base import Env
from besttake.errors import ComponentError, blaming
from besttake.policies.base import Policy
from besttake.registry import Uri
from besttake.takes.draws import Draw
from besttake.types import F32, Array, Observation, Start

_NOT_OURS_TO_MOVE = ("python", "vla-eval")
"""Envs that are not rehearsed: one may be a robot whose scene a person sets up, the other takes minutes to build."""
_STEPS = 5
_CLOSE, _LEVELS = 1e-4, 8
"""How far numbers and grey levels may be apart: a GPU does not add in the same order twice. Noise is far larger."""


def rehearsed(policy_uri: str, env_uri: str) -> bool:
    """Whether this pair is worth a rehearsal: one of the two is the user's own, and the env may be played."""
    policy, env = Uri.parse(policy_uri).scheme, Uri.parse(env_uri).scheme
    return env == "gym" or (policy == "python" and env not in _NOT_OURS_TO_MOVE)


def rehearse(policy: Policy, policy_uri: str, env_uri: str) -> tuple[str, ...]:
    """ComponentError when ``policy`` or the env does not repeat; else remarks for the user."""
    env = registry.env(env_uri)
    try:
        if not getattr(env, "repeats", True):  # perhaps a robot whose scene a person sets up
            return ()
        spec = env.spec
        start, cameras = Start(spec.tasks[0].name, spec.starts[0]), {*policy.spec.cameras, spec.score_camera}
        with blaming(env_uri):
            before = _reset(env, start, sorted(cameras))
        notes: tuple[str, ...] = ()
        with blaming(policy_uri):
            if Uri.parse(policy_uri).scheme == "python":
                notes = _check_policy(policy, before)
            chunk = policy.sample([before], [_draw(0)])[0]
        if Uri.parse(env_uri).scheme == "gym":
            with blaming(env_uri):
                _check_env(env, start, chunk[: min(policy.spec.replan, _STEPS)])
        return notes
    finally:
        env.close()


def _draw(seed: int) -> Draw:
    return Draw(0, "rehearsal", start=0, seed=seed)


def _reset(env: Env, start: Start, cameras: Sequence[str]) -> Observation:
    env.reset(start)
    return env.observe(tuple(cameras))


def _check_policy(policy: Policy, seen: Observation) -> tuple[str, ...]:
    """Same observation and draw, same chunk. Another draw should give another one, but need not at every state."""
    spec = policy.spec
    if not spec.seeded:
        return ()
    first, again, other = (policy.sample([seen], [_draw(seed)])[0] for seed in (0, 0, 1))
    if _apart(first, again) > _CLOSE:
        raise ComponentError(
            f"{spec.name} gave two different chunks for the same observation and the same draw, so its takes could be"
            " neither repeated nor paired. Take all noise from the draw (draw.normal(shape), draw.generator(), or"
            " torch.Generator().manual_seed(draw.integer())), and keep nothing from one call to the next. If its"
            " noise is out of your hands, say seeded=False in its spec"
        )
    same = _apart(first, other) <= _CLOSE
    if spec.kind == "deterministic" and not same:
        raise ComponentError(f"{spec.name} calls itself deterministic, but its chunk changes with the draw")
    if spec.kind != "deterministic" and same:
        return (
            f"{spec.name} gave the same chunk for two draws: if it is deterministic, let its spec say so"
            " (kind deterministic); if it samples, its noise does not come from the draw",
        )
    return ()


def _check_env(env: Env, start: Start, actions: F32) -> None:
    """Same start and actions, same states and pictures."""
    name, first = env.spec.name, _played(env, start, actions)
    again = _played(env, start, actions)
    mend = (
        "if the env is yours, draw everything random from self.np_random, after super().reset(seed=seed); if it is not,"
        " rebuild=true in its URI may mend it; repeats=false accepts it as it is"
    )
    for step, (one, two) in enumerate(zip(first, again, strict=False)):
        for what, least, a, b in zip(("state", "picture"), (_CLOSE, _LEVELS), one, two, strict=True):
            if _apart(a, b) > least:
                when = f"at step {step} of the same actions" if step else f"after reset(seed={start.index})"
                raise ComponentError(
                    f"{name}: {when} the {what} is not the same twice, so starts are not fixed; {mend}"
                )


def _played(env: Env, start: Start, actions: F32) -> list[tuple[Array, Array]]:
    camera = env.spec.score_camera
    seen = [_reset(env, start, (camera,))]
    for action in actions:
        over = env.step(action)
        seen.append(env.observe((camera,)))
        if over.done:
            break
    return [(each.state, each.images[camera]) for each in seen]


def _apart(a: Array, b: Array) -> float:
    """The largest difference, relative to the size of the numbers where they are large."""
    if a.shape != b.shape:
        return float("inf")
    size = 1 if a.dtype == np.uint8 else np.maximum(1, np.abs(a))
    return float(np.max(np.abs(a.astype(np.float64) - b) / size, initial=0.0))
