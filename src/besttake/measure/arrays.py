"""Turn the takes of a run into arrays: cells (policy x task group) of starts by seeds, one array per arm."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from besttake.arms import BASE
from besttake.core import headroom, select
from besttake.core.probe import PolicyProbe, TaskProbe
from besttake.core.relation import stacked
from besttake.measure.looks import Unit
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import SCORERS, ScoreName, Scores
from besttake.types import F64, EnvSpec, PolicySpec


@dataclass(frozen=True)
class Stop:
    """Why a cell was stopped ("decided", "budget", "starts", "hopeless"), and the open parts of its verdict."""

    reason: str
    unsettled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """How to measure: there are ``seeds`` takes per start, and the best of ``n`` by ``scorer`` is kept.

    ``worth``: the smallest effect worth acting on, a fraction. ``controls``: the arm that each arm is compared with.
    ``places``: the place of every planned start in the order of a run until decided; None for a fixed sample.
    """

    seeds: int
    n: int
    worth: float = 0.03
    scorer: str = "coverage"
    arms: tuple[str, ...] = (BASE,)
    probe_samples: int = 3
    controls: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[Unit, int] | None = None


@dataclass(frozen=True)
class RunData:
    """The takes, scores and probes of a run, and how to measure them.

    ``goes_on[env]``: takes continue after success; ``planned``: the takes of the plan. ``stops``: why each cell of a
    run until decided was stopped, by `looks.cell_name`. ``left_out``: the arms of each policy that are not worth a take
    by the check of retrieval.
    """

    settings: Settings
    envs: Mapping[str, EnvSpec]
    policies: Mapping[str, PolicySpec]
    rows: Sequence[Row]
    scores: Scores | None
    probes: Mapping[str, PolicyProbe | None]
    goes_on: Mapping[str, bool]
    planned: Collection[TakeKey]
    stops: Mapping[str, Stop] = field(default_factory=dict)
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def scorers(self) -> tuple[str, ...]:
        """The names of all scorers of the run, with the one that picks."""
        scorers = tuple(self.scores.scorers) if self.scores is not None else ()
        return tuple(dict.fromkeys((*(scorers or SCORERS), self.settings.scorer)))


@dataclass(frozen=True)
class ScoredTakes:
    """The takes of one arm, (S, N) each: ``outcomes``, ``scores`` on the verdict's window, and ``lengths``."""

    outcomes: ArrayLike
    scores: ArrayLike | None = None
    lengths: ArrayLike | None = None


@dataclass(frozen=True)
class ArmTakes:
    """The takes of one arm over the starts of a cell: (S, N) arrays, NaN where there is no take or no score."""

    outcomes: F64
    lengths: F64
    scores: Mapping[ScoreName, F64]

    @property
    def takes(self) -> int:
        """The number of takes."""
        return int(np.isfinite(self.outcomes).sum())

    def score(self, name: ScoreName) -> F64 | None:
        """The score called ``name`` (S, N); None if no take has it."""
        scores = self.scores.get(name)
        return scores if scores is not None and np.isfinite(scores).any() else None

    def scored_by(self, name: ScoreName) -> ScoredTakes:
        """The same takes with one score."""
        known = bool(np.isfinite(self.lengths).any())
        return ScoredTakes(self.outcomes, self.score(name), self.lengths if known else None)


