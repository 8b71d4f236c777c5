from __future__ import annotations

import contextlib
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console
from scipy import stats as sps

from besttake.errors import PlanError, RunError
from besttake.reporting.terminal import comparison, layout
from besttake.result import Result
from besttake.takes.scores import ScoreName, Scores
from besttake.takes.store import Store
from besttake.takes.take_table import TakeTable
from besttake.verbs.compare import compare


@pytest.fixture(scope="module")
def runs(synthetic: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("runs")
    shapes = {"first": ("testbed:half",), "second": ("testbed:mid", "<b>odd")}
    for name, policies in shapes.items():
        synthetic.build(place / name, synthetic.Shape(policies=policies, tasks=("pick", "push", "drawer"), starts=9))
    return [place / name for name in shapes]


def test_the_relation_is_over_the_cells_of_all_runs(runs: list[Path]) -> None:
    found = compare(runs)
    assert found.result.relation.cells == 9
    assert found.runs == ("first",) * 3 + ("second",) * 6
    pairs = []
    for run in runs:
        for cell in Result.load(run / "result.json").cells:
            assert cell.headroom is not None
            assert cell.selectors is not None
            pairs.append((cell.headroom.headroom.value, cell.selectors.scored["manifold"]["full"].gain.value))
    x, y = np.array(pairs, float).T
    assert found.result.relation.r == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert set(found.result.relation.within) == {"testbed:half", "testbed:mid", "<b>odd"}
    assert set(found.result.relation.leave_one_out) == {"testbed:half", "testbed:mid", "<b>odd"}
    assert found.result.relation.disjoint.splits > 0


def test_a_run_that_keeps_one_of_fewer_takes_than_seeds_is_compared_as_it_was_measured(
    runs: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(runs[1], tmp_path / "pairs")
    document = json.loads((runs[1] / "result.json").read_text())
    for cell in document["cells"]:
        cell["headroom"]["n"] = 2
    (tmp_path / "pairs" / "result.json").write_text(Result.model_validate(document).to_json())
    found = compare([tmp_path / "pairs"]).result.relation
    y = np.array([cell["selectors"]["by_n"][1]["value"] for cell in document["cells"]])
    curve = np.array([[point["value"] for point in cell["headroom"]["curve"]] for cell in document["cells"]])
    assert found.r == pytest.approx(np.corrcoef(curve[:, 1] - curve[:, 0], y - curve[:, 0])[0, 1])
    assert found.r != pytest.approx(compare([runs[1]]).result.relation.r)


def test_text_json_and_figure_say_the_same(runs: list[Path], tmp_path: Path) -> None:
    found = compare(runs)
    r = found.result.relation.r
    assert json.loads(found.to_json())["relation"]["r"] == r
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(layout(comparison(found), 300))
    text = console.export_text()
    assert "over 9 cells" in text
    assert "<b>odd" in text
    figure = found.plot()
    assert figure is not None
    drawn = figure.svg()
    assert "<b>odd" not in drawn
    assert "&lt;b&gt;odd" in drawn
    assert drawn.count("<circle") + drawn.count("<polygon") > 9


def test_of_a_run_that_grew_the_shared_takes_count_once(runs: list[Path], tmp_path: Path) -> None:
    """A run of nine starts, and a copy of it in which two of them were made anew."""
    shutil.copytree(runs[0], tmp_path / "grown")
    with contextlib.closing(TakeTable(tmp_path / "grown")) as table:
        rows = table.rows.values()
        table.add([replace(row, sha256="other") for row in rows if row.key.arm == "base" and row.key.start in (7, 8)])
    alone = compare(runs)
    for order in ([runs[0], tmp_path / "grown", runs[1]], [tmp_path / "grown", *runs]):
        both = compare(order)
        assert both.result.relation.cells == alone.result.relation.cells == 9
        notes = [note for note in both.result.notes if "takes count once" in note]
        assert len(notes) == 3
        assert all("21 takes" in note for note in notes)


def test_every_number_is_read_on_the_window_asked_for(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of the window `episode` are turned round here: selection then picks the worst take everywhere."""
    whole = Scores.open

    def turned(run: Path) -> Scores:
        scores = whole(run)
        assert scores is not None
        for take in scores.values():
            take.scores.update({name: -value for name, value in take.scores.items() if name.window == "episode"})
        return scores

    monkeypatch.setattr("besttake.verbs.compare.Scores.open", turned)
    own, episode = compare(runs), compare(runs, window="episode")
    gains = {"full": own, "episode": episode}
    for window, found in gains.items():
        captures, worst = found.across.captures, window == "episode"
        assert captures.low is not None
        assert captures.high is not None
        assert (captures.high < 0) if worst else (captures.low > 0)
        assert found.across.auc.value is not None
        assert (found.across.auc.value < 0.5) is worst
        assert found.result.relation.capture_mean == pytest.approx(captures.mean)
        assert {cell.window for cell in found.result.cells} == {window}
    assert own.result.relation.disjoint != episode.result.relation.disjoint
    with pytest.raises(PlanError, match="`window` sideways"):
        compare(runs, window="sideways")


def test_what_the_paper_reports_over_all_cells_is_there(runs: list[Path]) -> None:
    found = compare(runs)
    x, y, won, score = [], [], [], []
    for run in runs:
        result, scores = Result.load(run / "result.json"), Scores.open(run)
        assert scores is not None
        for cell in result.cells:
            assert cell.headroom is not None
            assert cell.arms is not None
            x.append(cell.headroom.headroom.value)
            y.append(cell.arms.arms["retrieve"].gain.value)
        with Store.open(run) as store:
            for row in store.rows():
                if row.key.arm == "base":
                    won.append(bool(row.success))
                    score.append(scores[row.key].scores[ScoreName("manifold", "full")])
    assert found.across.retrieval.value == pytest.approx(np.corrcoef(np.array(x, float), np.array(y, float))[0, 1])
    ranks = sps.mannwhitneyu(np.array(score)[won], np.array(score)[~np.array(won)])
    assert found.across.auc.value == pytest.approx(ranks.statistic / (sum(won) * (len(won) - sum(won))))
    assert (found.across.takes, found.across.invalid) == (len(won), 0)
    assert json.loads(found.to_json())["across"]["auc"]["value"] == found.across.auc.value


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="missing"):
        compare([tmp_path])
    with pytest.raises(RunError, match="no runs"):
        compare([])
