"""Measure cells for ``result.json``. This is only bookkeeping: every formula is in `besttake.core`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from besttake import result as r
from besttake.arms import BASE
from besttake.core import headroom, probe, relation, select, stats
from besttake.core.policy_pool import Pool, pools
from besttake.core.sequential import RepeatedLooks
from besttake.core.stats import Estimate, Finding
from besttake.measure.arrays import ArmTakes, CellData, RunData, ScoredTakes, Settings, cells_of, merge_cells, truncate
from besttake.measure.looks import CellHistory, History, cell_name, looks_at, looks_until
from besttake.measure.until import path_of
from besttake.measure.verdict import answer, beyond_control, judge, question, questions_of
from besttake.types import F64

Findings = Mapping[str, Finding]
_DRAWS = 2_000
_FOLDS = 5


def measure(
    run: RunData,
    history: History,
    each: Callable[[Callable[[CellData], r.Cell], list[CellData]], Iterable[r.Cell]] = map,
) -> tuple[list[r.Cell], list[r.Cell], r.Relation, list[Pool]]:
    """Measure every cell and policy (its cells merged), the headroom relation, and what policies add to each other.

    ``history`` has the earlier looks at the run (`looks.load_history`). ``each`` is `map`, or that of a pool.
    """
    data = cells_of(run)
    merged = [_merged(policy, [c for c in data if c.policy == policy], run) for policy in run.policies]
    cells = list(each(partial(measure_cell, settings=run.settings, history=history), [*merged, *data]))
    if run.settings.places is not None:
        cells = [_with_path(cell, arrays, run) for cell, arrays in zip(cells, [*merged, *data], strict=True)]
    return cells[len(merged) :], cells[: len(merged)], relate(data, run.settings.n), _pools(merged)


def _pools(merged: Sequence[CellData]) -> list[Pool]:
    data = {cell.policy: cell for cell in merged if BASE in cell.arms}
    outcomes = {policy: cell.arms[BASE].outcomes for policy, cell in data.items()}
    scores = {policy: cell.arms[BASE].score(cell.score_name) for policy, cell in data.items()}
    return pools({policy: cell.units for policy, cell in data.items()}, outcomes, scores)


def _merged(policy: str, cells: Sequence[CellData], run: RunData) -> CellData:
    """A policy's cells as one; in a run until decided, each arm only up to the first start that it skipped."""
    merged, places = merge_cells(policy, cells), run.settings.places
    return merged if places is None or len(cells) == 1 else truncate(merged, run.planned, places)


def _with_path(cell: r.Cell, data: CellData, run: RunData) -> r.Cell:
    if cell.verdict is None:
        return cell
    stop = run.stops[cell_name(data.policy, data.env, data.group)]
    return cell.model_copy(update={"path": path_of(data, run.settings, stop)})


def count_cost(run: RunData, seconds: Mapping[str, float], encoded: int, played: int) -> r.Cost:
    """The cost of a run, of which this invocation embedded ``encoded`` frames and played ``played`` takes."""
    done = [row for row in run.rows if row.status == "done" and row.key in run.planned]
    return r.Cost(
        takes=len(done),
        errors=sum(row.status == "error" for row in run.rows),
        steps=sum(row.steps for row in done),
        policy_calls=sum(row.calls for row in done),
        frames_scored=run.scores.frames if run.scores else 0,
        frames_encoded=encoded,
        seconds={name: round(value, 3) for name, value in seconds.items()},
        made=played,
    )


