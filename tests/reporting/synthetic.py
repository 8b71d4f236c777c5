"""A synthetic run directory of any size: real store, real films, real scores file, numbers from the real statistics.

The policies are coins of known bias, so that no simulator is needed; everything that the report reads is real.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from besttake.core.headroom import as_outcomes, measure_headroom, start_headroom, start_pass_at_k
from besttake.core.select import start_gain, start_selected
from besttake.core.stats import Estimate as CoreEstimate
from besttake.core.stats import (
    capture_interval,
    difference_scale,
    gain_scale,
    headroom_scale,
    mean_interval,
    over_seeds,
    pick_scale,
    unit_scale,
)
from besttake.core.verdict import Evidence, decide
from besttake.measure.scores import SCORE_NAMES, Scores, TakeScore
from besttake.result import (
    Arm,
    Arms,
    Cell,
    Cost,
    CurvePoint,
    Dfe,
    Estimate,
    Finding,
    Fit,
    Headroom,
    Ranking,
    Relation,
    Result,
    Selector,
    Selectors,
    Split,
    TaskLine,
    Verdict,
)
from besttake.takes.film import Film
from besttake.takes.store import Store
from besttake.takes.take import Take, TakeKey

ARMS = ("base", "cooled", "shuffled", "retrieve")
WORTH = 0.03


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


def build(run: Path, shape: Shape | None = None) -> Result:
    """Write a run of ``shape`` with its ``result.json``; returns the result."""
    shape = shape or Shape()
    rng = np.random.default_rng(7)
    films = [Film.pack(_film(shape, i)) for i in range(6)]
    outcomes, scores, table = {}, {}, {}
    manifest = {"identity": {}, "extent": {}, "library": None, "plan": {"starts": shape.starts}}
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
            Scores(table, "synthetic").save(store)
        digest = store.digest()
    result = _result(shape, outcomes, scores if shape.scored else None, digest)
    result.save(run / "result.json")
    return result


def empty(run: Path) -> Result:
    """A run that was stopped before its first take."""
    with Store.write(run, {"identity": {}, "extent": {}, "library": None, "plan": {}}):
        pass
    result = _result(Shape(policies=(), tasks=()), {}, None, "")
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


def _est(found: CoreEstimate) -> Estimate:
    return Estimate(value=found.value, low=found.low, high=found.high, n=found.n, reason=found.reason)


def _selector(y: np.ndarray, s: np.ndarray) -> Selector:
    n = y.shape[1]
    gains = start_gain(y, s)
    return Selector(
        success=_est(mean_interval(start_selected(y, s), unit_scale())),
        gain=_est(mean_interval(gains, gain_scale(n))),
        capture=_est(capture_interval(gains, start_headroom(y))),
    )


def _headroom(y: np.ndarray) -> Headroom:
    found = measure_headroom(y)
    points = [
        CurvePoint(k=k + 1, value=v, low=e.low, high=e.high)
        for k, v in enumerate(found.curve)
        for e in [mean_interval(start_pass_at_k(y, k + 1), unit_scale())]
    ]
    if 0 < found.pass_1 < 1 and found.n > 1:
        rest = 1 - found.pass_n
        points += [
            CurvePoint(
                k=found.n + j, value=1 - rest * 0.85**j, measured=False, bounds=(found.pass_n, 1 - rest * 0.5**j)
            )
            for j in range(1, found.n + 1)
        ]
    return Headroom(
        n=found.n,
        starts=found.starts,
        mixed=found.mixed,
        pass_1=_est(mean_interval(start_pass_at_k(y, 1), unit_scale())),
        pass_n=_est(mean_interval(start_pass_at_k(y, found.n), unit_scale())),
        headroom=_est(mean_interval(start_headroom(y), headroom_scale(max(2, found.n)))),
        curve=points,
    )


def _cell(policy: str, group: str, shape: Shape, outcomes: dict, scores: dict | None) -> Cell:
    tasks = shape.tasks if group == "*" else (group,)
    y = {arm: np.concatenate([outcomes[policy, task, arm] for task in tasks]) for arm in shape.arms}
    s = None
    if scores is not None:
        s = {arm: np.concatenate([scores[policy, task, arm] for task in tasks]) for arm in shape.arms}
    base = as_outcomes(y["base"])
    n = base.shape[1]
    taken = int(np.isfinite(base).sum())
    nothing = Estimate(reason="there is no score")
    selectors = ranking = None
    if s is not None:
        own = _selector(base, s["base"])
        lengths = -np.where(base == 1, 40.0, 60.0)
        zero = Estimate(value=0.0, low=0.0, high=0.0, n=len(base))
        first = _est(mean_interval(start_pass_at_k(base, 1), unit_scale()))
        selectors = Selectors(
            scored={
                "manifold": {"full": own, "common": own, "episode": own},
            },
            random=Selector(success=first, gain=zero, capture=Estimate(reason="random")),
            shortest=_selector(base, lengths),
            oracle=_selector(base, np.nan_to_num(base)),
            by_n=[_est(mean_interval(start_selected(base, s["base"], k), unit_scale())) for k in range(1, n + 1)],
        )
        auc = Estimate(value=0.83, low=0.74, high=0.9, n=9)
        ranking = Ranking(within={"manifold": {"full": auc}}, pooled={"manifold": {"full": auc}}, invalid=0, blind=0)
    arms = {}
    for arm in shape.arms:
        pair = start_pass_at_k(y[arm], 1) - start_pass_at_k(base, 1)
        chosen = start_selected(y[arm], s[arm]) - start_pass_at_k(base, 1) if s is not None else None
        spread, gain_spread = over_seeds(y[arm]), over_seeds(y[arm] - base)
        arms[arm] = Arm(
            pass_1=_est(mean_interval(start_pass_at_k(y[arm], 1), unit_scale())),
            pass_n=_est(mean_interval(start_pass_at_k(y[arm], n), unit_scale())),
            gain=_est(mean_interval(pair, difference_scale(n))),
            selected=_selector(y[arm], s[arm]) if s is not None else None,
            selected_gain=nothing if chosen is None else _est(mean_interval(chosen, pick_scale())),
            seed_mean=spread.mean,
            seed_sd=spread.sd,
            gain_seed_mean=gain_spread.mean if arm != "base" else None,
            gain_seed_sd=gain_spread.sd if arm != "base" else None,
            takes=int(np.isfinite(y[arm]).sum()),
        )
    content = combine = None
    if "retrieve" in shape.arms:
        content = start_pass_at_k(y["retrieve"], 1) - start_pass_at_k(y["cooled"], 1)
        if s is not None:
            combine = start_selected(y["retrieve"], s["retrieve"]) - start_selected(base, s["base"])
    verdict = _verdict(y, s, n, content, combine)
    lines = [
        _line(task, outcomes[policy, task, "base"], scores[policy, task, "base"] if scores else None) for task in tasks
    ]
    return Cell(
        policy=policy,
        env="testbed",
        group=group,
        starts=len(base),
        seeds=n,
        takes=taken,
        errors=int(base.size - taken),
        missing=0,
        window="full",
        scorer="manifold",
        headroom=_headroom(base),
        selectors=selectors,
        ranking=ranking,
        dfe=Dfe(
            dfe=Estimate(value=0.52, low=0.49, high=0.55, n=400),
            floor=Estimate(value=0.38, low=0.36, high=0.4, n=400),
            ratio=Estimate(value=0.52 / 0.38, low=1.27, high=1.48, n=400),
            correlation=Estimate(value=0.81, low=0.77, high=0.85, n=400),
            spread=Estimate(value=0.21, low=0.2, high=0.22, n=400),
            states=400,
            samples=3,
        ),
        arms=Arms(
            arms=arms,
            content=nothing if content is None else _est(mean_interval(content, difference_scale(n))),
            combine=nothing if combine is None else _est(mean_interval(combine, pick_scale())),
        ),
        verdict=verdict,
        tasks=lines,
        notes=[],
    )


def _verdict(y: dict, s: dict | None, n: int, content: np.ndarray | None, combine: np.ndarray | None) -> Verdict:
    base = y["base"]
    found = decide(
        Evidence(
            headroom=start_headroom(base),
            gain=start_gain(base, s["base"]) if s is not None else None,
            shortest=start_gain(base, -np.where(base == 1, 40.0, 60.0)),
            retrieve=start_pass_at_k(y["retrieve"], 1) - start_pass_at_k(base, 1) if "retrieve" in y else None,
            cooled=start_pass_at_k(y["cooled"], 1) - start_pass_at_k(base, 1) if "cooled" in y else None,
            content=content,
            combine=combine,
            n=n,
        ),
        WORTH,
    )
    findings = {
        name: Finding(
            answer=part.choice, gain=_est(part.gain), cost=part.cost, further_starts=part.further, because=part.sentence
        )
        for name, part in (("reuse", found.reuse), ("retrieve", found.retrieve), ("combine", found.combine))
    }
    head = f"{findings['reuse'].answer} / {findings['retrieve'].answer}: {findings['reuse'].because}"
    return Verdict(**findings, headline=head, leak=found.reuse.length_leak)


def _line(task: str, y: np.ndarray, s: np.ndarray | None) -> TaskLine:
    room = _headroom(y)
    gain = _selector(y, s).gain if s is not None else Estimate(reason="there is no score")
    return TaskLine(
        env="testbed",
        task=task,
        starts=len(y),
        takes=int(np.isfinite(y).sum()),
        errors=int(np.isnan(y).sum()),
        pass_1=room.pass_1,
        pass_n=room.pass_n,
        gain=gain,
    )


def _result(shape: Shape, outcomes: dict, scores: dict | None, digest: str) -> Result:
    pairs = [(policy, task) for policy in shape.policies for task in shape.tasks]
    cells = [_cell(policy, task, shape, outcomes, scores) for policy, task in pairs]
    policies = [_cell(policy, "*", shape, outcomes, scores) for policy in shape.policies]
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
    split = Split(mean=None, sd=None, splits=0, reason="too few cells")
    xs = [x for x, _ in xy]
    if len(xy) < 3 or np.std(xs) == 0:
        return Relation(
            cells=len(xy), r=None, ci=None, spearman=None, disjoint=split, within={}, leave_one_out={}, fit=None,
            capture_mean=None, capture_sd=None, reason="fewer than three cells have a headroom and a gain",
        )  # fmt: skip
    x, y = np.array(xy).T
    slope, intercept = np.polyfit(x, y, 1)
    grid = np.linspace(0, x.max(), 20)
    return Relation(
        cells=len(xy),
        r=float(np.corrcoef(x, y)[0, 1]),
        ci=(0.61, 0.97),
        ci_nested=(0.52, 0.98),
        spearman=Estimate(value=0.88, low=0.41, high=0.99, n=len(xy)),
        disjoint=Split(mean=0.78, sd=0.11, splits=50),
        within=dict.fromkeys(shape.policies, Estimate(value=0.8, low=0.3, high=0.97, n=3)),
        leave_one_out=dict.fromkeys(shape.policies, Estimate(value=0.82, low=0.4, high=0.96, n=3)),
        fit=Fit(
            slope=float(slope),
            intercept=float(intercept),
            x=[float(v) for v in grid],
            low=[float(v) for v in intercept + slope * grid - 0.02],
            high=[float(v) for v in intercept + slope * grid + 0.02],
        ),
        capture_mean=0.71,
        capture_sd=0.2,
    )
