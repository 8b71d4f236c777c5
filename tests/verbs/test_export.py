"""What is exported is read back with other people's readers, and nothing is ever half there."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import av
import numpy as np
import pytest
from pyarrow import parquet

from besttake import registry
from besttake.config import Plan
from besttake.errors import ComponentError, PlanError, RunError
from besttake.reporting import writers
from besttake.reporting.dataset import CAMERA, Scene, write_dataset
from besttake.reporting.drawing import Figure, Label
from besttake.reporting.table import Table
from besttake.reporting.writers import write_csv
from besttake.takes.scores import ScoreName
from besttake.takes.store import Store
from besttake.verbs.compare import compare
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.export import ExportOptions, export
from besttake.verbs.runs import Run


@pytest.fixture(scope="module")
def run(diagnosed) -> Path:
    return diagnosed(env="testbed:drawer", starts=2, seeds=2)


def test_tables_hold_every_take_and_every_number(run: Path, tmp_path: Path) -> None:
    made = export(run, ExportOptions(csv=True), tmp_path)
    assert [path.name for path in made] == ["cells.csv", "takes.csv"]
    opened = Run.open(run)
    with (tmp_path / "takes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["task"], int(r["start"]), int(r["seed"]), r["success"] == "True") for r in rows] == [
        (row.key.task, row.key.start, row.key.seed, row.success) for row in opened.takes.rows
    ]
    key = opened.takes.rows[0].key
    assert float(rows[0]["score coverage full"]) == opened.scores[key].scores[ScoreName("coverage", "full")]
    with (tmp_path / "cells.csv").open() as file:
        pass_1 = next(n for n in csv.DictReader(file) if n["number"] == "pass@1" and n["group"] == "*")
    estimate = opened.result.policies[0].headroom.pass_1
    assert [float(pass_1[end]) for end in ("value", "low", "high")] == [estimate.value, estimate.low, estimate.high]
    assert not list(tmp_path.glob("*.tmp"))


ONLY_COOLED = """
from large_half import Large

class OnlyCooled(Large):
    def sample(self, observations, draws, warm=None):
        if draws[0].task != "rehearsal" and (warm is None or None in warm):
            raise ValueError("no such weight")
        return super().sample(observations, draws, warm)
