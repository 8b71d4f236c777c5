"""Asks a policy what it would do at demonstrated states: the raw material of the demonstration-fit error (Eq. 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from besttake.config import Plan
from besttake.core.probe import leave_one_out
from besttake.demos.library import Library, View
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.takes.draws import Draw
from besttake.types import F32, EnvSpec, Observation

_ROWS = 64


@dataclass(frozen=True)
class TaskProbe:
    """One task: ``samples`` (M, K, horizon, action_dim), ``demonstrated`` (M, …), ``demo`` (M,), ``floor`` (M,)."""

    samples: F32
    demonstrated: F32
    demo: NDArray[np.int64]
    floor: NDArray[np.float64]


@dataclass(frozen=True)
class Probed:
    """What a policy answered, by (env URI, task); or the ``reason`` why it could not be asked."""

    tasks: Mapping[tuple[str, str], TaskProbe] = field(default_factory=dict)
    reason: str = ""


def probe_policy(
    policy: Policy, library: Library, envs: Mapping[str, EnvSpec], plan: Plan, reporter: Reporter
) -> Probed:
    """Sample ``policy`` at states of ``library``, spread evenly over the plan's tasks."""
    spec = policy.spec
    if library.actions is None or library.states is None:
        return Probed(reason="the library holds no states and actions, only pictures")
    if spec.cameras and not library.can_show(spec.cameras):
        return Probed(reason=f"the library cannot show the policy's cameras ({', '.join(spec.cameras)})")
    tasks = [
        (uri, task.name) for uri, env in envs.items() for task in env.tasks if not plan.task or task.name in plan.task
    ]
    each = max(1, plan.probe_states // max(1, len(tasks)))
    found = {}
    with reporter.stage("probe", each * len(tasks), "states") as stage:
        for uri, task in tasks:
            found[uri, task] = _probe_task(policy, library, library.view(task), task, each, plan)
            stage.advance(each)
    return Probed(found)


def _probe_task(policy: Policy, library: Library, view: View, task: str, count: int, plan: Plan) -> TaskProbe:
    spec = policy.spec
    rows = _spread(len(view.frame_demo), count, Draw(plan.seed, f"probe/{task}", 0, 0))
    seen = [_observation(library, view, row, spec.cameras) for row in rows]
    samples = np.empty((len(rows), plan.probe_samples, spec.horizon, spec.action_dim), np.float32)
    pairs = [(m, k) for m in range(len(rows)) for k in range(plan.probe_samples)]
    for first in range(0, len(pairs), _ROWS):
        block = pairs[first : first + _ROWS]
        draws = [Draw(plan.seed, f"probe/{task}", start=m, seed=k) for m, k in block]
        sampled = policy.sample([seen[m] for m, _ in block], draws)
        for (m, k), chunk in zip(block, sampled, strict=True):
            samples[m, k] = chunk
    chunks = np.stack(
        [library.chunk(int(d), int(s), spec.horizon) for d, s in zip(view.frame_demo, view.frame_step, strict=True)]
    )
    states = np.stack([library.state(int(d), int(s)) for d, s in zip(view.frame_demo, view.frame_step, strict=True)])
    floor = np.full(len(rows), np.nan)
    if len(np.unique(view.frame_demo)) >= 2:
        floor = leave_one_out(states, chunks, view.frame_demo, rows, plan.probe_samples)
    return TaskProbe(samples, chunks[rows], view.frame_demo[rows], floor)


def _spread(frames: int, count: int, draw: Draw) -> NDArray[np.int64]:
    """``count`` of ``frames`` rows, drawn without replacement, in order."""
    chosen = draw.generator("env").permutation(frames)[: min(count, frames)]
    ordered: NDArray[np.int64] = np.sort(chosen).astype(np.int64)
    return ordered


def _observation(library: Library, view: View, row: int, cameras: tuple[str, ...]) -> Observation:
    demo, step = int(view.frame_demo[row]), int(view.frame_step[row])
    images = library.show(demo, step, cameras) if cameras else {}
    return Observation(images, library.state(demo, step), library.instruction(demo))
