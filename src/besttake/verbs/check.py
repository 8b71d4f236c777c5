"""The check of retrieval at held-out demonstration states (`besttake.core.offline`), made with a policy and a library.

It needs no simulator: the policy is sampled at states of demonstrations, each searched for among the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.arms.chosen import unmet
from besttake.arms.ways import NEEDS, finished, start_of
from besttake.core import offline
from besttake.core.events import onset_frame, phases
from besttake.core.offline import Check, Checked, Comparison, States
from besttake.core.probe import spread_over
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.checks import has_events
from besttake.demos.library import Library
from besttake.demos.view import View, events_of
from besttake.errors import blaming
from besttake.policies.base import Perception, Policy
from besttake.takes.draws import Draw
from besttake.takes.probing import observation_at, unprobed
from besttake.types import F32, Observation, PolicySpec, TaskSpec, Warm

COOLING = (0.3, 0.5, 0.7, 0.9)
ALPHAS: Mapping[str, tuple[float, ...]] = {"start": (0.3, 0.5), "path": (0.5, 0.7, 0.9), "blend": (0.3, 0.5, 0.7)}
VARIANTS: tuple[Mapping[str, Any], ...] = (
    {"whitening": True}, {"rerank": 10}, {"gripper_gating": True}, {"reliability": 1.0}, {"onset_alignment": True},
    {"lead": 2},
)  # fmt: skip
ANGLES = (30.0, 45.0, 90.0)
"""Turns that begin an event, tried beside the one that the library was built with."""
_ROWS = 256


@dataclass(frozen=True)
class Asked:
    """How to check: ``states`` in all, ``draws`` at each, and settings that are ``fixed`` and not to be chosen."""

    states: int = 160
    draws: int = 8
    seed: int = 0
    fixed: Mapping[str, Any] = field(default_factory=dict)


def check_retrieval_of(
    policy: Policy, library: Library, tasks: Sequence[TaskSpec], asked: Asked | None = None,
    on_states: Callable[[int], None] = lambda _: None,
) -> Check:  # fmt: skip
    """Try retrieval configurations for ``policy`` at states of ``library``, and choose one of them or none."""
    asked = asked or Asked()
    if reason := _unchecked(policy.spec, library, tasks, asked):
        return Check(reason=reason)
    samples = _Samples(policy, library, tasks, asked, on_states)
    compare = Comparison(samples.states, asked.seed)
    cooled = {alpha: compare.error(samples.cooled(alpha)) for alpha in COOLING} if policy.spec.cools else {}
    cooling = offline.calmest_of(cooled)
    calmest = samples.base if cooling is None else samples.cooled(cooling)

    def attempt(config: RetrievalConfig) -> Checked:
        sampled, retrieved = samples.retrieved(config)
        return offline.judge(compare, config, sampled, retrieved, samples.control(config), calmest, samples.base)

    tried: list[Checked] = []
    for configs in _rounds(policy.spec, library, asked.fixed, tried):
        tried += [attempt(config) for config in configs if config not in [one.config for one in tried]]
    chosen = offline.choose(tried)
    return Check(
        len(samples.states.demo), asked.draws, compare.error(samples.base), compare.mean_action(), cooled, cooling,
        tuple(tried), chosen,
    )  # fmt: skip


def _rounds(spec: PolicySpec, library: Library, fixed: Mapping[str, Any], tried: Sequence[Checked]) -> Any:
    """Rules first; then variants and strengths for the best of them, and the other ways in for the best chunk; last the
    strengths of what would be chosen, which may be a variant.

    Other ways bring more of the chunk in, so there it must itself be good. A fixed rule stands alone.
    """
    if "rule" in fixed:
        yield [RetrievalConfig.from_dict(fixed)]
        return
    events = has_events(library)
    first = {"way": _ways(spec)[0], "alpha": ALPHAS[_ways(spec)[0]][0], **fixed}
    yield [
        RetrievalConfig.from_dict({**first, "rule": rule})
        for rule in ("frame", "current", "next")
        if rule == "frame" or events
    ]
    best = _lowest(tried)
    closest = min(tried, key=lambda one: np.inf if one.chunk.value is None else one.chunk.value).config
    fitting = [
        change for change in VARIANTS
        if not (best.rule == "frame" and "onset_alignment" in change) and not (best.rule != "next" and "lead" in change)
        and not ("gripper_gating" in change and library.head.gripper_dim is None)
    ]  # fmt: skip
    more = [replace(best, **{**change, **fixed}) for change in fitting]
    if library.head.eef_dims is not None and library.states is not None:
        turning = [one for one in tried if one.config.rule != "frame"]
        more += [replace(_lowest(turning), **{"angle": angle, **fixed}) for angle in ANGLES if turning]
    for way in _ways(spec):
        rule = best if way == "start" else closest
        more += [replace(rule, **{"way": way, "alpha": alpha, **fixed}) for alpha in ALPHAS[way]]
    yield list(dict.fromkeys(more))
    chosen = offline.choose(tried)
    if chosen is not None and chosen.way == "start":
        yield [replace(chosen, **{"alpha": alpha, **fixed}) for alpha in ALPHAS["start"]]


def _lowest(tried: Sequence[Checked]) -> RetrievalConfig:
    return min(tried, key=lambda one: np.inf if one.change.value is None else one.change.value).config


def _ways(spec: PolicySpec) -> tuple[Any, ...]:
    return (*(("start",) if spec.warm_start else ()), *(("path",) if spec.flow_steps else ()), "blend")


def _unchecked(spec: PolicySpec, library: Library, tasks: Sequence[TaskSpec], asked: Asked) -> str:
    """Why the check cannot be made; empty where it can."""
    if reason := unprobed(spec, library):
        return reason
    if not asked.states:
        return "no states were asked for"
    way = asked.fixed.get("way", "start" if "rule" in asked.fixed else _ways(spec)[0])
    if reason := unmet(spec, NEEDS[way]):
        return reason
    few = [task.name for task in tasks if len(library.view(task.name, task.instruction).demos) < 2]
    return f"{few[0]} has one demonstration, and holding it out leaves none" if few else ""


@dataclass(frozen=True)
class _Task:
    """The states of one task: rows (M,) among the frames of its view, and what is seen there."""

    name: str
    view: View
    rows: NDArray[np.int64]
    seen: list[Observation]


class _Samples:
    """What a policy samples at the states of a check, each kind once. Arrays are (M, K, executed steps, action_dim)."""

    def __init__(
        self,
        policy: Policy,
        library: Library,
        tasks: Sequence[TaskSpec],
        asked: Asked,
        on_states: Callable[[int], None],
    ) -> None:
        self._policy, self._library, self._draws, self._seed = policy, library, asked.draws, asked.seed
        each = max(1, asked.states // max(1, len(tasks)))
        self._tasks = [self._task(task, each) for task in tasks]
        self.states = self._truth()
        self._whole: dict[Any, F32] = {}
        self._done = on_states
        self.base = self._cut(self._plain(None))

    def cooled(self, alpha: float) -> F32:
        """Samples from noise made calmer by ``alpha``."""
        return self._cut(self._plain(Warm(alpha)))

    def control(self, config: RetrievalConfig) -> F32:
        """Samples with as much noise as those of ``config``, and nothing retrieved."""
        return self.cooled(config.alpha) if config.way != "path" and self._policy.spec.cools else self.base

    def retrieved(self, config: RetrievalConfig) -> tuple[F32, F32]:
        """Samples with the retrieved chunks in them, and those chunks."""
        search = replace(config, way="start", alpha=0.0, cooling=None)
        if search not in self._whole:
            self._whole[search] = np.concatenate([self._search(task, search) for task in self._tasks])
        chunks = self._whole[search]
        flat = chunks.reshape(-1, *chunks.shape[2:])
        sampled = self._sample([start_of(self._policy.spec, chunk, config) for chunk in flat])
        done = np.stack([finished(s, c, config) for s, c in zip(sampled, flat, strict=True)]).reshape(chunks.shape)
        return self._cut(done), self._cut(chunks)

    def _task(self, task: TaskSpec, count: int) -> _Task:
        view, steps = self._library.view(task.name, task.instruction), self._policy.spec.replan
        whole = view.frame_step + steps <= np.array([self._library.demos[d].length for d in view.frame_demo])
        rows = np.flatnonzero(whole) if whole.any() else np.arange(len(view.frame_step))
        rows = rows[spread_over(view.frame_demo[rows], count)]
        return _Task(task.name, view, rows, [self._look(view, int(row)) for row in rows])

    def _look(self, view: View, row: int) -> Observation:
        return observation_at(
            self._library, int(view.frame_demo[row]), int(view.frame_step[row]), self._policy.spec.cameras
        )

    def _truth(self) -> States:
        steps, library = self._policy.spec.replan, self._library
        parts = [(t.view, int(row)) for t in self._tasks for row in t.rows]
        actions = {
            id(t.view): np.concatenate([library.chunk(int(d), 0, library.demos[d].length) for d in t.view.demos])
            for t in self._tasks
        }
        return States(
            np.stack([library.chunk(int(v.frame_demo[r]), int(v.frame_step[r]), steps) for v, r in parts]),
            np.array([v.frame_demo[r] for v, r in parts]),
            np.stack([actions[id(v)].mean(axis=0) for v, _ in parts]),
            np.stack([actions[id(v)].std(axis=0) for v, _ in parts]),
        )

    def _plain(self, warm: Warm | None) -> F32:
        """Whole samples (M, K, horizon, action_dim), started alike everywhere."""
        key = None if warm is None else warm.alpha
        if key not in self._whole:
            sampled = self._sample([warm] * (len(self.states.demo) * self._draws))
            self._whole[key] = sampled.reshape(len(self.states.demo), self._draws, *sampled.shape[1:])
        return self._whole[key]

    def _sample(self, warms: Sequence[Warm | None], seen: Sequence[Observation] | None = None) -> F32:
        """One sample per state and draw, states one after the other, so that a policy can share its prefix."""
        observations = [one for one in seen or [s for t in self._tasks for s in t.seen] for _ in range(self._draws)]
        draws = [d for t in self._tasks for d in self._draws_of(t)]
        rows = list(zip(observations, draws, warms, strict=True))
        blocks = [rows[first : first + _ROWS] for first in range(0, len(rows), _ROWS)]
        with blaming(f"the policy {self._policy.spec.name}"):
            sampled = [
                np.array(
                    self._policy.sample([o for o, _, _ in block], [d for _, d, _ in block], [w for _, _, w in block])
                )
                for block in blocks
            ]
        self._done(len(rows))
        return np.ascontiguousarray(np.concatenate(sampled))

    def _draws_of(self, task: _Task) -> list[Draw]:
        return [
            Draw(self._seed, f"check/{task.name}", start=m, seed=k)
            for m in range(len(task.rows)) for k in range(self._draws)
        ]  # fmt: skip

    def _search(self, task: _Task, config: RetrievalConfig) -> F32:
        """The chunks (M, K, horizon, action_dim) that are retrieved at each state, its own demonstration left out."""
        first = sum(len(t.rows) for t in self._tasks[: self._tasks.index(task)])
        rows, own = task.rows, self._plain(None)[first : first + len(task.rows)]
        seen = task.seen
        if config.onset_alignment:
            rows = np.array([self._onset(task.view, int(row), config.angle) for row in rows])
            seen = [self._look(task.view, int(row)) for row in rows]
            own = self._at_onsets(config.angle)[first : first + len(rows)]
        queries = np.repeat(np.arange(len(rows)), self._draws)
        matches = task.view.retriever(config, self._policy.spec.horizon).query(
            task.view.embeddings[rows[queries]], own.reshape(-1, *own.shape[2:]),
            self._perceived([seen[q] for q in queries], self._draws_of(task)),
            phases=[self._phase(task.view, int(task.rows[q])) for q in queries] if config.gripper_gating else None,
            exclude=[int(task.view.frame_demo[task.rows[q]]) for q in queries],
        )  # fmt: skip
        chunks = np.stack([match.chunk for match in matches])
        return chunks.reshape(len(rows), self._draws, *chunks.shape[1:])

    def _perceived(self, seen: Sequence[Observation], draws: Sequence[Draw]) -> F32:
        if isinstance(self._policy, Perception):
            return self._policy.perceive(seen, draws)
        return np.stack([one.state for one in seen])

    def _onset(self, view: View, row: int, angle: float | None) -> int:
        """The frame at which the event began that a frame belongs to."""
        demo, step = int(view.frame_demo[row]), int(view.frame_step[row])
        onset = max(event for event in (0, *events_of(self._library, demo, angle).tolist()) if event <= step)
        frames = np.flatnonzero(view.frame_demo == demo)
        return min(int(frames[onset_frame(view.frame_step[frames], onset)]), row)

    def _at_onsets(self, angle: float | None) -> F32:
        key = "onset", angle
        if key not in self._whole:
            seen = [self._look(t.view, self._onset(t.view, int(row), angle)) for t in self._tasks for row in t.rows]
            sampled = self._sample([None] * (len(seen) * self._draws), seen)
            self._whole[key] = sampled.reshape(len(seen), self._draws, *sampled.shape[1:])
        return self._whole[key]

    def _phase(self, view: View, row: int) -> bool | None:
        """Whether the gripper had last been told to open; None where it had not been told anything."""
        gripper, demo, step = self._library.head.gripper_dim, int(view.frame_demo[row]), int(view.frame_step[row])
        if gripper is None or step == 0:
            return None
        commands = self._library.chunk(demo, 0, step)[:, gripper]
        return bool(phases(commands, self._library.head.event_config)[-1])

    def _cut(self, chunks: F32) -> F32:
        return chunks[:, :, : self._policy.spec.replan]