def measure_cell(data: CellData, settings: Settings, history: History | None = None) -> r.Cell:
    """Measure one cell. Each question is estimated once, and every part of the result uses that estimate."""
    takes = sum(arm.takes for arm in data.arms.values())
    cell = r.Cell(
        policy=data.policy, env=data.env, group=data.group, starts=len(data.units), spare=data.spare,
        seeds=settings.seeds, takes=takes,
        errors=data.errors, missing=data.planned - takes - data.errors, window=data.windows[0], scorer=data.scorer,
        dfe=_dfe(data, settings.probe_samples),
    )  # fmt: skip
    base = data.arms.get(BASE)
    if base is None or not base.takes:
        return cell.model_copy(update={"notes": ["no take of the base arm was finished, so nothing can be said"]})
    past = (history or {}).get(cell_name(data.policy, data.env, data.group), CellHistory())
    now, places = (data.played, settings.seeds), settings.places
    looks = looks_at(data.units, now, past) if places is None else looks_until(data.units, places)
    arms = {name: arm.scored_by(data.score_name) for name, arm in data.arms.items()}
    questions = questions_of(arms, settings.n, settings.controls)
    findings = answer(questions, settings.worth, looks)
    selectors = _selectors(data, findings, looks, settings.n)
    verdict = judge(data, settings, questions, findings, looks, past)
    update = {
        "headroom": _headroom(base.outcomes, findings, settings.n),
        "selectors": selectors,
        "ranking": _ranking(base, data) if data.scored else None,
        "arms": _arms(data, findings, selectors, settings),
        "verdict": verdict,
        "tasks": _tasks(data, findings, settings.n),
        "notes": _notes(data, settings.n),
        "rejection": rejection_of(data, settings.n, verdict.recommended.arm if verdict.recommended.takes > 1 else BASE),
    }
    return cell.model_copy(update=update)


def _notes(data: CellData, n: int) -> list[str]:
    """Notes for readers of the cell's numbers."""
    base, notes = data.arms[BASE], []
    if not data.scored:
        by = f" by {data.scorer}" if any(base.score(name) is not None for name in base.scores) else ""
        notes.append(f"no take has a score{by}: headroom is known, selection is not")
    takes = np.stack([headroom.tally(arm.outcomes)[0] for arm in data.arms.values() if arm.takes])
    short = int(np.sum(((takes > 0) & (takes < n)).any(axis=0)))
    if short:
        notes.append(
            f"{short} of {len(data.units)} starts lack takes: the best of fewer than {n} gains less, so they count in"
            " every estimate, but not where a gain from keeping the best is ruled out"
        )
    return notes


def _headroom(outcomes: F64, findings: Findings, n: int) -> r.Headroom:
    seeds = outcomes.shape[1]
    passes = [_success(headroom.start_pass_at_k(outcomes, k)) for k in range(1, seeds + 1)]
    takes, wins = headroom.tally(outcomes)
    mixed = int(np.sum((wins > 0) & (wins < takes)))
    return r.Headroom(
        n=n, starts=int(np.sum(takes > 0)), mixed=mixed, curve=passes, pass_1=passes[0], pass_n=passes[n - 1],
        headroom=findings["headroom"].estimate,
    )  # fmt: skip


def _success(values: F64) -> Estimate:
    return stats.mean_interval(values, stats.unit_scale())


def _selector(outcomes: F64, selection: select.Selection, gain: Estimate) -> r.Selector:
    gaps = headroom.start_headroom(outcomes, selection.n)
    return r.Selector(
        success=_success(selection.successes), gain=gain, capture=stats.capture_interval(selection.gains, gaps)
    )


def _selectors(data: CellData, findings: Findings, looks: RepeatedLooks, n: int) -> r.Selectors:
    base = data.arms[BASE]
    outcomes, takes = base.outcomes, headroom.tally(base.outcomes)[0]

    def gain(selection: select.Selection) -> Estimate:
        return question("", "choice", selection.gains, n, takes, seeds=outcomes.shape[1]).estimate(looks)

    scored: dict[str, dict[str, r.Selector]] = {}
    for name in base.scores:
        scores = base.score(name)
        if scores is None:
            missing = Estimate(reason="no take has a score")
            selector = r.Selector(success=missing, gain=missing, capture=missing)
        else:
            selection = select.select(outcomes, scores, n)
            estimate = findings["gain"].estimate if name == data.score_name else gain(selection)
            selector = _selector(outcomes, selection, estimate).model_copy(update={"leak": data.leaks(name)})
        scored.setdefault(name.scorer, {})[name.window] = selector
    blind, deciding = select.random(outcomes, n), base.score(data.score_name)
    shortest = findings["shortest"].estimate if "shortest" in findings else Estimate(reason="no take has a length")
    counts = range(1, outcomes.shape[1] + 1)
    return r.Selectors(
        scored=scored,
        random=_selector(outcomes, blind, gain(blind)),
        shortest=_selector(outcomes, select.shortest(outcomes, base.lengths, n), shortest),
        oracle=_selector(outcomes, select.oracle(outcomes, n), findings["headroom"].estimate),
        by_n=[None if deciding is None else _success(select.select(outcomes, deciding, k).successes) for k in counts],
    )


