"""The takes of a run as arrays: cells (policy x task group) of starts by seeds, arm by arm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from besttake.core import headroom
from besttake.measure.probes import Probed, TaskProbe
from besttake.measure.scores import SCORERS, ScoreName, Scores
from besttake.takes.key import Row, TakeKey
from besttake.types import EnvSpec, PolicySpec

if TYPE_CHECKING:
    from besttake.config import Plan

F64 = NDArray[np.float64]
Unit = tuple[str, str, int]


@dataclass(frozen=True)
class Recorded:
    """All that was recorded. ``goes_on[env]``: takes went on after success; ``planned``: the takes asked for.

    ``scorer`` names the score that picks.
    """

    plan: Plan
    envs: Mapping[str, EnvSpec]
    policies: Mapping[str, PolicySpec]
    rows: Sequence[Row]
    scores: Scores | None
    probes: Mapping[str, Probed | None]
    goes_on: Mapping[str, bool]
    planned: set[TakeKey]
    scorer: str = SCORERS[0]

    @property
    def scorers(self) -> tuple[str, ...]:
        """The scorers that were asked, the one that picks among them."""
        asked = tuple(self.scores.scorers) if self.scores is not None else ()
        return tuple(dict.fromkeys((*(asked or SCORERS), self.scorer)))


@dataclass(frozen=True)
class Arm:
    """The takes of one arm over the starts of a cell: (S, N) arrays, NaN where there is no take or no score."""

    outcomes: F64
    lengths: F64
    scores: Mapping[ScoreName, F64]

    @property
    def takes(self) -> int:
        """How many takes exist."""
        return int(np.isfinite(self.outcomes).sum())


@dataclass(frozen=True)
class CellData:
    """The arrays of a cell. ``units`` are its starts: (env, task, start)."""

    policy: str
    env: str
    group: str
    units: tuple[Unit, ...]
    arms: Mapping[str, Arm]
    windows: tuple[str, ...]
    scorer: str
    planned: int
    errors: int
    probe: Sequence[TaskProbe] = field(default_factory=tuple)
    probe_reason: str = ""
    deterministic: bool = False

    @property
    def kind(self) -> ScoreName:
        """The score that the verdict reads, on the leak-free window."""
        return ScoreName(self.scorer, self.windows[0])

    @property
    def scorers(self) -> tuple[str, ...]:
        """The scorers that were asked."""
        return tuple(dict.fromkeys(name.scorer for name in self.arms["base"].scores))

    @property
    def scored(self) -> bool:
        """Whether any take of the base arm has a score."""
        base = self.arms.get("base")
        return base is not None and bool(np.isfinite(base.scores[self.kind]).any())


def gather(recorded: Recorded) -> list[CellData]:
    """The arrays of every cell, in the plan's order."""
    rows = {row.key: row for row in recorded.rows if row.key in recorded.planned}
    cells = []
    for policy, spec in recorded.policies.items():
        keys = [key for key in recorded.planned if key.policy == policy]
        for env_uri, env in recorded.envs.items():
            for group in dict.fromkeys(task.group for task in env.tasks):
                tasks = [task.name for task in env.tasks if task.group == group]
                own = [k for k in keys if k.env == env_uri and k.task in tasks]
                if own:
                    cells.append(_cell_data(recorded, spec, env_uri, group, tasks, own, rows))
    return cells


def _cell_data(
    recorded: Recorded,
    spec: PolicySpec,
    env: str,
    group: str,
    tasks: list[str],
    keys: list[TakeKey],
    rows: Mapping[TakeKey, Row],
) -> CellData:
    plan, policy = recorded.plan, keys[0].policy
    units = sorted({(k.env, k.task, k.start) for k in keys}, key=lambda u: (tasks.index(u[1]), u[2]))
    windows = ("full", "common", "episode") if recorded.goes_on[env] else ("common", "episode")
    names = [ScoreName(scorer, window) for scorer in recorded.scorers for window in windows]
    arms: dict[str, Arm] = {}
    for arm in dict.fromkeys(plan.arms):
        if any(k.arm == arm for k in keys):
            named = [[TakeKey(policy, *unit[:2], unit[2], arm, seed) for seed in range(plan.seeds)] for unit in units]
            arms[arm] = _arm(named, rows, recorded.scores, names)
    probed = recorded.probes.get(policy)
    return CellData(
        policy=policy, env=env, group=group, units=tuple(units), arms=arms, windows=windows, scorer=recorded.scorer,
        planned=len(keys), errors=sum(k in rows and rows[k].status == "error" for k in keys),
        probe=[p for (uri, task), p in probed.tasks.items() if uri == env and task in tasks] if probed else (),
        probe_reason=probed.reason if probed else "", deterministic=spec.kind == "deterministic",
    )  # fmt: skip


def _arm(
    keys: list[list[TakeKey]], rows: Mapping[TakeKey, Row], scores: Scores | None, names: Iterable[ScoreName]
) -> Arm:
    shape = (len(keys), len(keys[0]))
    outcomes, lengths = np.full(shape, np.nan), np.full(shape, np.nan)
    kinds = {name: np.full(shape, np.nan) for name in names}
    for s, line in enumerate(keys):
        for n, key in enumerate(line):
            row = rows.get(key)
            if row is None or row.status != "done":
                continue
            outcomes[s, n] = float(bool(row.success))
            lengths[s, n] = row.success_step if row.success_step is not None else row.steps
            scored = scores.get(key) if scores is not None else None
            if scored is not None:
                for kind, values in kinds.items():
                    values[s, n] = scored.scores[kind]
    return Arm(outcomes, lengths, kinds)


def pool(policy: str, cells: Sequence[CellData]) -> CellData:
    """A policy's cells as one: all its starts count alike. Windows that not all cells have are left out."""
    windows = tuple(w for w in cells[0].windows if all(w in c.windows for c in cells))
    arms = {}
    for name in dict.fromkeys(name for c in cells for name in c.arms):
        parts = [c.arms[name] for c in cells if name in c.arms]
        if len(parts) == len(cells):
            kinds = [name for name in parts[0].scores if name.window in windows]
            arms[name] = Arm(
                np.concatenate([p.outcomes for p in parts]),
                np.concatenate([p.lengths for p in parts]),
                {kind: np.concatenate([p.scores[kind] for p in parts]) for kind in kinds},
            )
    return CellData(
        policy=policy, env=", ".join(dict.fromkeys(c.env for c in cells)), group="*",
        units=tuple(u for c in cells for u in c.units), arms=arms, windows=windows, scorer=cells[0].scorer,
        planned=sum(c.planned for c in cells), errors=sum(c.errors for c in cells),
        probe=[p for c in cells for p in c.probe], probe_reason=cells[0].probe_reason,
        deterministic=cells[0].deterministic,
    )  # fmt: skip


def start_means(data: CellData, arm: str) -> F64:
    """Mean success (S,) of each start in an arm; NaN everywhere when the arm was not run."""
    if arm not in data.arms:
        return np.full(len(data.units), np.nan)
    return headroom.start_pass_at_k(data.arms[arm].outcomes, 1)
