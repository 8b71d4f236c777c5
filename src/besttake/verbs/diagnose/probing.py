"""Asks a policy what it would do at demonstrated states: the raw material of the demonstration-fit error (Eq. 3)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from besttake.config import Plan
from besttake.core.probe import PolicyProbe, TaskProbe, leave_one_out, spread_over
from besttake.demos.library import Library, View
from besttake.errors import blaming
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.takes.jobs import probe_draw
from besttake.types import EnvSpec, Observation, PolicySpec

_ROWS = 64


def probe_policy(
    policy: Policy, library: Library, envs: Mapping[str, EnvSpec], plan: Plan, reporter: Reporter
) -> PolicyProbe:
    """Sample ``policy`` at states of ``library``, spread evenly over the plan's tasks."""
    if reason := unprobed(policy.spec, library):
        return PolicyProbe(reason=reason)
    tasks = [(uri, task) for uri, env in envs.items() for task in plan.chosen_tasks(env)]
    each = max(1, plan.probe_states // max(1, len(tasks)))
    probes = {}
    with reporter.stage("probes", each * len(tasks), "states") as stage:
        for uri, task in tasks:
            view = library.view(task.name, task.instruction)
            probes[uri, task.name] = _probe_task(policy, library, view, task.name, each, plan)
            stage.advance(each)
    return PolicyProbe(probes)


def unprobed(spec: PolicySpec, library: Library) -> str:
    """Why a policy cannot be asked at states of ``library``; empty where it can."""
    lacks = [what for what, rows in (("states", library.states), ("actions", library.actions)) if rows is None]
    if lacks:
        return f"the library holds no {' and no '.join(lacks)}"
    sizes = ("actions", library.head.action_dim, spec.action_dim), ("states", library.head.state_dim, spec.state_dim)
    for what, has, needs in sizes:
        if needs is not None and has != needs:
            return f"the library has {what} of {has} numbers, but {spec.name} has {needs}"
    if spec.cameras and not library.can_show(spec.cameras):
        return f"the library cannot show the policy's cameras ({', '.join(spec.cameras)})"
    return ""


def _probe_task(policy: Policy, library: Library, view: View, task: str, count: int, plan: Plan) -> TaskProbe:
    spec = policy.spec
    whole = view.frame_step + spec.horizon <= np.array([library.demos[d].length for d in view.frame_demo])
    padded = not whole.any()
    kept = slice(None) if padded else whole
    at = [(int(d), int(s)) for d, s in zip(view.frame_demo[kept], view.frame_step[kept], strict=True)]
    demo = view.frame_demo[kept]
    rows = spread_over(demo, count)
    seen = [observation_at(library, *at[int(row)], spec.cameras) for row in rows]
    pairs = [(m, k) for m in range(len(rows)) for k in range(plan.probe_samples)]
    blocks = [pairs[first : first + _ROWS] for first in range(0, len(pairs), _ROWS)]
    with blaming(f"the policy {spec.name}"):
        sampled = [
            np.array(policy.sample([seen[m] for m, _ in block], [probe_draw(plan.seed, task, m, k) for m, k in block]))
            for block in blocks
        ]
    # In C order, whatever order the policy gave: sums over another order differ in the last bit.
    samples = np.ascontiguousarray(np.concatenate(sampled)).reshape(
        len(rows), plan.probe_samples, *sampled[0].shape[1:]
    )
    chunks = np.stack([library.chunk(d, s, spec.horizon) for d, s in at])
    floor = np.full(len(rows), np.nan)
    if len(np.unique(demo)) >= 2:
        states = np.stack([library.state(d, s) for d, s in at])
        floor = leave_one_out(states, chunks, demo, rows, plan.probe_samples)
    return TaskProbe(samples, chunks[rows], demo[rows], floor, padded)


def observation_at(library: Library, demo: int, step: int, cameras: tuple[str, ...]) -> Observation:
    """What a policy that reads ``cameras`` sees at a step of a demonstration."""
    images = library.show(demo, step, cameras) if cameras else {}
    return Observation(images, library.state(demo, step), library.demos[demo].instruction)
