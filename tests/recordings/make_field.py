"""Makes docs/field.md again from published results: ``python tests/recordings/make_field.py PATH``.

``PATH`` is the folder of results that the page names; this repository holds none of them. The page's text stands as it
is; what lies between its markers ``<!-- NAME -->`` and ``<!-- end -->`` is replaced by tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from besttake.core.policy_pool import Pool
from besttake.reporting.numbers import estimate_percent, estimate_plain, estimate_points, percent
from besttake.reporting.table import Table
from besttake.result import Cell, Result, TaskLine
from besttake.verbs.ingest import ingest

PAGE = Path(__file__).parents[2] / "docs" / "field.md"
VALUES = {"env": "0", "task": "1", "start": "2", "seed": "3", "success": "4", "values": "5"}
HEAD = ("policy", "benchmark", "starts x takes", "pass@1", "pass@N", "headroom, points", "failures recovered",
        "never solved", "kappa within task")  # fmt: skip


def row(cell: Cell, benchmark: str, name: str = "") -> tuple[str, ...]:
    """What one policy gains from another take."""
    room = cell.headroom
    assert room is not None
    first, best, gain = room.pass_1.value or 0.0, room.pass_n.value or 0.0, room.headroom.value
    starts = f"{cell.starts} x {room.n}"
    if gain is None:
        return (name or cell.policy, benchmark, starts, estimate_percent(room.pass_1), *["not known"] * 5)
    kappa = estimate_plain(cell.audit.sources.start if cell.audit else None) or "not known"
    recovered = percent(gain / (1 - first)) if first < 1 else "-"
    return (name or cell.policy, benchmark, starts, percent(first), percent(best), estimate_points(room.headroom, ""),
            recovered, percent(1 - best), kappa)  # fmt: skip


def pool_row(pool: Pool) -> tuple[object, ...]:
    """What one take each is worth."""
    return (", ".join(pool.policies), pool.starts, estimate_percent(pool.each),
            f"{percent(pool.alone.value)} ({pool.best})" if pool.alone.value is not None else "not known",
            estimate_points(pool.gain, "") or "not known")  # fmt: skip


def simpler(path: Path) -> Iterator[tuple[str, ...]]:
    """pi0 on SimplerEnv, by how many objects lie around; with none, both kinds are the same episodes."""
    every = path.glob("pi0_simpler/carrot/*/n*/results.csv")
    found = {(p.parts[-3], int(p.parts[-2].partition("_")[0][1:])): p for p in every}
    for (kind, many), results in sorted(found.items()):
        (cell,) = ingest(results, policy_name="pi0", columns={"success": "baseline_success"}).result.policies
        if many or kind == "control":
            yield row(cell, f"carrot, {many} {kind} objects" if many else "carrot")


def categories(result: Result) -> Iterator[tuple[object, ...]]:
    """Headroom by kind of shift, over all suites."""
    names = sorted({line.task for cell in result.cells for line in cell.tasks})
    for policy in result.policies:
        own = [line for cell in result.cells if cell.policy == policy.policy for line in cell.tasks]
        yield (policy.policy, *(_category([line for line in own if line.task == name]) for name in names))


def _category(lines: Sequence[TaskLine]) -> str:
    starts = sum(line.starts for line in lines)
    first = sum(line.starts * (line.pass_1.value or 0) for line in lines) / starts
    best = sum(line.starts * (line.pass_n.value or 0) for line in lines) / starts
    return f"{100 * first:.0f} +{100 * (best - first):.1f}"


def scorers(cell: Cell) -> Iterator[tuple[str, ...]]:
    """What Cosmos's own values pick."""
    assert cell.selectors is not None
    for name, windows in cell.selectors.scored.items():
        for window, one in windows.items():
            yield name, window, estimate_points(one.gain, ""), estimate_plain(one.capture)
    yield "a perfect pick", "", estimate_points(cell.selectors.oracle.gain, ""), "1"


def tables(path: Path) -> Mapping[str, Table]:
    """Every table of the page."""
    clean, plus = (ingest(path / f"{name}.csv.gz").result for name in ("libero", "libero_plus"))
    history = ingest(path / "vla-eval-history").result
    values = ingest(path / "cosmos_values.json.gz", columns=VALUES).result.policies[0]
    smolvla = ingest(path / "smolvla_v4_loco_formal_rollouts.csv").result
    spatial = next(cell for cell in history.cells if cell.seeds > 1)
    rows = [row(cell, "LIBERO") for cell in clean.policies] + [row(cell, "LIBERO-plus") for cell in plus.policies]
    rows += [row(spatial, "LIBERO-Spatial"), (carrots := [*simpler(path)])[0]]
    rows += [row(cell, "LIBERO") for cell in history.policies if cell.seeds == 1]
    rows += [row(cell, "LIBERO-Spatial, a task held out", f"SmolVLA, {cell.policy.partition(' ')[0]}")
             for cell in smolvla.policies]  # fmt: skip
    shifts = sorted({line.task for cell in plus.cells for line in cell.tasks})
    return {
        "policies": Table("", HEAD, rows),
        "suites": Table("", HEAD, [row(cell, cell.env.rpartition("/")[2]) for cell in clean.cells]),
        "simpler": Table("", HEAD, carrots),
        "shifts": Table("", ("policy", *shifts), list(categories(plus))),
        "pools": Table("", ("policies", "shared starts", "one take each", "as many of the best", "difference, points"),
                       [*map(pool_row, plus.pools), *map(pool_row, history.pools)]),
        "values": Table("", ("score", "window", "gain, points", "capture"), list(scorers(values))),
    }  # fmt: skip


def main() -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text()
    for name, table in tables(Path(sys.argv[1])).items():
        before, rest = text.split(f"<!-- {name} -->\n")
        text = f"{before}<!-- {name} -->\n{table.markdown()}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
