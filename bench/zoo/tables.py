"""The tables about what is true of the zoo: headroom and selection, arms and content, what foretells content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from bench.zoo.cells import Cell
from bench.zoo.takes import COOLED, F64, PAPERS, RETRIEVE, SCORE, SHORTEST, TASKS, WORTH, Policy
from besttake.core import stats
from besttake.core.planning import BOTH
from besttake.core.relation import CellGains, disjoint_splits, pearson, spearman
from besttake.core.select import within_auc
from besttake.core.stats import Estimate


def gain_of(values: F64) -> Estimate:
    return stats.mean_interval(values.ravel(), stats.gain_scale(3), draws=4000)


def difference(values: F64) -> Estimate:
    return stats.mean_interval(values.ravel(), stats.difference_scale(3), draws=4000)


def content(policy: Policy, config: str) -> F64:
    """Retrieve minus cooled at the same noise, of each start (tasks, starts)."""
    arm, noise = RETRIEVE[config]
    return policy.rate(arm) - policy.rate(COOLED[noise])


def over_base(policy: Policy, arm: str) -> F64:
    return policy.rate(arm) - policy.rate()


def points(e: Estimate) -> str:
    if e.value is None or e.low is None or e.high is None:
        return "–"
    return f"{100 * e.value:+.1f} [{100 * e.low:.1f}, {100 * e.high:.1f}]"


def plain(e: Estimate) -> str:
    if e.value is None:
        return "–"
    return f"{e.value:.2f}" if e.low is None or e.high is None else f"{e.value:.2f} [{e.low:.2f}, {e.high:.2f}]"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"**{title}**", "", "| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def selection(zoo: Sequence[Policy]) -> str:
    rows = []
    for p in zoo:
        h, outcomes = p.headroom(), p.outcomes["base"]
        captures = [stats.capture_interval(p.gain(s).ravel(), h.ravel(), draws=2000) for s in (SCORE, PAPERS)]
        auc = within_auc(outcomes.reshape(-1, 3), p.scores["base", SCORE].reshape(-1, 3))
        rows.append(
            [
                p.name, p.deficit, f"{100 * outcomes.mean():.1f}", f"{100 * outcomes.any(axis=2).mean():.1f}",
                points(stats.mean_interval(h.ravel(), stats.headroom_scale(3), draws=4000)),
                points(gain_of(p.gain(SCORE))), points(gain_of(p.gain(PAPERS))), points(gain_of(p.gain(SHORTEST))),
                *(plain(c) for c in captures), plain(auc),
            ]
        )  # fmt: skip
    header = "policy", "deficit", "pass@1", "pass@3", "headroom", "coverage", "manifold", "shortest"
    return table(
        "1. Selection on base takes: success in %, gains in points, capture as a part of headroom",
        [*header, "capture, coverage", "capture, manifold", "AUC within, coverage"],
        rows,
    )


def arms(zoo: Sequence[Policy]) -> str:
    rows = []
    for p in zoo:
        gains = [points(difference(over_base(p, arm))) if arm in p.outcomes else "–" for arm in COOLED.values()]
        gains += [points(difference(over_base(p, arm))) for arm, _ in RETRIEVE.values()]
        contents = [points(difference(content(p, config))) for config in RETRIEVE]
        rows.append([p.name, *gains, *contents, f"{p.dfe_over_floor:.2f}"])
    return table(
        "2. Arms, one take: gain over base in points; content is retrieve minus cooled at the same noise",
        [
            "policy", *(f"cooled {noise:g}" for noise in COOLED), *RETRIEVE,
            *(f"content, {config}" for config in RETRIEVE), "DFE/floor",
        ],
        rows,
    )  # fmt: skip


def options(policy: Policy) -> dict[str, F64]:
    """Every arm with one take and with the best of three by `SCORE`, minus base, of each start (tasks, starts)."""
    names = {
        "base": "base",
        **{f"cooled {noise:g}": arm for noise, arm in COOLED.items()},
        **{f"retrieve {config}": arm for config, (arm, _) in RETRIEVE.items()},
    }
    names = {name: arm for name, arm in names.items() if arm in policy.outcomes}
    single = {name: over_base(policy, arm) for name, arm in names.items()}
    scored = {name: arm for name, arm in names.items() if (arm, SCORE) in policy.scores}
    return single | {f"{name}, best of 3": policy.picked(SCORE, arm) - policy.rate() for name, arm in scored.items()}


def best_options(zoo: Sequence[Policy]) -> str:
    rows = []
    for p in zoo:
        menu = options(p)
        one = {name: v for name, v in menu.items() if "best of" not in name}
        three = {name: v for name, v in menu.items() if "best of" in name}
        row = [p.name]
        for part in (one, three):
            best = max(part, key=lambda name: float(part[name].mean()))
            row += [best, points(stats.mean_interval(part[best].ravel(), stats.pick_scale(), draws=4000))]
        rows.append([*row, points(stats.mean_interval(menu["base, best of 3"].ravel(), stats.gain_scale(3)))])
    return table(
        "3. The best option with one take and with three (picked after the fact, so its gain is a little optimistic)",
        ["policy", "one take", "gain", "three takes", "gain", "base, best of 3"],
        rows,
    )


def correlations(zoo: Sequence[Policy]) -> str:
    """Gain against headroom over cells; content against DFE/floor."""
    rows = []
    for score in (SCORE, PAPERS):
        each = [CellGains(p.name, t, p.headroom()[i], p.gain(score)[i]) for p in zoo for i, t in enumerate(TASKS)]
        splits, name = disjoint_splits(each), score.removesuffix(" full")
        rows.append([f"gain ({name}) and headroom, {len(each)} cells", plain(pearson(each)), "–"])
        rows.append([f"the same, {splits.splits} disjoint splits", f"{splits.mean:.2f} ± {splits.sd:.2f}", "–"])
    over = [CellGains(p.name, "*", p.headroom().ravel(), p.gain(SCORE).ravel()) for p in zoo]
    rows.append([f"gain (coverage) and headroom, {len(over)} policies", plain(pearson(over)), "–"])
    for config in RETRIEVE:
        pairs = [CellGains(p.name, "*", [p.dfe_over_floor], [content(p, config).mean()]) for p in zoo]
        rows.append([f"content ({config}) and DFE/floor", plain(pearson(pairs)), plain(spearman(pairs))])
    return table(
        f"4. What goes with what, over {len(zoo)} policies unless cells are named", ["", "r", "Spearman"], rows
    )


def beyond_cooling(zoo: Sequence[Policy]) -> str:
    """Does retrieval at its best beat cooling at its best? Both picked after the fact."""
    rows = []
    for p in zoo:
        cooled = max((arm for arm in COOLED.values() if arm in p.outcomes), key=lambda arm: float(p.rate(arm).mean()))
        arms = [arm for arm, _ in RETRIEVE.values()]
        retrieve = max(arms, key=lambda arm: float(p.rate(arm).mean()))
        name = next(config for config, (arm, _) in RETRIEVE.items() if arm == retrieve)
        one = difference(p.rate(retrieve) - p.rate(cooled))
        rows.append([p.name, cooled.partition("=")[2], name, points(one)])
    header = ["policy", "best cooling", "best retrieval", "retrieval - cooling, one take"]
    return table("2b. Retrieval at its best against cooling at its best, in points", header, rows)


TRUTH: dict[str, Callable[[Mapping[str, float]], float]] = {
    "takes": lambda means: means["gain"],
    "demonstrations": lambda means: means["content"],
    "both": lambda means: min(means[name] for name in BOTH),
}
"""What each of the paper's questions is about, from the means of all questions."""


def answers(cells: Sequence[Cell], config: str) -> str:
    """The true answers of each policy and cell, and how often each is yes."""
    rows: dict[str, list[str]] = {}
    often = Counter[str]()
    for cell in cells:
        right = [name for name, mean in TRUTH.items() if mean(cell.truth) >= WORTH]
        rows.setdefault(cell.policy, [cell.policy]).append(", ".join(right) or "none")
        often.update(right)
    title = f"5. Which questions have the answer yes, from the means over all starts, retrieval by {config}"
    counted = ", ".join(f"{name} {often[name]}" for name in TRUTH)
    text = table(title, ["policy", "all tasks", *TASKS], list(rows.values()))
    return f"{text}\n\nOf {len(cells)} cells and policies: {counted}."
