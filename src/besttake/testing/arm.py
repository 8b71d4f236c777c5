"""The contract of an arm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from besttake import registry
from besttake.arms.base import Arm, Request
from besttake.arms.chosen import unmet
from besttake.arms.sampler import arm_sampler
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.errors import ContractError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.testing.compare import check_close
from besttake.types import F32, EnvSpec, Start

_TAKES = 4


def check_arm(
    arm: Arm, *, policy: str = "testbed:half", env: str = "testbed:pick", demos: str = "testbed:pick"
) -> tuple[str, ...]:
    """Check that ``arm`` keeps the contract of `Arm`, and return the names of the properties that hold.

    These are: its spec makes sense; a chunk is finite and has the right shape; the same take gives the same chunk,
    alone and among takes of this and other arms; and, unless its spec says ``history``, earlier steps do not matter.

    Args:
        arm: The arm to check.
        policy: URI of the policy to run. It must support what the arm needs.
        env: URI of the environment to run it in.
        demos: Demonstrations or a library; used only if the arm reads demonstrations.

    Raises:
        ContractError: A property is violated, or ``policy`` cannot run the arm.
    """
    model, spec, name = registry.policy(policy), arm.spec, arm.spec.name
    if not name or spec.control == name:
        raise ContractError(f"{name or 'an arm'}: it needs a name, and a control other than itself")
    if reason := unmet(model.spec, spec.needs):
        raise ContractError(f"{name}: check it with another policy, {reason}")
    world, takes = _takes(env, model, name, score_camera=spec.score_camera)
    library = open_or_build(demos, options=Options(max_demos=2)) if spec.library else None

    def chunks(requests: Sequence[Request]) -> F32:
        return _chunks(arm, model, world, library, requests)

    takes = _with_memory(takes, chunks)
    batch = chunks(_copies(takes))
    held = ["spec", "shape"]
    check_close(batch, chunks(_copies(takes)), 0.0, f"{name}: the same take, another chunk")
    held.append("repeat")
    singles = np.concatenate([chunks([take]) for take in _copies(takes)])
    check_close(batch, singles, 0.0, f"{name}: a take alone differs from the take among others")
    others = [take for own in _copies(takes) for take in (own, replace(own, arm="base", memory=[]))]
    check_close(batch, chunks(others)[::2], 0.0, f"{name}: a take depends on takes of other arms")
    held.append("batch")
    if not spec.history:
        fresh = [replace(take, states=take.states[-1:], actions=[], memory=[]) for take in takes]
        check_close(batch, chunks(fresh), 0.0, f"{name}: it reads the take's history, which its spec denies")
        held.append("history")
    return tuple(held)


def _chunks(arm: Arm, policy: Policy, world: EnvSpec, library: Library | None, requests: Sequence[Request]) -> F32:
    encoder = None if library is None else library.encoder()
    sampler = arm_sampler(policy, world.world, RetrievalConfig(), library, encoder)
    sampler.arms[arm.spec.name] = arm
    chunks = []
    for chunk in sampler.chunks(requests):
        if isinstance(chunk, Exception):
            raise ContractError(f"{arm.spec.name}: {type(chunk).__name__}: {chunk}") from chunk
        if not np.isfinite(chunk).all():
            raise ContractError(f"{arm.spec.name}: it gave actions that are not finite")
        chunks.append(chunk)
    return np.stack(chunks)


def _with_memory(takes: Sequence[Request], chunks: Callable[[Sequence[Request]], F32]) -> list[Request]:
    """The takes with what their arm remembered at two replans before, one of them at the first step."""
    remembered = []
    for take in takes:
        memory: list[Any] = []
        for replan, step in enumerate((0, take.step // 2)):
            seen = replace(take.observation, state=take.states[step])
            past = replace(
                take, draw=take.draw.at(replan), observation=seen, step=step, states=take.states[: step + 1],
                actions=take.actions[:step], memory=memory,
            )  # fmt: skip
            chunks([past])
        remembered.append(replace(take, draw=take.draw.at(2), memory=memory))
    return remembered


def _copies(takes: Sequence[Request]) -> list[Request]:
    """The takes as they were before their arm was asked."""
    return [replace(take, memory=deepcopy(take.memory)) for take in takes]


def _takes(uri: str, policy: Policy, arm: str, *, score_camera: bool) -> tuple[EnvSpec, list[Request]]:
    """Takes that have come to different steps. They see the score camera only where the arm asks for it."""
    env = registry.env(uri)
    try:
        spec, task = env.spec, env.spec.tasks[0].name
        cameras = tuple(dict.fromkeys((*policy.spec.cameras, *([spec.score_camera] if score_camera else []))))
        takes = []
        for index in range(_TAKES):
            env.reset(Start(task, spec.starts[index % len(spec.starts)]))
            draw, states, actions = Draw(3, task, index, 0, chunk=index), [env.observe(()).state], []
            for _ in range(4 * index):
                actions.append(0.3 * draw.normal((spec.action_dim,), "extra"))
                env.step(actions[-1])
                states.append(env.observe(()).state)
            takes.append(Request(task, arm, draw, env.observe(cameras), len(actions), states, actions))
        return spec, takes
    finally:
        env.close()
