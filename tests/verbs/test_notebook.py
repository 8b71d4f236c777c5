"""What the results of the verbs show in a notebook."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from besttake.result import Cell, Dfe, Estimate
from besttake.verbs.doctor import DoctorResult, InstallCheck, Pairing
from besttake.verbs.ingest import IngestResult, ingest
from besttake.verbs.plan import plan
from besttake.verbs.probe import ProbeResult
from besttake.verbs.rank import RankedTake, RankResult
from besttake.verbs.reproduce import ComparedNumber, ReproduceResult, protocol


def ranked() -> RankResult:
    takes = (
        RankedTake("a<b>.mp4", 1, 0.91, 4, 3, (0, 1, 2, 3), (0.9, 0.92, 0.91, 0.8), (5, 6, 7, 8)),
        RankedTake("second.mp4", 2, 0.85, 3, 3, (0, 1, 2), (0.8, 0.9, 0.85), (5, 6, 7)),
        RankedTake("torn.mp4", None, None, 0, 0, problem="has a damaged video"),
    )
    return RankResult(takes, "common", "manifold", "pixels", "demos", 2, 80, "", "all", ("only the first 3 frames",))


def ingested(folder: Path) -> IngestResult:
    table = folder / "outcomes.csv"
    table.write_text(
        "task,start,seed,success\n" + "\n".join(f"pick,{s},{n},{(s + n) % 2}" for s in range(4) for n in (0, 1))
    )
    return ingest([table])


def reproduced(folder: Path) -> ReproduceResult:
    numbers = (
        ComparedNumber("pi0", "pass@1", 64.2, Estimate(60.5, 55.0, 66.0)),
        ComparedNumber("pi0", "retrieve", 70.6, Estimate(reason="not measured")),
    )
    return ReproduceResult(protocol("table1"), ingested(folder).result, numbers, ("starts is <10>, the paper's 50",))


def probed() -> ProbeResult:
    numbers = {
        name: Estimate(value=i / 10) for i, name in enumerate(("dfe", "floor", "ratio", "correlation", "spread"), 1)
    }
    cell = Cell(
        policy="half", env="testbed", group="*", starts=0, seeds=0, takes=0, errors=0, missing=0, window="full",
        scorer="manifold", headroom=None, selectors=None, ranking=None, dfe=Dfe(**numbers, states=3, samples=2),
        arms=None, verdict=None, tasks=[],
    )  # fmt: skip
    return ProbeResult([cell, cell.model_copy(update={"group": "pick", "dfe": None})])


RESULTS = {
    "rank": lambda _: ranked(),
    "plan": lambda _: plan(pass1=0.64),
    "doctor": lambda _: DoctorResult(
        (InstallCheck("base", "python", True, "3.12"),), Pairing("", "p", "e", (), (), ("no camera <wrist>",), ())
    ),
    "ingest": ingested,
    "probe": lambda _: probed(),
    "reproduce": reproduced,
}
SHOWS = {
    "rank": ("3 takes ranked by manifold", "a&lt;b&gt;.mp4", "0.91", "has a damaged video", "only the first 3 frames"),
    "plan": ("+/- 3 points", "any policy"),
    "doctor": ("does not work", "python", "no camera &lt;wrist&gt;"),
    "ingest": ("8 outcomes of 1 recording", "0.5", "not known"),
    "probe": ("Demonstration-fit error", "all tasks", "0.3"),
    "reproduce": ("Selection improves every backbone", "pass@1", "64.2", "60.5", "starts is &lt;10&gt;"),
}


@pytest.mark.parametrize("verb", RESULTS)
def test_a_notebook_shows_a_small_well_formed_table(verb: str, tmp_path: Path) -> None:
    html = RESULTS[verb](tmp_path)._repr_html_()
    root = ET.fromstring(html)
    widths = {len(row) for row in root.iter("tr")}
    assert len(widths) == 1, "every row has a value for each column"
    assert len(html) < 3000
    for text in SHOWS[verb]:
        assert text in html
