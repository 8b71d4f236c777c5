"""The tables of a run of recipes/testbed.yaml, in Markdown: ``python -m bench.testbed_tables runs/testbed``"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from besttake.reporting.numbers import estimate_plain
from besttake.reporting.words import needs_text
from besttake.result import Cell, Estimate, Result

Column = tuple[str, Callable[[Cell], str]]


def points(value: Estimate) -> str:
    if value.value is None or value.low is None or value.high is None:
        return "–"
    return f"{100 * value.value:+.1f} [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def percent(value: Estimate) -> str:
    return "–" if value.value is None else f"{100 * value.value:.1f}"


def plain(value: Estimate) -> str:
    if value.value is None or value.low is None or value.high is None:
        return "–"
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def gain(scorer: str, window: str) -> Callable[[Cell], str]:
    return lambda c: points(c.selectors.scored[scorer][window].gain)  # type: ignore[union-attr]


def auc(kind: str, scorer: str, window: str) -> Callable[[Cell], str]:
    return lambda c: plain(getattr(c.ranking, kind)[scorer][window])


def arm(name: str) -> Callable[[Cell], str]:
    return lambda c: points(c.arms.arms[name].gain)  # type: ignore[union-attr]


def picked(name: str) -> Callable[[Cell], str]:
    return lambda c: points(c.arms.arms[name].selected_gain)  # type: ignore[union-attr]


def fit(name: str) -> Callable[[Cell], str]:
    return lambda c: plain(getattr(c.dfe, name))


RATES: list[Column] = [
    ("pass@1", lambda c: percent(c.headroom.pass_1)),  # type: ignore[union-attr]
    ("pass@3", lambda c: percent(c.headroom.pass_n)),  # type: ignore[union-attr]
]
SHORTEST: Column = ("shortest", lambda c: points(c.selectors.shortest.gain))  # type: ignore[union-attr]
CONTENT: Column = ("content", lambda c: points(c.arms.content))  # type: ignore[union-attr]
TABLES: dict[str, list[Column]] = {
    "1. Selection: success in %, and gain over pass@1 in points": [
        *RATES,
        ("headroom", lambda c: points(c.headroom.headroom)),  # type: ignore[union-attr]
        ("manifold, full", gain("manifold", "full")),
        ("manifold, common", gain("manifold", "common")),
        ("manifold, episode", gain("manifold", "episode")),
        ("coverage, full", gain("coverage", "full")),
        SHORTEST,
        ("capture (manifold, full)", lambda c: plain(c.selectors.scored["manifold"]["full"].capture)),  # type: ignore[union-attr]
    ],
    "2. Ranking quality: AUC": [
        ("within, manifold full", auc("within", "manifold", "full")),
        ("within, manifold common", auc("within", "manifold", "common")),
        ("within, manifold episode", auc("within", "manifold", "episode")),
        ("within, coverage full", auc("within", "coverage", "full")),
        ("pooled, manifold full", auc("pooled", "manifold", "full")),
    ],
    "3. Arms: gain over base in points, paired by start": [
        *((name, arm(name)) for name in ("cooled", "shuffled", "retrieve", "rerank")),
        CONTENT,
        ("DFE/floor", fit("ratio")),
    ],
    "4. Composition: success with selection on each arm minus base pass@1": [
        *((f"{name} + select", picked(name)) for name in ("base", "cooled", "shuffled", "retrieve")),
        ("combine - select", lambda c: points(c.arms.combine)),  # type: ignore[union-attr]
    ],
    "5. Demonstration fit": [
        (name, fit(key))
        for name, key in (
            ("DFE", "dfe"),
            ("floor", "floor"),
            ("ratio", "ratio"),
            ("first action r", "correlation"),
            ("spread", "spread"),
        )
    ],
}
CELLS: list[Column] = [
    *RATES,
    ("select", gain("manifold", "full")),
    SHORTEST,
    ("cooled", arm("cooled")),
    ("retrieve", arm("retrieve")),
    CONTENT,
    ("verdict", needs_text),
]


def table(title: str, columns: list[Column], cells: Sequence[Cell]) -> str:
    lines = [
        f"**{title}**",
        "",
        "| | " + " | ".join(name for name, _ in columns) + " |",
        "|" + " --- |" * (len(columns) + 1),
    ]
    for cell in cells:
        name = cell.policy.removeprefix("testbed:") + ("" if cell.group == "*" else f" {cell.group}")
        lines.append(f"| {name} | " + " | ".join(of(cell) for _, of in columns) + " |")
    return "\n".join(lines)


def relation(result: Result) -> str:
    r = result.relation
    if r.interval is None:
        return f"No interval of the relation over {r.cells} cells."

    def listed(values: Mapping[str, Estimate | None]) -> str:
        return ", ".join(
            f"{k.removeprefix('testbed:')} {estimate_plain(v)}" for k, v in values.items() if v is not None
        )

    return (
        f"Gain against headroom over {r.cells} cells, intervals over cells and their starts: r = {r.r:.2f}"
        f" [{r.interval[0]:.2f}, {r.interval[1]:.2f}],"
        f" Spearman {estimate_plain(r.spearman)}, {r.disjoint.splits} disjoint splits {r.disjoint.mean:.2f} ±"
        f" {r.disjoint.sd:.2f}; capture {r.capture_mean:.2f} ± {r.capture_sd:.2f};"
        f" within policies: {listed(r.within)}; leaving one out: {listed(r.leave_one_out)}."
    )


def main() -> None:
    result = Result.load(Path(sys.argv[1]) / "result.json")
    print(f"{result.cost.takes} takes, {result.policies[0].starts} starts per policy, digest `{result.digest[:12]}`.")
    for title, columns in TABLES.items():
        print(f"\n{table(title, columns, result.policies)}")
    print(f"\n{table('6. Cells', CELLS, result.cells)}\n\n{relation(result)}")


if __name__ == "__main__":
    main()
