"""Rows and scores to the cells of ``result.json``: only bookkeeping here, every formula lives in `besttake.core`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from besttake import result as r
from besttake.core import extrapolate, headroom, probe, ranking, relation, select, stats
from besttake.measure.cells import Arm, CellData, Recorded, gather, pool, start_means
from besttake.measure.probes import Probed
from besttake.measure.scores import ScoreName
from besttake.measure.verdict import judge, look_key
from besttake.takes.key import TakeKey
from besttake.types import EnvSpec, PolicySpec

if TYPE_CHECKING:
    from besttake.config import Plan

F64 = NDArray[np.float64]


def measure(
    recorded: Recorded,
    each: Callable[[Callable[[CellData], r.Cell], list[CellData]], Iterable[r.Cell]] = map,
    looked: Mapping[str, Sequence[int]] | None = None,
) -> tuple[list[r.Cell], list[r.Cell], r.Relation]:
    """Cells, policies (their cells pooled), and the headroom relation; ``each`` is `map`, or a pool's.

    ``looked`` is what `looks_of` says about the run.
    """
    data = gather(recorded)
    pooled = [pool(policy, [c for c in data if c.policy == policy]) for policy in recorded.policies]
    cells = list(each(partial(cell, plan=recorded.plan, looked=looked), [*pooled, *data]))
    return cells[len(pooled) :], cells[: len(pooled)], relate(data, recorded.plan.n)


def count_cost(recorded: Recorded, seconds: Mapping[str, float], encoded: int) -> r.Cost:
    """What the takes of a plan took; ``encoded`` frames were embedded by this invocation."""
    done = [row for row in recorded.rows if row.status == "done" and row.key in recorded.planned]
    return r.Cost(
        takes=len(done),
        errors=sum(row.status == "error" for row in recorded.rows),
        steps=sum(row.steps for row in done),
        policy_calls=sum(row.calls for row in done),
        frames_scored=recorded.scores.frames if recorded.scores else 0,
        frames_encoded=encoded,
        seconds={name: round(value, 3) for name, value in seconds.items()},
    )


def probed_cells(
    plan: Plan, envs: Mapping[str, EnvSpec], policies: Mapping[str, PolicySpec], probes: Mapping[str, Probed]
) -> list[r.Cell]:
    """Cells that know nothing but their demonstration-fit error."""
    planned = {
        TakeKey(policy, uri, task.name, 0, "base", 0)
        for policy in policies for uri, env in envs.items() for task in env.tasks
        if not plan.task or task.name in plan.task
    }  # fmt: skip
    goes_on = dict.fromkeys(envs, False)
    data = gather(Recorded(plan, envs, policies, (), None, probes, goes_on, planned))
    pooled = [pool(policy, own) for policy in policies if (own := [c for c in data if c.policy == policy])]
    return [cell(c, plan) for c in (*data, *pooled)]


def cell(data: CellData, plan: Plan, looked: Mapping[str, Sequence[int]] | None = None) -> r.Cell:
    """One cell of the result."""
    before = (looked or {}).get(look_key(data.policy, data.env, data.group), ())
    base = data.arms["base"]
    takes = sum(arm.takes for arm in data.arms.values())
    some = base.takes > 0
    notes = []
    if not some:
        notes.append("no take of the base arm was finished, so nothing can be said")
    elif not data.scored:
        notes.append("no take has a score: headroom is known, selection is not")
    return r.Cell(
        policy=data.policy, env=data.env, group=data.group, starts=len(data.units), seeds=plan.seeds, takes=takes,
        errors=data.errors, missing=data.planned - takes - data.errors, window=data.windows[0], scorer=data.scorer,
        headroom=_headroom(base, plan.n) if some else None,
        selectors=_selectors(base, data, plan.n) if some else None,
        ranking=_ranking(base, data) if some and data.scored else None,
        dfe=_dfe(data, plan),
        arms=_arms(data, plan.n) if some else None,
        verdict=judge(data, plan.worth / 100, plan.n, before) if some else None,
        tasks=_tasks(data, plan.n),
        notes=notes,
        retest=_retest(base) if some else None,
    )  # fmt: skip


def estimate(value: stats.Estimate | probe.Estimate) -> r.Estimate:
    """A core estimate in the result's words."""
    if isinstance(value, probe.Estimate):
        known = np.isfinite(value.value)
        return (
            r.Estimate(value=value.value, low=value.low, high=value.high)
            if known
            else r.Estimate(reason="not measured")
        )
    return r.Estimate(value=value.value, low=value.low, high=value.high, n=value.n, reason=value.reason)


