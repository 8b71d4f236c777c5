"""The verdict of a cell: `core.verdict` decides, `reporting.words` says it; this file puts it in the result's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from besttake import result as r
from besttake.core import verdict
from besttake.core.estimate import Finding, Forecast
from besttake.core.headroom import tally
from besttake.core.sequential import Looks
from besttake.measure.cells import CellData
from besttake.measure.looks import Look


def judge(
    data: CellData,
    findings: Mapping[str, Finding],
    n: int,
    looks: Looks,
    each: Sequence[Look],
    menu: r.Menu | None = None,
    further: Callable[[verdict.Decided], Mapping[str, Forecast]] | None = None,
) -> r.Verdict:
    """What the policy of a cell needs where one of n takes is kept, by the rule of `besttake.core.verdict`.

    ``each``: starts and seeds of the cell at every look, this one included; ``menu``: the choice among options;
    ``further``: forecasts how many starts would settle the parts that are open.
    """
    decided = verdict.decide(
        findings,
        n,
        most_takes=int(tally(data.arms["base"].outcomes)[0].max()),
        deterministic=data.deterministic,
        leak_free=data.windows[0] != "episode",
    )
    starts = further(decided) if further is not None else {}
    parts = {
        name: r.Decision(**vars(getattr(decided, name)), further=starts.get(name))
        for name in ("reuse", "retrieve", "combine")
    }
    counts, seeds = zip(*sorted({*each}), strict=True)
    return r.Verdict(
        **{**vars(decided), **parts},
        menu=menu,
        left_out="retrieve" in data.left_out,
        looks=list(counts),
        look_seeds=list(seeds),
        looked=looks.count,
    )
