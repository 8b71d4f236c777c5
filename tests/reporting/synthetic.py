"""A synthetic run directory of any size: real store, real films, real scores file, numbers from the real statistics.

The policies are coins of known bias, so that no simulator is needed; everything that the report reads is real.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from besttake.core.probe import Probe
from besttake.core.relation import FittedLine, SplitHalfCorrelation
from besttake.measure.arrays import ArmTakes, CellData, Settings
from besttake.measure.cell import measure_cell
from besttake.reporting.words import with_headline
from besttake.result import Cell, Cost, Estimate, Relation, Result
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.scores import SCORE_NAMES, SCORERS, ScoreName, Scores, TakeScore
from besttake.takes.store import Store
from besttake.takes.take import Film, Take

ARMS = ("base", "cooled", "shuffled", "retrieve")
WORTH = 0.03
WINDOWS = ("full", "common", "episode")
DFE = Probe(
    dfe=Estimate(value=0.52, low=0.49, high=0.55, n=400),
    floor=Estimate(value=0.38, low=0.36, high=0.4, n=400),
    ratio=Estimate(value=0.52 / 0.38, low=1.27, high=1.48, n=400),
    correlation=Estimate(value=0.81, low=0.77, high=0.85, n=400),
    spread=Estimate(value=0.21, low=0.2, high=0.22, n=400),
    mean_square=Estimate(reason="not measured"),
    states=400,
    samples=3,
)


@dataclass(frozen=True)
class Shape:
    """How large the run is, and how it is named."""

    policies: tuple[str, ...] = ("testbed:half", "testbed:mid")
    tasks: tuple[str, ...] = ("pick", "push", "drawer")
    starts: int = 10
    seeds: int = 3
    arms: tuple[str, ...] = ARMS
    side: int = 64
    frames: int = 12
    scored: bool = True
    rate: float | None = None
    error: str | None = None
    alike: bool = False
    """All policies have the numbers of the first one in the result: a large run is made sooner."""


def build(run: Path, shape: Shape | None = None) -> Result:
    """Write a run of ``shape`` with its ``result.json``; returns the result."""
    shape = shape or Shape()
    rng = np.random.default_rng(7)
    films = [Film.pack(_film(shape, i)) for i in range(6)]
    outcomes, scores, table = {}, {}, {}
    manifest = Manifest(plan={"starts": shape.starts})
    # Nobody pulls the plug on a synthetic run, and syncing each of its files takes most of the time.
    with patch("os.fsync"), Store.write(run, manifest) as store:
        for p, policy in enumerate(shape.policies):
            for t, task in enumerate(shape.tasks):
                chance = rng.beta(1.2 + p, 1.2 + 0.3 * t, size=shape.starts)
                if shape.rate is not None:
                    chance[:] = shape.rate
                for a, arm in enumerate(shape.arms):
                    lift = np.clip(chance + (0.0, 0.05, 0.03, 0.12)[a] * (chance > 0) * (chance < 1), 0, 1)
                    y = (rng.random((shape.starts, shape.seeds)) < lift[:, None]).astype(float)
                    s = 0.8 + 0.1 * y + rng.normal(0, 0.05, y.shape)
                    outcomes[policy, task, arm], scores[policy, task, arm] = y, s
                    for start in range(shape.starts):
                        for seed in range(shape.seeds):
                            key = TakeKey(policy, "testbed", task, start, arm, seed)
                            if shape.error and arm == "base" and start == 0 and seed == 0:
                                store.add_error(key, shape.error)
                                y[start, seed] = np.nan
                                continue
                            take = _take(key, films[(start + seed) % len(films)], bool(y[start, seed]), shape)
                            store.add(take)
                            table[key] = _score(take, float(s[start, seed]), rng)
        if shape.scored:
            Scores(table, dict.fromkeys(SCORERS, "1")).save(store)
        digest, name = store.digest(), store.manifest.run
    result = _result(shape, outcomes, scores if shape.scored else None, digest).model_copy(update={"run": name})
    result.save(run / "result.json")
    return result


def empty(run: Path) -> Result:
    """A run that was stopped before its first take."""
    with Store.write(run, Manifest()) as store:
        name = store.manifest.run
    result = _result(Shape(policies=(), tasks=()), {}, None, "").model_copy(update={"run": name})
    result.save(run / "result.json")
    return result


def _film(shape: Shape, phase: int) -> np.ndarray:
    y, x = np.mgrid[: shape.side, : shape.side] / shape.side
    frames = np.zeros((shape.frames, shape.side, shape.side, 3), np.uint8)
    for f in range(shape.frames):
        at = 0.2 + 0.6 * f / max(1, shape.frames - 1)
        disk = (x - at) ** 2 + (y - 0.3 - 0.08 * phase) ** 2 < 0.015
        frames[f] = np.where(disk[..., None], (230, 120, 40), np.stack([60 + 60 * y, 90 + 40 * x, 120 + 20 * y], -1))
    return frames


def _take(key: TakeKey, film: Film, success: bool, shape: Shape) -> Take:
    steps = 5 * (shape.frames - 1)
    return Take(
        key=key,
        success_step=steps * 2 // 3 + key.seed if success else None,
        actions=np.zeros((steps, 4), np.float32),
        states=np.zeros((steps + 1, 6), np.float32),
        film=film,
        frame_steps=np.arange(0, steps + 1, 5, dtype=np.int32),
        calls=6,
    )


def _score(take: Take, value: float, rng: np.random.Generator) -> TakeScore:
    best = (value + np.cumsum(rng.normal(0, 0.01, len(take.frame_steps)))).clip(0, 1).astype(np.float32)
    nearest = rng.integers(0, 40, len(best))
    return TakeScore(take.frame_steps, best, nearest, dict.fromkeys(SCORE_NAMES, value))


def _cell(policy: str, group: str, shape: Shape, outcomes: dict, scores: dict | None) -> Cell:
    tasks = shape.tasks if group == "*" else (group,)
    arms = {}
    for arm in shape.arms:
        y = np.concatenate([outcomes[policy, task, arm] for task in tasks])
        s = np.concatenate([scores[policy, task, arm] for task in tasks]) if scores is not None else y + np.nan
        lengths = np.where(np.isnan(y), np.nan, np.where(y == 1, 40.0, 60.0))
        arms[arm] = ArmTakes(y, lengths, {ScoreName("manifold", w): s for w in WINDOWS})
    units = tuple(("testbed", task, start) for task in tasks for start in range(shape.starts))
    taken = sum(arm.takes for arm in arms.values())
    planned = len(units) * len(arms) * shape.seeds
    data = CellData(policy, "testbed", group, units, arms, WINDOWS, "manifold", planned, planned - taken)
    cell = with_headline(measure_cell(data, Settings(shape.seeds, shape.seeds, WORTH)))
    if scores is None:
        cell = cell.model_copy(update={"selectors": None})
    return cell.model_copy(update={"dfe": DFE})


def _result(shape: Shape, outcomes: dict, scores: dict | None, digest: str) -> Result:
    measured = {}

    def cell(policy: str, group: str) -> Cell:
        own = shape.policies[0] if shape.alike else policy
        if (own, group) not in measured:
            measured[own, group] = _cell(own, group, shape, outcomes, scores)
        return measured[own, group].model_copy(update={"policy": policy})

    cells = [cell(policy, task) for policy in shape.policies for task in shape.tasks]
    policies = [cell(policy, "*") for policy in shape.policies]
    return Result(
        besttake="0.1.0",
        created="2026-01-02T03:04:05Z",
        command="besttake diagnose --policy testbed:half --env testbed -o run",
        digest=digest,
        plan={"policy": list(shape.policies), "starts": shape.starts},
        versions={"python": "3.11.9", "numpy": "2.2.0"},
        library={"demos": 40, "frames": 1234},
        worth=WORTH,
        cells=cells,
        policies=policies,
        relation=_relation(cells, shape),
        cost=Cost(
            takes=sum(cell.takes for cell in cells),
            errors=sum(cell.errors for cell in cells),
            steps=12345,
            policy_calls=2345,
            frames_scored=3456,
            frames_encoded=3456,
            seconds={"rollouts": 31.2, "scoring": 4.1},
        ),
    )


def _relation(cells: list[Cell], shape: Shape) -> Relation:
    xy = [
        (c.headroom.headroom.value, c.selectors.scored["manifold"]["full"].gain.value)
        for c in cells
        if c.headroom and c.selectors
    ]
    split = SplitHalfCorrelation(mean=None, sd=None, splits=0, reason="too few cells")
    xs = [x for x, _ in xy]
    if len(xy) < 3 or np.std(xs) == 0:
        return Relation(
            cells=len(xy), r=None, interval=None, spearman=None, disjoint=split, within={}, leave_one_out={}, fit=None,
            capture_mean=None, capture_sd=None, reason="fewer than three cells have a headroom and a gain",
        )  # fmt: skip
    x, y = np.array(xy).T
    slope, intercept = np.polyfit(x, y, 1)
    grid = np.linspace(0, x.max(), 20)
    return Relation(
        cells=len(xy),
        r=float(np.corrcoef(x, y)[0, 1]),
        interval=(0.52, 0.98),
        spearman=Estimate(value=0.88, low=0.41, high=0.99, n=len(xy)),
        disjoint=SplitHalfCorrelation(mean=0.78, sd=0.11, splits=50),
        within=dict.fromkeys(shape.policies, Estimate(value=0.8, low=0.3, high=0.97, n=3)),
        leave_one_out=dict.fromkeys(shape.policies, Estimate(value=0.82, low=0.4, high=0.96, n=3)),
        fit=FittedLine(
            slope=float(slope),
            intercept=float(intercept),
            x=[float(v) for v in grid],
            low=[float(v) for v in intercept + slope * grid - 0.02],
            high=[float(v) for v in intercept + slope * grid + 0.02],
        ),
        capture_mean=0.71,
        capture_sd=0.2,
    )