def _ranking(arm: ArmTakes, data: CellData) -> r.Ranking:
    picks = select.pick(arm.scores[data.score_name], arm.outcomes)
    within: dict[str, dict[str, Estimate]] = {}
    pooled: dict[str, dict[str, Estimate]] = {}
    for (scorer, window), scores in arm.scores.items():
        within.setdefault(scorer, {})[window] = select.within_auc(arm.outcomes, scores)
        pooled.setdefault(scorer, {})[window] = select.pooled_auc(arm.outcomes, scores)
    return r.Ranking(within=within, pooled=pooled, invalid=picks.invalid, blind=picks.blind)


def _dfe(data: CellData, samples: int) -> probe.Probe | None:
    if not data.probe:
        if not data.probe_reason:
            return None
        missing = Estimate(reason=data.probe_reason)
        return probe.Probe(missing, missing, missing, missing, missing, missing, 0, samples, data.probe_reason)
    parts = ("samples", "demonstrated", "demo", "floor")
    return probe.probe(*(np.concatenate([getattr(task, name) for task in data.probe]) for name in parts))


def _arms(data: CellData, findings: Findings, selectors: r.Selectors, settings: Settings) -> r.Arms:
    arms = {name: _arm(data, name, findings, settings) for name, arm in data.arms.items() if arm.takes}
    if data.scored:
        selected = selectors.scored[data.scorer][data.windows[0]]
        arms[BASE] = arms[BASE].model_copy(update={"selected": selected})
    return r.Arms(arms=arms, content=_estimate(findings, "content"), combine=_estimate(findings, "combine"))


def _estimate(findings: Findings, name: str) -> Estimate:
    return findings[name].estimate if name in findings else Estimate(reason="not measured")


def _arm(data: CellData, name: str, findings: Findings, settings: Settings) -> r.ArmResult:
    arm, base, n, control = data.arms[name], data.arms[BASE], settings.n, settings.controls.get(name)
    scores = arm.score(data.score_name)
    mean_over_seeds, sd_over_seeds = stats.over_seeds(arm.outcomes)
    paired = arm.outcomes - base.outcomes
    gains = stats.over_seeds(paired) if name != BASE and np.isfinite(paired).any() else (None, None)
    selected = None
    if scores is not None and name != BASE:
        selection = select.select(arm.outcomes, scores, n)
        selected = _selector(arm.outcomes, selection, findings[f"{name}_selection"].estimate)
    return r.ArmResult(
        pass_1=_success(data.start_means(name)),
        pass_n=_success(headroom.start_pass_at_k(arm.outcomes, n)),
        gain=findings[name].estimate if name != BASE else Estimate(0.0, 0.0, 0.0, len(data.units)),
        selected=selected,
        selected_gain=_estimate(findings, "gain" if name == BASE else f"{name}_selected"),
        seed_mean=mean_over_seeds, seed_sd=sd_over_seeds, takes=arm.takes, picked=_curves(arm, data),
        control=control, beyond_control=_estimate(findings, beyond_control(name, control)) if control else None,
        gain_seed_mean=gains[0], gain_seed_sd=gains[1],
    )  # fmt: skip


def _curves(arm: ArmTakes, data: CellData) -> dict[str, list[float | None]]:
    """The success of keeping the best of 1, 2, … all seeds, by window."""
    curves = {}
    for window in data.windows:
        scores = arm.score(data.score_name._replace(window=window))
        if scores is not None:
            curve = select.selection_curve(arm.outcomes, scores)
            curves[window] = [float(v) if np.isfinite(v) else None for v in curve]
    return curves