"""


def test_a_policy_that_finished_no_base_take_costs_the_others_no_number(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (Path(__file__).parent, tmp_path):
        monkeypatch.syspath_prepend(str(place))
    (tmp_path / "only_cooled.py").write_text(ONLY_COOLED)
    plan = Plan(
        policy=("python:only_cooled:OnlyCooled", "testbed:half"), env="testbed:drawer", starts=2, seeds=2,
        arms=("base", "cooled"), check_states=0, probe_states=0, demos_per_task=3, workers=1,
    )  # fmt: skip
    without_base, whole = diagnose(plan, tmp_path / "one").cells
    assert (without_base.takes, without_base.errors, whole.takes) == (4, 4, 8)
    export(tmp_path / "one", ExportOptions(csv=True), tmp_path / "tables")
    with (tmp_path / "tables" / "takes.csv").open() as file:
        assert sum(row["policy"] == "testbed:half" for row in csv.DictReader(file)) == 8
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    compared = compare([tmp_path / "one", tmp_path / "two"])
    no_part = (
        "python:only_cooled:OnlyCooled, drawer takes no part in the relation: no take of its base arm was finished"
    )
    assert [f"{name}: {no_part}" for name in ("one", "two")] == compared.result.notes[:2]
    assert compared.result.relation.cells == 1
    assert {change.starts for change in compared.changes if change.policies[0] == "testbed:half"} == {2}


def test_a_film_shows_the_frames_of_its_take(run: Path, tmp_path: Path) -> None:
    export(run, ExportOptions(films=tmp_path / "films", most=1))
    (path,) = (tmp_path / "films").iterdir()
    with Store.open(run) as store:
        frames = store.load(store.rows()[0]).frames()
    with av.open(str(path)) as film:
        shown = np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)])
    assert shown.shape == frames.shape
    assert np.abs(shown.astype(int) - frames).mean() < 6
    odd = writers.mp4(np.zeros((3, 7, 9, 3), np.uint8), 2.5)
    with av.open(io.BytesIO(odd)) as film:
        assert [(f.height, f.width) for f in film.decode(video=0)] == [(8, 10)] * 3


def test_a_data_set_is_whole_or_not_there(run: Path, tmp_path: Path) -> None:
    with Store.open(run) as store:
        takes = [store.load(row) for row in store.rows()]
    other = replace(takes[0], actions=takes[0].actions[:, :2])
    with pytest.raises(RunError, match="other sizes"):
        write_dataset([takes[0], other], tmp_path / "set", Scene(10))
    assert list(tmp_path.iterdir()) == []
    write_dataset(takes, tmp_path / "set", Scene(10))
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    with pytest.raises(RunError, match="not empty"):
        write_dataset(takes, tmp_path / "set", Scene(10))
    rows = parquet.read_table(tmp_path / "set" / "data" / "chunk-000" / "file-000.parquet").to_pydict()
    ends = [take.steps if take.success_step is None else take.success_step for take in takes]
    assert len(rows["index"]) == sum(ends)
    assert sum(rows["next.success"]) == sum(take.success for take in takes)
    assert sum(rows["next.done"]) == len(takes)
    assert np.array_equal(rows["action"][: ends[0]], takes[0].actions[: ends[0]])
    with av.open(str(tmp_path / "set" / "videos" / CAMERA / "chunk-000" / "file-000.mp4")) as film:
        assert sum(1 for _ in film.decode(video=0)) == sum(ends)


def test_figures_are_svg(run: Path, tmp_path: Path) -> None:
    made = export(run, ExportOptions(figures=tmp_path / "figures"))
    assert made
    assert all(path.read_text().startswith("<svg") for path in made)


def test_a_data_set_runs_at_the_rate_of_its_env_and_has_its_instructions(run: Path, tmp_path: Path) -> None:
    spec = registry.env("testbed:drawer").spec
    export(run, ExportOptions(lerobot=tmp_path / "set"))
    assert json.loads((tmp_path / "set/meta/info.json").read_text())["fps"] == spec.fps == 20
    words = parquet.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet")["tasks"].to_pylist()
    assert words == [[spec.tasks[0].instruction]] * 4
    assert spec.tasks[0].instruction != spec.tasks[0].name


def test_an_env_that_cannot_be_asked_for_its_rate_is_asked_for_in_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(uri: object) -> None:
        raise ComponentError("no such simulator")

    monkeypatch.setattr("besttake.verbs.export.spec_of", gone)
    with pytest.raises(PlanError, match=r"testbed:drawer cannot be opened .*; give `fps` \(.*no such simulator"):
        export(run, ExportOptions(lerobot=tmp_path / "set"))
    export(run, ExportOptions(lerobot=tmp_path / "set", fps=5))
    assert json.loads((tmp_path / "set/meta/info.json").read_text())["fps"] == 5
    assert "tasks go by their names" in caplog.text


def test_the_name_of_a_film_is_never_a_path(run: Path) -> None:
    with Store.open(run) as store:
        key = replace(store.rows()[0].key, policy="../../x:é\n", task="a/b")
    assert re.fullmatch(r"[A-Za-z0-9._-]+\.mp4", writers.film_name(key, True))


def test_cells_that_a_spreadsheet_would_run_and_bytes_that_hide_are_text(tmp_path: Path) -> None:
    cells = ["=cmd|'/c calc'!A1", "+1 or so", "@a", "-x", "a\x1b[2J", "\udcff", "-0.5", "+3e-2", -1.5, None]
    write_csv(Table("t", ("=name",), [(cell,) for cell in cells]), tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as file:
        rows = [row[0] if row else "" for row in csv.reader(file)]
    escaped = ["'=cmd|'/c calc'!A1", "'+1 or so", "'@a", "'-x", r"a\x1b[2J", r"\udcff", "-0.5", "+3e-2", "-1.5", ""]
    assert rows == ["'=name", *escaped]


def test_a_figure_is_xml_whatever_names_hold() -> None:
    name = "".join(map(chr, [*range(1, 32), 0x7F, 0xD800, 0xFFFE])) + "<&>"
    figure = Figure(10, 10, name, (Label(x=1, y=1, text=name, tip=name, data={"take": name}),))
    for standalone in (True, False):
        ElementTree.fromstring(figure.svg(standalone=standalone).encode())