def _headroom(arm: Arm, n: int) -> r.Headroom:
    outcomes = arm.outcomes
    seeds = outcomes.shape[1]
    found = headroom.measure_headroom(outcomes, n)
    curve = []
    for k in range(1, seeds + 1):
        e = stats.mean_interval(headroom.start_pass_at_k(outcomes, k), stats.unit_scale())
        curve.append(r.CurvePoint(k=k, value=e.value, low=e.low, high=e.high))
    most = int(np.isfinite(outcomes).sum(axis=1).max())
    if most > 1:
        model = extrapolate.fit(outcomes)
        for k in range(seeds + 1, 2 * most + 1):
            ahead = extrapolate.extrapolate(outcomes, k, model)
            curve.append(r.CurvePoint(k=k, value=ahead.value, measured=False, bounds=(ahead.low, ahead.high)))
    gaps = headroom.start_headroom(outcomes, n)
    return r.Headroom(
        n=found.n, starts=found.starts, mixed=found.mixed, curve=curve,
        pass_1=r.Estimate(value=curve[0].value, low=curve[0].low, high=curve[0].high, n=found.starts),
        pass_n=r.Estimate(
            value=curve[found.n - 1].value, low=curve[found.n - 1].low, high=curve[found.n - 1].high, n=found.starts
        ),
        headroom=estimate(stats.mean_interval(gaps, stats.headroom_scale(n, _subsets(outcomes, n))))
        if found.n > 1 else r.Estimate(n=found.starts, reason="one take per start shows no headroom"),
    )  # fmt: skip


def _subsets(outcomes: F64, n: int) -> NDArray[np.int64] | None:
    """Takes per start where one is kept of fewer than there are seeds: they bound what a start can gain."""
    return None if n == outcomes.shape[1] else headroom.tally(outcomes)[0]


def _selector(arm: Arm, success: F64, gains: F64, n: int) -> r.Selector:
    scale = stats.gain_scale(n, _subsets(arm.outcomes, n)) if n > 1 else stats.pick_scale()
    headrooms = headroom.start_headroom(arm.outcomes, n)
    return r.Selector(
        success=estimate(stats.mean_interval(success, stats.unit_scale())),
        gain=estimate(stats.mean_interval(gains, scale)),
        capture=estimate(stats.capture_interval(gains, headrooms)),
    )


def _by_score(arm: Arm, scores: F64, n: int) -> r.Selector:
    success = select.start_selected(arm.outcomes, scores, n)
    return _selector(arm, success, select.start_gain(arm.outcomes, scores, n), n)


def _unscored(reason: str) -> r.Selector:
    missing = r.Estimate(reason=reason)
    return r.Selector(success=missing, gain=missing, capture=missing)


def _selectors(arm: Arm, data: CellData, n: int) -> r.Selectors:
    gaps = headroom.start_headroom(arm.outcomes, n)
    ones = headroom.start_pass_at_k(arm.outcomes, 1)
    scored = {
        scorer: {
            window: _by_score(arm, arm.scores[ScoreName(scorer, window)], n)
            if np.isfinite(arm.scores[ScoreName(scorer, window)]).any()
            else _unscored("no take has a score")
            for window in data.windows
        }
        for scorer in data.scorers
    }
    return r.Selectors(
        scored=scored,
        random=_selector(arm, ones, ones - ones, n),
        shortest=_by_score(arm, -arm.lengths, n),
        oracle=_selector(arm, headroom.start_pass_at_k(arm.outcomes, n), gaps, n),
        by_n=[_best_of(arm, data, k) for k in range(1, arm.outcomes.shape[1] + 1)],
    )


def _best_of(arm: Arm, data: CellData, k: int) -> r.Estimate | None:
    """Success of the chosen scorer with k takes per start, averaged over all subsets."""
    if not data.scored:
        return None
    return estimate(
        stats.mean_interval(select.start_selected(arm.outcomes, arm.scores[data.kind], k), stats.unit_scale())
    )


