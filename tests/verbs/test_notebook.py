"""What the results of the verbs show in a notebook."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from besttake.verbs.doctor import DoctorResult, InstallCheck, Pairing
from besttake.verbs.ingest import IngestResult, ingest
from besttake.verbs.plan import plan


def ingested(folder: Path) -> IngestResult:
    table = folder / "outcomes.csv"
    table.write_text(
        "task,start,seed,success\n" + "\n".join(f"pick,{s},{n},{(s + n) % 2}" for s in range(4) for n in (0, 1))
    )
    return ingest([table])


RESULTS = {
    "plan": lambda _: plan(pass1=0.64),
    "doctor": lambda _: DoctorResult(
        (InstallCheck("base", "python", True, "3.12"),), Pairing("", "p", "e", (), (), ("no camera <wrist>",), ())
    ),
    "ingest": ingested,
}
SHOWS = {
    "plan": ("+/- 3 points", "any policy"),
    "doctor": ("They do not fit", "policy", "no camera &lt;wrist&gt;"),
    "ingest": ("8 outcomes of 1 recording", "0.5", "not known"),
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