@dataclass(frozen=True)
class CellData:
    """The arrays of a cell. ``units`` are its starts (env, task, start); ``spare`` is how many more the env has.

    ``left_out``: the arms that are not worth a take by the check of retrieval. ``length``: the scorers that depend on
    what follows a window.
    """

    policy: str
    env: str
    group: str
    units: tuple[Unit, ...]
    arms: Mapping[str, ArmTakes]
    windows: tuple[str, ...]
    scorer: str
    planned: int
    errors: int
    probe: Sequence[TaskProbe] = field(default_factory=tuple)
    probe_reason: str = ""
    deterministic: bool = False
    spare: int | None = None
    left_out: tuple[str, ...] = ()
    length: frozenset[str] = frozenset()

    @property
    def score_name(self) -> ScoreName:
        """The score that the verdict reads, on the leak-free window."""
        return ScoreName(self.scorer, self.windows[0])

    @property
    def scored(self) -> bool:
        """Whether any take of the base arm has a score."""
        base = self.arms.get(BASE)
        return base is not None and base.score(self.score_name) is not None

    @property
    def played(self) -> int:
        """How many starts have a take of the base arm."""
        return int(np.isfinite(self.arms[BASE].outcomes).any(axis=1).sum())

    def leaks(self, name: ScoreName) -> bool:
        """Whether a score gives the length of takes away: it depends on what follows its window, or follows the length
        on the window `episode`. If it is constant where length is hidden, one pair of takes is evidence enough."""
        base = self.arms[BASE]
        scores, hidden = base.score(name), base.score(ScoreName(name.scorer, self.windows[0]))
        if name.scorer in self.length:
            return True
        if name.window != "episode" or scores is None:
            return False
        silent = self.windows[0] != "episode" and hidden is not None and select.silent(base.outcomes, hidden)
        return select.follows_length(base.outcomes, scores, base.lengths, pairs=1 if silent else 10)

    def start_means(self, arm: str) -> F64:
        """Mean success (S,) of each start in an arm."""
        return headroom.start_pass_at_k(self.arms[arm].outcomes, 1)


def cells_of(run: RunData) -> list[CellData]:
    """The arrays of every cell with planned takes, in the plan's order."""
    rows = {row.key: row for row in run.rows if row.key in run.planned}
    cells = []
    for policy in run.policies:
        keys = [key for key in run.planned if key.policy == policy]
        for env, spec in run.envs.items():
            for group, tasks in _groups(spec).items():
                if cell_keys := [key for key in keys if key.env == env and key.task in tasks]:
                    cells.append(_cell_data(run, policy, env, group, cell_keys, rows))
    return cells


def probed_cells(
    scorer: str,
    envs: Mapping[str, EnvSpec],
    policies: Mapping[str, PolicySpec],
    probes: Mapping[str, PolicyProbe],
    tasks: Collection[str] = (),
) -> list[CellData]:
    """Cells with a probe but no takes, then one over all cells of each policy; only those of ``tasks``, if any."""
    cells = [
        CellData(
            policy=policy, env=env, group=group, units=(), arms={}, windows=("common", "episode"), scorer=scorer,
            planned=0, errors=0, probe=_probes(probes[policy], env, names), probe_reason=probes[policy].reason,
            deterministic=spec.kind == "deterministic",
        )
        for policy, spec in policies.items()
        for env, env_spec in envs.items()
        for group, names in _groups(env_spec).items()
        if not tasks or set(tasks) & set(names)
    ]  # fmt: skip
    by_policy = {policy: [cell for cell in cells if cell.policy == policy] for policy in policies}
    return [*cells, *(merge_cells(policy, parts) for policy, parts in by_policy.items() if parts)]


def _groups(env: EnvSpec) -> dict[str, list[str]]:
    """Task names by group, in the order of the env."""
    groups: dict[str, list[str]] = {}
    for task in env.tasks:
        groups.setdefault(task.group, []).append(task.name)
    return groups


def _probes(policy_probe: PolicyProbe | None, env: str, tasks: Collection[str]) -> list[TaskProbe]:
    probes = policy_probe.tasks.items() if policy_probe else ()
    return [probe for (uri, task), probe in probes if uri == env and task in tasks]


def _cell_data(
    run: RunData, policy: str, env: str, group: str, keys: list[TakeKey], rows: Mapping[TakeKey, Row]
) -> CellData:
    settings, probe = run.settings, run.probes.get(policy)
    tasks = _groups(run.envs[env])[group]
    units = sorted({(k.env, k.task, k.start) for k in keys}, key=lambda unit: (tasks.index(unit[1]), unit[2]))
    windows = ("full", "common", "episode") if run.goes_on[env] else ("common", "episode")
    names = [ScoreName(scorer, window) for scorer in run.scorers for window in windows]
    planned_arms = {key.arm for key in keys}
    return CellData(
        policy=policy, env=env, group=group, units=tuple(units), windows=windows, scorer=settings.scorer,
        arms={
            arm: arm_takes(policy, units, arm, settings.seeds, names, rows, run.scores)
            for arm in settings.arms if arm in planned_arms
        },
        planned=len(keys), errors=sum(key in rows and rows[key].status == "error" for key in keys),
        probe=_probes(probe, env, tasks), probe_reason=probe.reason if probe else "",
        deterministic=run.policies[policy].kind == "deterministic", left_out=run.left_out.get(policy, ()),
        spare=max(0, len(run.envs[env].starts) * len({task for _, task, _ in units}) - len(units)),
        length=frozenset() if run.scores is None else run.scores.length,
    )  # fmt: skip