def _ranking(arm: Arm, data: CellData) -> r.Ranking:
    picks = select.pick(arm.scores[data.kind], arm.outcomes)

    def table(auc: str) -> dict[str, dict[str, r.Estimate]]:
        score = ranking.within_auc if auc == "within" else ranking.pooled_auc
        return {
            scorer: {w: estimate(score(arm.outcomes, arm.scores[ScoreName(scorer, w)])) for w in data.windows}
            for scorer in data.scorers
        }

    return r.Ranking(within=table("within"), pooled=table("pooled"), invalid=picks.invalid, blind=picks.blind)


def _dfe(data: CellData, plan: Plan) -> r.Dfe | None:
    if not data.probe:
        if not data.probe_reason:
            return None
        nothing = r.Estimate(reason=data.probe_reason)
        return r.Dfe(
            dfe=nothing, floor=nothing, ratio=nothing, correlation=nothing, spread=nothing, states=0,
            samples=plan.probe_samples, reason=data.probe_reason,
        )  # fmt: skip
    found = probe.probe(
        np.concatenate([p.samples for p in data.probe]),
        np.concatenate([p.demonstrated for p in data.probe]),
        np.concatenate([p.demo for p in data.probe]),
        np.concatenate([p.floor for p in data.probe]),
    )
    return r.Dfe(
        dfe=estimate(found.dfe), floor=estimate(found.floor), ratio=estimate(found.ratio),
        correlation=estimate(found.correlation), spread=estimate(found.spread),
        states=found.states, samples=found.samples,
    )  # fmt: skip


def _arms(data: CellData, n: int) -> r.Arms:
    base = data.arms["base"]
    ones = headroom.start_pass_at_k(base.outcomes, 1)
    seeds = base.outcomes.shape[1]
    found = {}
    for name, arm in data.arms.items():
        if not arm.takes:
            continue
        chosen = arm.scores[data.kind]
        scored = bool(np.isfinite(chosen).any())
        own = headroom.start_pass_at_k(arm.outcomes, 1)
        spread = stats.over_seeds(arm.outcomes)
        gain = _gain_over_seeds(arm.outcomes - base.outcomes) if name != "base" else None
        picked = select.start_selected(arm.outcomes, chosen, n) - ones if scored else np.full(len(ones), np.nan)
        found[name] = r.Arm(
            pass_1=estimate(stats.mean_interval(own, stats.unit_scale())),
            pass_n=estimate(stats.mean_interval(headroom.start_pass_at_k(arm.outcomes, n), stats.unit_scale())),
            gain=estimate(stats.mean_interval(own - ones, stats.difference_scale(seeds)))
            if name != "base" else r.Estimate(value=0.0, low=0.0, high=0.0, n=len(ones)),
            selected=_by_score(arm, chosen, n) if scored else None,
            selected_gain=estimate(stats.mean_interval(picked, stats.pick_scale())),
            seed_mean=spread.mean, seed_sd=spread.sd, takes=arm.takes, picked=_curves(arm, data),
            gain_seed_mean=gain.mean if gain else None, gain_seed_sd=gain.sd if gain else None,
        )  # fmt: skip
    return r.Arms(arms=found, content=estimate(content_gain(data)), combine=estimate(combine_gain(data, n)))


def _curves(arm: Arm, data: CellData) -> dict[str, list[float | None]]:
    """By window, the success of keeping the best of 1, 2, .. all seeds."""
    kinds = {window: arm.scores[ScoreName(data.scorer, window)] for window in data.windows}
    curves = {w: select.selection_curve(arm.outcomes, s) for w, s in kinds.items() if np.isfinite(s).any()}
    return {w: [float(v) if np.isfinite(v) else None for v in curve] for w, curve in curves.items()}


def _gain_over_seeds(differences: F64) -> stats.Spread | None:
    """Mean and sd over seeds of an arm's gain, where any take of the arm has its twin in base."""
    return stats.over_seeds(differences) if np.isfinite(differences).any() else None


