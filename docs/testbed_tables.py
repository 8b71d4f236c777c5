"""The tables of docs/testbed.md: ``python docs/testbed_tables.py runs/testbed``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from besttake.result import Cell, Estimate, Result


def points(value: Estimate | None) -> str:
    if value is None or value.value is None:
        return "–"
    return f"{100 * value.value:+.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"  # type: ignore[operator]


def percent(value: Estimate) -> str:
    return f"{100 * value.value:.1f}" if value.value is not None else "–"


def plain(value: Estimate, digits: int = 2) -> str:
    if value.value is None:
        return "–"
    return f"{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def table(title: str, heads: list[str], rows: Iterable[list[str]]) -> None:
    print(f"\n**{title}**\n")
    print("| " + " | ".join(heads) + " |")
    print("|" + " --- |" * len(heads))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main() -> None:
    result = Result.load(Path(sys.argv[1]) / "result.json")
    policies, cells = result.policies, result.cells
    print(f"{result.cost.takes} takes, {policies[0].starts} starts per policy, digest `{result.digest[:12]}`")

    def name(cell: Cell) -> str:
        return cell.policy.removeprefix("testbed:") + ("" if cell.group == "*" else f" {cell.group}")

    def select(cell: Cell, kind: str) -> Estimate:
        scorer, window = kind.split("/")
        return cell.selectors.scored[scorer][window].gain  # type: ignore[union-attr]

    table(
        "1. Selection: success, and gain over pass@1 in points",
        ["policy", "pass@1", "pass@3", "headroom", "manifold full", "common", "episode", "coverage full", "shortest", "capture"],
        ([name(c), percent(c.headroom.pass_1), percent(c.headroom.pass_n), points(c.headroom.headroom),
          *(points(select(c, k)) for k in ("manifold/full", "manifold/common", "manifold/episode", "coverage/full")),
          points(c.selectors.shortest.gain), plain(c.selectors.scored["manifold"]["full"].capture)] for c in policies),
    )  # fmt: skip
    table(
        "2. Ranking quality: AUC",
        ["policy", "within, manifold full", "within, manifold common", "within, manifold episode", "within, coverage full", "pooled, manifold full"],
        ([name(c), *(plain(c.ranking.within[k.split("/")[0]][k.split("/")[1]]) for k in
          ("manifold/full", "manifold/common", "manifold/episode", "coverage/full")),
          plain(c.ranking.pooled["manifold"]["full"])] for c in policies),
    )  # fmt: skip
    gain: Callable[[Cell, str], Estimate] = lambda c, arm: c.arms.arms[arm].gain  # noqa: E731
    table(
        "3. Arms: gain over base in points, paired by start",
        ["policy", "cooled", "shuffled", "retrieve", "rerank", "content (retrieve - cooled)", "DFE/floor"],
        ([name(c), *(points(gain(c, a)) for a in ("cooled", "shuffled", "retrieve", "rerank")),
          points(c.arms.content), plain(c.dfe.ratio)] for c in policies),
    )  # fmt: skip
    table(
        "4. Composition: success with selection on each arm minus base pass@1",
        ["policy", "base + select", "cooled + select", "shuffled + select", "retrieve + select", "retrieve + select minus base + select"],
        ([name(c), *(points(c.arms.arms[a].selected_gain) for a in ("base", "cooled", "shuffled", "retrieve")),
          points(c.arms.combine)] for c in policies),
    )  # fmt: skip
    table(
        "5. Demonstration fit",
        ["policy", "DFE", "floor", "ratio", "first action r", "spread"],
        ([name(c), *(plain(e) for e in (c.dfe.dfe, c.dfe.floor, c.dfe.ratio, c.dfe.correlation, c.dfe.spread))] for c in policies),
    )  # fmt: skip
    table(
        "6. Cells",
        ["cell", "pass@1", "pass@3", "select", "shortest", "cooled", "retrieve", "content", "verdict"],
        ([name(c), percent(c.headroom.pass_1), percent(c.headroom.pass_n), points(select(c, "manifold/full")),
          points(c.selectors.shortest.gain), points(gain(c, "cooled")), points(gain(c, "retrieve")), points(c.arms.content),
          f"{c.verdict.reuse.answer}, {c.verdict.retrieve.answer}"] for c in cells),
    )  # fmt: skip
    r = result.relation
    print(f"\nRelation over {r.cells} cells: r = {r.r:.2f} [{r.ci[0]:.2f}, {r.ci[1]:.2f}], Spearman {r.spearman:.2f},"
          f" disjoint splits {r.disjoint.mean:.2f} ± {r.disjoint.sd:.2f}; capture {r.capture_mean:.2f} ± {r.capture_sd:.2f};"
          f" within policies {({k.removeprefix('testbed:'): None if v is None else round(v, 2) for k, v in r.within.items()})};"
          f" without one policy {({k.removeprefix('testbed:'): round(v, 2) for k, v in r.leave_one_out.items()})}")  # fmt: skip


if __name__ == "__main__":
    main()
