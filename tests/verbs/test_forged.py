"""A result that is not that of the takes beside it: one clear line, or no such number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from besttake.config import Plan
from besttake.errors import RunError
from besttake.result import _checksum as result_checksum
from besttake.verbs.compare import compare
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.export import ExportOptions, export

OTHER = "its takes are not those of its result; run the same diagnosis again"


@pytest.fixture(scope="module")
def honest(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for name in ("half", "strong"):
        plan = Plan(policy=f"testbed:{name}", env="testbed:pick", starts=3, seeds=2, arms=("base", "cooled"),
                    check_states=0, probe_states=0, demos_per_task=3, workers=1)  # fmt: skip
        diagnose(plan, place / name)
    return place


@pytest.fixture
def runs(honest: Path, tmp_path: Path) -> Path:
    """Copies of both; that of `half` is the one to forge."""
    return Path(shutil.copytree(honest, tmp_path / "runs"))


def forge(path: Path, checksum: Callable[[dict[str, Any]], str], *place: Any, value: Any) -> None:
    data = json.loads(path.read_text())
    data.pop("sha256")
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_text(json.dumps({**data, "sha256": checksum(data)}))


def test_a_run_that_went_on_since_its_result_takes_no_part(runs: Path, tmp_path: Path) -> None:
    forge(runs / "half" / "result.json", result_checksum, "cells", 0, "takes", value=11)
    compared = compare([runs / "half", runs / "strong"])
    assert f"half: testbed:half, pick takes no part in the relation: {OTHER}" in compared.result.notes
    assert any(note.startswith("the two runs cannot be compared") for note in compared.result.notes)
    assert compared.changes == ()
    assert compared.result.relation.cells == 1
    with pytest.raises(RunError, match=OTHER):
        export(runs / "half", ExportOptions(csv=True))