def content_gain(data: CellData) -> stats.Estimate:
    """C: retrieve minus cooled, paired by start."""
    seeds = data.arms["base"].outcomes.shape[1]
    return stats.mean_interval(
        start_means(data, "retrieve") - start_means(data, "cooled"), stats.difference_scale(seeds)
    )


def combine_gain(data: CellData, n: int) -> stats.Estimate:
    """Selection of n on retrieve minus selection on base, paired by start (paper Table 3's last column)."""
    return stats.mean_interval(_picked(data, "retrieve", n) - _picked(data, "base", n), stats.pick_scale())


def _picked(data: CellData, arm: str, n: int) -> F64:
    """Success (S,) of the selector with n takes in an arm; NaN everywhere when the arm was not run or not scored."""
    if arm not in data.arms or not np.isfinite(data.arms[arm].scores[data.kind]).any():
        return np.full(len(data.units), np.nan)
    return select.start_selected(data.arms[arm].outcomes, data.arms[arm].scores[data.kind], n)


def _retest(arm: Arm) -> r.Retest | None:
    """Test-retest agreement, where some start has two takes."""
    if headroom.tally(arm.outcomes)[0].max() < 2:
        return None
    found = stats.retest(arm.outcomes)
    return r.Retest(agreement=estimate(found.agreement), kappa=estimate(found.kappa))


def _tasks(data: CellData, n: int) -> list[r.TaskLine]:
    base = data.arms["base"]
    lines = []
    for env, task in dict.fromkeys((unit[0], unit[1]) for unit in data.units):
        rows = np.array([unit[:2] == (env, task) for unit in data.units])
        outcomes = base.outcomes[rows]
        gains = _picked(data, "base", n)[rows] - start_means(data, "base")[rows]
        lines.append(
            r.TaskLine(
                env=env, task=task, starts=int(rows.sum()), takes=int(np.isfinite(outcomes).sum()),
                errors=int(np.isnan(outcomes).sum()),
                pass_1=estimate(stats.mean_interval(headroom.start_pass_at_k(outcomes, 1), stats.unit_scale())),
                pass_n=estimate(stats.mean_interval(headroom.start_pass_at_k(outcomes, n), stats.unit_scale())),
                gain=estimate(stats.mean_interval(gains, stats.gain_scale(max(n, 2), _subsets(outcomes, n)))),
            )
        )  # fmt: skip
    return lines


def relate(cells: Sequence[CellData], n: int) -> r.Relation:
    """The headroom relation of a choice among n over cells that have scores and more than one take per start."""
    usable = [c for c in cells if c.scored and c.arms["base"].outcomes.shape[1] > 1]
    return relation_of(
        [
            relation.Cell(
                policy=c.policy,
                group=c.group,
                headroom=headroom.start_headroom(c.arms["base"].outcomes, n),
                gain=_picked(c, "base", n) - start_means(c, "base"),
            )
            for c in usable
        ]
    )


def relation_of(cells: Sequence[relation.Cell]) -> r.Relation:
    """`core.relation` in the result's words."""
    found = relation.relate(cells)
    means = [(headroom.mean(np.asarray(c.gain)), headroom.mean(np.asarray(c.headroom))) for c in cells]
    captures = [c for c in (select.capture(*pair) for pair in means) if c is not None]
    line = found.line
    return r.Relation(
        cells=len(cells), r=found.r.value, ci=_ends(found.r), ci_nested=_ends(found.r_nested),
        spearman=estimate(found.spearman),
        disjoint=r.Split(
            mean=found.disjoint.mean, sd=found.disjoint.sd, splits=found.disjoint.count, reason=found.disjoint.reason
        ),
        within={name: estimate(e) for name, e in found.within.items()},
        leave_one_out={name: estimate(e) for name, e in found.leave_one_out.items()},
        fit=None if line is None else r.Fit(
            slope=line.slope, intercept=line.intercept, x=line.x.tolist(), low=line.low.tolist(),
            high=line.high.tolist(),
        ),
        capture_mean=float(np.mean(captures)) if captures else None,
        capture_sd=float(np.std(captures, ddof=1)) if len(captures) > 1 else None,
        reason=found.r.reason,
    )  # fmt: skip


def _ends(value: stats.Estimate) -> tuple[float, float] | None:
    return None if value.low is None or value.high is None else (value.low, value.high)