def arm_takes(
    policy: str,
    units: Sequence[Unit],
    arm: str,
    seeds: int,
    names: Iterable[ScoreName],
    rows: Mapping[TakeKey, Row],
    scores: Scores | None,
) -> ArmTakes:
    """The takes of one policy and arm as arrays of starts by seeds, with the scores called ``names``."""
    shape = (len(units), max(1, seeds))
    outcomes, lengths = np.full(shape, np.nan), np.full(shape, np.nan)
    tables = {name: np.full(shape, np.nan) for name in names}
    for s, (env, task, start) in enumerate(units):
        for seed in range(seeds):
            key = TakeKey(policy, env, task, start, arm, seed)
            row = rows.get(key)
            if row is None or row.status != "done":
                continue
            outcomes[s, seed] = float(bool(row.success))
            lengths[s, seed] = row.success_step if row.success_step is not None else row.steps
            take_score = scores.get(key) if scores is not None else None
            if take_score is not None:
                for name, values in tables.items():
                    values[s, seed] = take_score.scores.get(name, np.nan)
    return ArmTakes(outcomes, lengths, tables)


def merge_cells(policy: str, cells: Sequence[CellData]) -> CellData:
    """Merge a policy's cells into one, in which all starts count alike, without windows and arms that a cell lacks.

    Cells with fewer seeds are padded with NaN, as for missing takes.
    """
    windows = tuple(w for w in cells[0].windows if all(w in c.windows for c in cells))
    arms = {
        name: ArmTakes(
            stacked([c.arms[name].outcomes for c in cells]),
            stacked([c.arms[name].lengths for c in cells]),
            {
                score: stacked([c.arms[name].scores[score] for c in cells])
                for score in cells[0].arms[name].scores
                if score.window in windows
            },
        )
        for name in cells[0].arms
        if all(name in c.arms for c in cells)
    }
    return CellData(
        policy=policy, env=", ".join(dict.fromkeys(c.env for c in cells)), group="*",
        units=tuple(u for c in cells for u in c.units), arms=arms, windows=windows, scorer=cells[0].scorer,
        planned=sum(c.planned for c in cells), errors=sum(c.errors for c in cells),
        probe=[p for c in cells for p in c.probe], probe_reason=cells[0].probe_reason,
        deterministic=cells[0].deterministic, left_out=cells[0].left_out,
        spare=None if any(c.spare is None for c in cells) else sum(c.spare or 0 for c in cells),
        length=frozenset[str]().union(*(c.length for c in cells)),
    )  # fmt: skip


def truncate(data: CellData, planned: Collection[TakeKey], places: Mapping[Unit, int]) -> CellData:
    """Drop the takes of each arm from the first start on, in the order of the run, for which the arm is not planned.

    ``data`` holds a policy's merged cells. Cells that are decided get no more starts, so later starts are another
    mixture of tasks and do not count.
    """
    order, arms, counted = sorted(places, key=places.__getitem__), {}, 0
    keys = {key for key in planned if key.policy == data.policy}
    for name, arm in data.arms.items():
        end = next((places[u] for u in order if TakeKey(data.policy, *u, name, 0) not in keys), len(order))
        counts = np.array([places[unit] for unit in data.units]) < end
        counted += sum(key.arm == name and places[key.env, key.task, key.start] < end for key in keys)
        mask = np.where(counts[:, None], 1.0, np.nan)
        arms[name] = ArmTakes(
            arm.outcomes * mask, arm.lengths * mask, {score: values * mask for score, values in arm.scores.items()}
        )
    return replace(data, arms=arms, planned=counted, errors=counted - sum(arm.takes for arm in arms.values()))