def _tasks(data: CellData, findings: Findings, n: int) -> list[r.TaskLine]:
    base = data.arms[BASE]
    scores = base.score(data.score_name)
    tasks: dict[tuple[str, str], list[int]] = {}
    for i, (env, task, _) in enumerate(data.units):
        tasks.setdefault((env, task), []).append(i)
    lines = []
    for (env, task), rows in tasks.items():
        outcomes = base.outcomes[rows]
        gain = _estimate(findings, "gain")
        # The gain of a cell's only task is the cell's.
        if scores is not None and len(tasks) > 1:
            gains = select.select(outcomes, scores[rows], n).gains
            gain = question("", "choice", gains, n, headroom.tally(outcomes)[0]).estimate()
        lines.append(
            r.TaskLine(
                env=env, task=task, starts=len(rows), takes=int(np.isfinite(outcomes).sum()),
                errors=int(np.isnan(outcomes).sum()), gain=gain,
                pass_1=_success(headroom.start_pass_at_k(outcomes, 1)),
                pass_n=_success(headroom.start_pass_at_k(outcomes, n)),
            )
        )  # fmt: skip
    return lines


def relate(cells: Sequence[CellData], n: int) -> r.Relation:
    """The headroom relation of choosing among n takes, over cells with scores and more than one take per start."""
    usable = [c for c in cells if c.scored and c.arms[BASE].outcomes.shape[1] > 1]
    return relation_of([relation_cell(c.policy, c.group, c.arms[BASE].scored_by(c.score_name), n) for c in usable])


def relation_cell(policy: str, group: str, takes: ScoredTakes, n: int) -> relation.CellGains:
    """A point of the relation: the headroom and the gain of each start of a cell."""
    assert takes.scores is not None
    gaps, gains = headroom.start_headroom(takes.outcomes, n), select.start_gain(takes.outcomes, takes.scores, n)
    return relation.CellGains(policy, group, gaps, gains)


def relation_of(cells: Sequence[relation.CellGains]) -> r.Relation:
    """The relation of gain to headroom over ``cells``, as a part of the result."""
    related, captures = relation.relate(cells), relation.captures(cells)
    value, low, high = related.r.value, related.r.low, related.r.high
    interval = None if low is None or high is None else (low, high)
    return r.Relation(
        cells=len(cells), r=value, interval=interval, spearman=related.spearman,
        disjoint=related.disjoint, within={**related.within}, leave_one_out={**related.leave_one_out}, fit=related.line,
        capture_mean=captures.mean, capture_sd=captures.sd, reason=related.r.reason,
    )  # fmt: skip


def rejection_of(data: CellData, n: int, arm: str) -> r.Rejection | None:
    """Estimate "play until the score reaches a threshold, at most n takes" in an arm; None if no score can do this.

    The threshold for each start is chosen on starts of the other folds.
    """
    takes, window = data.arms[arm], data.windows[0]
    scores, outcomes = takes.score(data.score_name), takes.outcomes
    if scores is None or n < 2 or data.deterministic or window == "episode":
        return None
    # Neighbours are in different folds, so that each fold has starts of every task.
    folds = np.arange(len(scores)) % max(1, min(_FOLDS, len(scores)))
    kept = select.held_out(outcomes, scores, folds, n)
    limit = select.threshold_at(scores, outcomes, select.choose_rate(outcomes, scores, n))
    return r.Rejection(
        arm=arm, n=n, scorer=data.scorer, threshold=limit if np.isfinite(limit) else None,
        takes=stats.mean_interval(kept.takes, stats.Scale(1.0, float(n), (1.0, float(n))), draws=_DRAWS),
        success=stats.mean_interval(kept.success, stats.unit_scale(), draws=_DRAWS),
        gain=stats.mean_interval(kept.success - data.start_means(BASE), stats.pick_scale(), draws=_DRAWS),
    )  # fmt: skip
