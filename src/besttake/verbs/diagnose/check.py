"""Sample a policy at demonstrated states, without a simulator.

`probe_policy` does so for the demonstration-fit error (Eq. 3). `check_retrieval_of` compares settings of noise and
retrieval there, retrieving from the other demonstrations only (`besttake.core.offline`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.arms.base import unmet
from besttake.config import Plan
from besttake.core import offline
from besttake.core.events import onset_frames, phases
from besttake.core.offline import Comparison, ConfigCheck, GroupCheck, RetrievalCheck, States
from besttake.core.probe import PolicyProbe, TaskProbe, leave_one_out, spread_over
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.library import Library, View, events_of
from besttake.errors import blaming
from besttake.policies.base import Perception, Policy
from besttake.policies.look_cache import LookCache, sampled_chunks
from besttake.progress import Reporter
from besttake.takes.draws import Draw
from besttake.takes.jobs import probe_draw
from besttake.threads import PatientCaller
from besttake.types import F32, EnvSpec, Observation, PolicySpec, TaskSpec, Warm

NOISES = (1.0, 0.7, 0.5, 0.3, 0.1)
PRIORS = (0.05, 0.1, 0.2, 0.3, 0.5)
FIRST = 0.2
"""The prior with which rules and variants are compared."""
VARIANTS: tuple[Mapping[str, Any], ...] = (
    {"rerank": 0}, {"gripper_gating": True}, {"reliability": 1.0}, {"onset_alignment": True},
    {"lead": 2},
)  # fmt: skip
ANGLES = (30.0, 45.0, 90.0)
"""Turns, in degrees, that begin an event; tried besides the one that the library was built with."""
LEAST_DEMOS = 10
"""A task group with fewer demonstrations has too wide an interval, and gets the prior of all groups together."""
_ROWS, _PROBE_ROWS = 256, 64
"""Rows that a policy samples in one call."""


def probe_policy(
    policy: Policy, library: Library, envs: Mapping[str, EnvSpec], plan: Plan, reporter: Reporter
) -> PolicyProbe:
    """Sample ``policy`` at states of ``library``, spread evenly over the plan's tasks."""
    if reason := _why_no_samples(policy.spec, library):
        return PolicyProbe(reason=reason)
    tasks = [(uri, task) for uri, env in envs.items() for task in plan.chosen_tasks(env)]
    per_task = max(1, plan.probe_states // max(1, len(tasks)))
    probes = {}
    with reporter.stage("probes", per_task * len(tasks), "states") as stage:
        for uri, task in tasks:
            view = library.view(task.name, task.instruction)
            probes[uri, task.name] = _probe_task(policy, library, view, task.name, per_task, plan)
            stage.advance(per_task)
    return PolicyProbe(probes)


def probe_notes(name: str, result: PolicyProbe) -> list[str]:
    """Remarks for the report on the probe of the policy called ``name``."""
    if result.reason:
        return [f"demonstration fit of {name} was not measured: {result.reason}"]
    ends = {probe.samples.shape[2] - 1 for probe in result.tasks.values() if not probe.padded} - {0}
    notes = [
        f"demonstration fit of {name} leaves out the last {n} steps of each demonstration, which no whole chunk follows"
        for n in ends
    ]
    for (_, task), probe in result.tasks.items():
        if probe.padded:
            notes.append(f"demonstrations of {task} are shorter than a chunk of {name}: their ends were padded")
    for (_, task), probe in result.tasks.items():
        if np.isnan(probe.floor).all():
            notes.append(f"{task} has no floor for {name}: that needs two demonstrations")
    return notes


def _why_no_samples(spec: PolicySpec, library: Library) -> str:
    """The reason why a policy cannot be sampled at states of ``library``; empty if it can."""
    missing = [name for name, rows in (("states", library.states), ("actions", library.actions)) if rows is None]
    if missing:
        return f"the library holds no {' and no '.join(missing)}"
    sizes = ("actions", library.head.action_dim, spec.action_dim), ("states", library.head.state_dim, spec.state_dim)
    for name, dim, needed in sizes:
        if needed is not None and dim != needed:
            return f"the library has {name} of {dim} numbers, but {spec.name} has {needed}"
    if spec.cameras and not library.can_show(spec.cameras):
        return f"the library cannot show the policy's cameras ({', '.join(spec.cameras)})"
    return ""


def _probe_task(policy: Policy, library: Library, view: View, task: str, count: int, plan: Plan) -> TaskProbe:
    spec = policy.spec
    whole = view.frame_step + spec.horizon <= np.array([library.demos[d].length for d in view.frame_demo])
    padded = not whole.any()
    usable = slice(None) if padded else whole
    demo, step = view.frame_demo[usable], view.frame_step[usable]
    frames = [(int(d), int(s)) for d, s in zip(demo, step, strict=True)]
    rows = spread_over(demo, count)
    observations = [observation_at(library, *frames[int(row)], spec.cameras) for row in rows]
    pairs = [(m, k) for m in range(len(rows)) for k in range(plan.probe_samples)]
    inputs = [(observations[m], probe_draw(plan.seed, task, m, k), None) for m, k in pairs]
    flat = _sample_chunks(spec, policy.sample, plan.patience, inputs, _PROBE_ROWS)
    samples = flat.reshape(len(rows), plan.probe_samples, *flat.shape[1:])
    chunks = np.stack([library.chunk(d, s, spec.horizon) for d, s in frames])
    floor = np.full(len(rows), np.nan)
    if len(np.unique(demo)) >= 2:
        states = np.stack([library.state(d, s) for d, s in frames])
        floor = leave_one_out(states, chunks, demo, rows, plan.probe_samples)
    return TaskProbe(samples, chunks[rows], demo[rows], floor, padded)


def _sample_chunks(
    spec: PolicySpec, sample: Callable[..., F32], patience: float | None,
    inputs: Sequence[tuple[Observation, Draw, Warm | None]], rows: int,
) -> F32:  # fmt: skip
    """Sample chunks (B, horizon, action_dim), ``rows`` in a call; ComponentError if the policy gives anything else."""
    name, chunks = f"the policy {spec.name}", list[Any]()
    caller = PatientCaller(name, patience)
    for first in range(0, len(inputs), rows):
        observations, draws, warms = map(list, zip(*inputs[first : first + rows], strict=True))
        with blaming(name):
            chunks += caller(sampled_chunks, spec, sample, observations, draws, warms)
            for chunk in chunks[first:]:
                if isinstance(chunk, Exception):
                    raise chunk
    # In C order, whatever order the policy gave: sums over another order differ in the last bit.
    return np.stack(chunks)


def observation_at(library: Library, demo: int, step: int, cameras: tuple[str, ...]) -> Observation:
    """The observation of a policy that reads ``cameras`` at a step of a demonstration."""
    images = library.show(demo, step, cameras) if cameras else {}
    return Observation(images, library.state(demo, step), library.demos[demo].instruction)


@dataclass(frozen=True)
class CheckSettings:
    """How to check retrieval: with ``draws`` samples at each of ``states`` states, and with some ``fixed`` settings."""

    states: int = 240
    draws: int = 8
    seed: int = 0
    fixed: Mapping[str, Any] = field(default_factory=dict)
    patience: float | None = None


def check_retrieval_of(
    policy: Policy, library: Library, tasks: Sequence[TaskSpec], settings: CheckSettings | None = None,
    on_samples: Callable[[int], None] = lambda _: None,
) -> RetrievalCheck:  # fmt: skip
    """Choose the noise of ``policy`` at states of ``library``, and at that noise a retrieval configuration or none."""
    settings = settings or CheckSettings()
    if reason := _why_no_check(policy.spec, library, tasks, settings):
        return RetrievalCheck(reason=reason)
    samples, fixed = _Samples(policy, library, tasks, settings, on_samples), settings.fixed
    compare = Comparison(samples.states, settings.seed)
    noises = ((fixed["noise"],) if "noise" in fixed else NOISES) if policy.spec.cools else (1.0,)
    cooled = {noise: compare.error(samples.cooled(noise)) for noise in noises}
    noise = offline.best_noise(cooled)
    tried: list[ConfigCheck] = []
    for configs in _rounds(library, {"noise": noise, **fixed}, tried) if policy.spec.warm_start else ():
        for config in dict.fromkeys(configs):
            if config not in [checked.config for checked in tried]:
                sampled, retrieved = samples.retrieved(config)
                control = samples.cooled(config.noise)
                tried.append(offline.judge(compare, config, sampled, retrieved, control, samples.base))
    chosen = offline.choose_config(tried)
    return RetrievalCheck(
        len(samples.states.demo), settings.draws, compare.error(samples.base), compare.mean_action(), cooled, noise,
        tuple(tried), chosen, _check_groups(samples, tasks, tried, chosen, settings) if tried else {},
    )  # fmt: skip


def _check_groups(
    samples: _Samples, tasks: Sequence[TaskSpec], tried: Sequence[ConfigCheck], chosen: RetrievalConfig | None,
    settings: CheckSettings,
) -> dict[str, GroupCheck]:  # fmt: skip
    """Check the priors in each task group with enough demonstrations; empty for one group or a fixed prior."""
    names = {task.name: task.group for task in tasks}
    if len({*names.values()}) < 2 or "prior" in settings.fixed:
        return {}
    best = chosen or offline.simplest(tried).config
    configs = [checked.config for checked in tried if replace(checked.config, prior=best.prior) == best]
    groups = {}
    for name in dict.fromkeys(names.values()):
        rows = np.array([names[task] == name for task in samples.tasks])
        states = samples.states.at(rows)
        if len(np.unique(states.demo)) < LEAST_DEMOS:
            continue
        compare, checks = Comparison(states, settings.seed), []
        for config in configs:
            sampled, retrieved = samples.retrieved(config)
            control = samples.cooled(config.noise)[rows]
            checks.append(offline.judge(compare, config, sampled[rows], retrieved[rows], control, samples.base[rows]))
        groups[name] = offline.of_group(checks, chosen, int(rows.sum()))
    return groups


def _rounds(
    library: Library, fixed: Mapping[str, Any], tried: Sequence[ConfigCheck]
) -> Iterator[Sequence[RetrievalConfig]]:
    """Yield the configurations to try: all rules, then variants of the best rule, then the best of all at each prior.

    With a fixed rule, only that one is tried, without variants. ``tried`` must grow between rounds.
    """
    first = {"prior": FIRST, "rerank": offline.RERANK, **fixed}
    if "rule" in fixed:
        yield [RetrievalConfig.from_dict(first)]
    else:
        rules = ("frame", "current", "next") if library.has_events else ("frame",)
        yield [RetrievalConfig.from_dict({**first, "rule": rule}) for rule in rules]
        best = offline.simplest(tried).config
        fitting = [
            change for change in VARIANTS
            if not (best.rule == "frame" and "onset_alignment" in change)
            and not (best.rule != "next" and "lead" in change)
            and not ("gripper_gating" in change and library.head.gripper_dim is None)
        ]  # fmt: skip
        if best.rule != "frame" and library.head.eef_dims is not None and library.states is not None:
            fitting += [{"angle": angle} for angle in ANGLES]
        yield [replace(best, **{**change, **fixed}) for change in fitting]
    if "prior" not in fixed:
        best = offline.simplest(tried).config
        yield [replace(best, prior=prior) for prior in PRIORS]


def _why_no_check(spec: PolicySpec, library: Library, tasks: Sequence[TaskSpec], settings: CheckSettings) -> str:
    """The reason why retrieval cannot be checked; empty if it can."""
    if reason := _why_no_samples(spec, library):
        return reason
    if not settings.states:
        return "no states were asked for"
    if not spec.cools and (reason := unmet(spec, ("warm start",))):
        return reason
    few = [task.name for task in tasks if len(library.view(task.name, task.instruction).demos) < 2]
    return f"{few[0]} has one demonstration, and holding it out leaves none" if few else ""


@dataclass(frozen=True)
class _Task:
    """The states of one task, as rows (M,) among the frames of its view, and the observations there."""

    name: str
    view: View
    rows: NDArray[np.int64]
    observations: list[Observation]


class _Samples:
    """Samples of a policy at the states of a check, (M, K, executed steps, action_dim); each kind is sampled once."""

    def __init__(
        self, policy: Policy, library: Library, tasks: Sequence[TaskSpec], settings: CheckSettings,
        on_samples: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._policy, self._library, self._draws, self._settings = policy, library, settings.draws, settings
        self._looks = LookCache(policy)
        per_task = max(1, settings.states // max(1, len(tasks)))
        self._tasks = [self._task(task, per_task) for task in tasks]
        self.states = self._demonstrated()
        self._whole: dict[Any, F32] = {}
        self._on_samples = on_samples
        self.base = self._cut(self._plain(None))

    @property
    def tasks(self) -> list[str]:
        """The task of each state (M,)."""
        return [task.name for task in self._tasks for _ in task.rows]

    def cooled(self, noise: float) -> F32:
        """Samples from the policy's noise multiplied by ``noise``."""
        return self.base if noise == 1 else self._cut(self._plain(Warm(noise)))

    def retrieved(self, config: RetrievalConfig) -> tuple[F32, F32]:
        """Samples started from retrieved chunks, and those chunks."""
        search = replace(config, noise=1.0, prior=0.0)
        if search not in self._whole:
            self._whole[search] = np.concatenate([self._search(task, search) for task in self._tasks])
        chunks = self._whole[search]
        if config not in self._whole:
            flat = chunks.reshape(-1, *chunks.shape[2:])
            sampled = self._sample([Warm(config.noise, config.prior, chunk) for chunk in flat])
            self._whole[config] = sampled.reshape(chunks.shape)
        return self._cut(self._whole[config]), self._cut(chunks)

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

    def _demonstrated(self) -> States:
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
        """Whole samples (M, K, horizon, action_dim) with the same warm start at all states."""
        key = None if warm is None else warm.noise
        if key not in self._whole:
            sampled = self._sample([warm] * (len(self.states.demo) * self._draws))
            self._whole[key] = sampled.reshape(len(self.states.demo), self._draws, *sampled.shape[1:])
        return self._whole[key]

    def _sample(self, warms: Sequence[Warm | None], observations: Sequence[Observation] | None = None) -> F32:
        """Samples (M * K, horizon, action_dim), state by state, so that a policy can share its look at one."""
        states = observations or [observation for t in self._tasks for observation in t.observations]
        draws = [d for t in self._tasks for d in self._draws_of(t)]
        inputs = list(zip([o for o in states for _ in range(self._draws)], draws, warms, strict=True))
        chunks = _sample_chunks(self._policy.spec, self._looks.sample, self._settings.patience, inputs, _ROWS)
        self._on_samples(len(inputs))
        return chunks

    def _draws_of(self, task: _Task) -> list[Draw]:
        return [
            Draw(self._settings.seed, f"check/{task.name}", start=m, seed=k)
            for m in range(len(task.rows)) for k in range(self._draws)
        ]  # fmt: skip

    def _search(self, task: _Task, config: RetrievalConfig) -> F32:
        """The chunks (M, K, horizon, action_dim) retrieved at the states of a task from other demonstrations."""
        first = sum(len(t.rows) for t in self._tasks[: self._tasks.index(task)])
        rows, predicted = task.rows, self._plain(None)[first : first + len(task.rows)]
        observations = task.observations
        if config.onset_alignment:
            rows = np.array([self._onset(task.view, int(row), config.angle) for row in rows])
            observations = [self._look(task.view, int(row)) for row in rows]
            predicted = self._at_onsets(config.angle)[first : first + len(rows)]
        queries = np.repeat(np.arange(len(rows)), self._draws)
        matches = task.view.retriever(config, self._policy.spec.horizon).query(
            task.view.embeddings[rows[queries]], predicted.reshape(-1, *predicted.shape[2:]),
            self._perceived([observations[q] for q in queries], self._draws_of(task)),
            phases=[self._phase(task.view, int(task.rows[q])) for q in queries] if config.gripper_gating else None,
            exclude=[int(task.view.frame_demo[task.rows[q]]) for q in queries],
        )  # fmt: skip
        chunks = np.stack([match.chunk for match in matches])
        return chunks.reshape(len(rows), self._draws, *chunks.shape[1:])

    def _perceived(self, observations: Sequence[Observation], draws: Sequence[Draw]) -> F32:
        if isinstance(self._policy, Perception):
            return self._policy.perceive(observations, draws)
        return np.stack([observation.state for observation in observations])

    def _onset(self, view: View, row: int, angle: float | None) -> int:
        """The row of the frame at which the event of the frame ``row`` begins."""
        demo, step = int(view.frame_demo[row]), int(view.frame_step[row])
        onset = max(event for event in (0, *events_of(self._library, demo, angle).tolist()) if event <= step)
        frames = np.flatnonzero(view.frame_demo == demo)
        return min(int(frames[onset_frames(view.frame_step[frames], np.array(onset))]), row)

    def _at_onsets(self, angle: float | None) -> F32:
        """Whole samples (M, K, horizon, action_dim) at the onset of each state's event."""
        key = "onset", angle
        if key not in self._whole:
            onsets = [self._look(t.view, self._onset(t.view, int(row), angle)) for t in self._tasks for row in t.rows]
            sampled = self._sample([None] * (len(onsets) * self._draws), onsets)
            self._whole[key] = sampled.reshape(len(onsets), self._draws, *sampled.shape[1:])
        return self._whole[key]

    def _phase(self, view: View, row: int) -> bool | None:
        """Whether the gripper's last command before a frame was to open it; None if there was no command."""
        gripper, demo, step = self._library.head.gripper_dim, int(view.frame_demo[row]), int(view.frame_step[row])
        if gripper is None or step == 0:
            return None
        commands = self._library.chunk(demo, 0, step)[:, gripper]
        return bool(phases(commands, self._library.head.event_config)[-1])

    def _cut(self, chunks: F32) -> F32:
        return chunks[:, :, : self._policy.spec.replan]
