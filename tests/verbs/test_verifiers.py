"""`besttake verifiers`: all scorers that a run keeps, as a page, Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import besttake
from besttake.core import reject
from besttake.core.estimate import Estimate
from besttake.errors import PlanError, RunError
from besttake.measure.scores import Scores
from besttake.measure.verifiers import Calibration
from besttake.reporting.verifiers import summary
from besttake.takes.store import Store
from besttake.verbs.verifiers import VerifierResult

HOSTILE = '<img src=x onerror=alert(1)>| [a](javascript:x) \\input{x} & 50% $_#"'


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("verifiers") / "run"
    plan = besttake.Plan(
        policy=["testbed:half", "testbed:few"], env="testbed:pick", starts=8, seeds=3, arms=("base",),
        demos_per_task=4, probe_states=0, check_states=0, workers=1,
    )  # fmt: skip
    besttake.diagnose(plan, out=out)
    with Store.open(out) as store:
        manifest = store.manifest
    with Store.write(out, manifest) as store:
        scores = Scores.open(out)
        assert scores is not None
        rng = np.random.default_rng(0)
        won = {row.key: bool(row.success) for row in store.rows()}
        stated = {
            key: replace(one, scores={name._replace(scorer="oracle-ish"): min(1.0, 0.6 * won[key] + 0.4 * rng.random())
                                      for name in one.scores})
            for key, one in scores.items()
        }  # fmt: skip
        scores.joined(stated, {"oracle-ish": "1"}).with_probability({"oracle-ish"}).save(store)
    return out


@pytest.fixture(scope="module")
def result(run: Path) -> VerifierResult:
    return besttake.verifiers(run)


def test_it_agrees_with_the_result_of_the_run(run: Path, result: VerifierResult) -> None:
    assert result.scorers == ("manifold", "coverage", "oracle-ish")
    measured = besttake.Run.open(run).result.cells
    assert len(result.cells) == len(measured) == 2
    for cell, one in zip(measured, result.cells, strict=True):
        assert (cell.policy, cell.group) == (one.policy, one.tasks)
        assert cell.selectors is not None
        assert cell.ranking is not None
        for scorer in ("manifold", "coverage"):
            for window in one.windows:
                own = one.of(scorer, window)
                assert own is not None
                assert own.gain == cell.selectors.scored[scorer][window].gain
                assert own.capture == cell.selectors.scored[scorer][window].capture
                assert own.auc == cell.ranking.within[scorer][window]
        assert next(v for v in one.controls if v.scorer == "shortest").gain == cell.selectors.shortest.gain
    assert result.pooled.starts == 16


def test_a_stated_probability_is_calibrated_and_others_are_not(result: VerifierResult) -> None:
    assert [c.scorer for c in result.pooled.calibration] == ["oracle-ish"]
    assert result.pooled.calibration[0].takes == 48


def test_a_score_that_is_no_probability_is_not_calibrated_though_it_says_so(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    with Store.open(copy) as store:
        manifest = store.manifest
    with Store.write(copy, manifest) as store:
        scores = Scores.open(copy)
        assert scores is not None
        boasts = {
            key: replace(one, scores={name._replace(scorer="boast"): 1.5 for name in one.scores})
            for key, one in scores.items()
        }
        scores.joined(boasts, {"boast": "1"}).with_probability({"oracle-ish", "boast"}).save(store)
    judged = besttake.verifiers(copy)
    assert [c.scorer for c in judged.pooled.calibration] == ["oracle-ish"]
    assert [note for note in judged.notes if "boast" in note] == [
        "boast says that its scores are probabilities, but 144 of them are not from 0 to 1, so their calibration is not"
        " shown"
    ]


def test_every_number_of_the_page_is_that_of_the_json(run: Path, result: VerifierResult, tmp_path: Path) -> None:
    page = result.save(tmp_path / "page.html").read_text()
    document = json.loads(result.save(tmp_path / "page.json").read_text())
    shown = re.findall(r'data-path="([^"]+)" data-value="([^"]+)"', page)
    assert len(shown) > 100
    for place, value in shown:
        at = document
        for part in place.split("/")[1:]:
            at = at[int(part)] if isinstance(at, list) else at[part.replace("~1", "/").replace("~0", "~")]
        assert at == pytest.approx(float(value))
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_table_for_a_spreadsheet_has_all_cells(result: VerifierResult, tmp_path: Path) -> None:
    with result.save(tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["kind"] == "scorer" for row in rows) == 3 * 3 * 3
    assert sum(row["kind"] == "control" for row in rows) == 3 * 3
    first = result.pooled.verifiers[0]
    assert float(rows[0]["gain"]) == first.gain.value
    assert {row["policy"] for row in rows} == {"*", "testbed:half", "testbed:few"}
    retried = [row for row in rows if row["retry_takes"]]
    assert [(row["policy"], row["scorer"], row["window"]) for row in retried] == [
        ("*", scorer, result.pooled.windows[0]) for scorer in result.scorers
    ]
    assert float(retried[0]["retry_success_low"]) == result.pooled.retrying[0].success.low


def test_the_table_for_a_spreadsheet_has_pairs_curves_and_calibration(result: VerifierResult, tmp_path: Path) -> None:
    with result.save(tmp_path / "t.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == "*"]
    pooled = result.pooled
    of = {kind: [row for row in rows if row["kind"] == kind] for kind in {row["kind"] for row in rows}}
    assert [
        (row["scorer"], row["minus"], float(row["difference"]), float(row["difference_low"])) for row in of["pair"]
    ] == [(p.first, p.second, p.difference.value, p.difference.low) for p in pooled.pairs]
    curve = [(one.scorer, point) for one in pooled.retrying for point in one.curve]
    assert [(row["scorer"], float(row["mean_takes"]), float(row["mean_success"])) for row in of["retrying"]] == [
        (scorer, point.takes, point.success) for scorer, point in curve
    ]
    assert [float(row["pass_rate"]) for row in of["retrying"]] == list(reject.RATES) * 3
    assert [float(row["mean_success"]) for row in of["best of"]] == [
        point.success for one in pooled.retrying for point in one.best_of
    ]
    (calibrated,) = pooled.calibration
    assert [(float(row["stated"]), float(row["happened"]), int(row["bin_takes"])) for row in of["calibration"]] == [
        (b.stated, b.happened.value, b.takes) for b in calibrated.bins
    ]
    (summed,) = [row for row in of["scorer"] if row["brier"]]
    assert (summed["scorer"], float(summed["brier"])) == ("oracle-ish", calibrated.brier)


def test_retrying_stands_beside_the_best_of_all_takes_with_its_picture(result: VerifierResult, tmp_path: Path) -> None:
    page = result.save(tmp_path / "page.html").read_text()
    text = result.save(tmp_path / "page.md").read_text()
    assert page.count("Success against mean takes") == 3
    for i in range(3):
        for part in ("curve/10", "best_of/2"):
            assert f'data-path="/pooled/retrying/{i}/{part}/success"' in page
    assert "## Retrying until the score passes" in text
    assert "| scorer | takes on average | success | gain over one take | success, best of 3 |" in text


def test_names_from_files_cannot_act_in_any_format(result: VerifierResult, tmp_path: Path) -> None:
    def hostile(verifier):  # type: ignore[no-untyped-def]
        return replace(verifier, scorer=HOSTILE) if verifier.scorer == "manifold" else verifier

    pooled = result.pooled
    bad = replace(
        pooled, policy="=cmd|'/c calc'!A1", verifiers=tuple(map(hostile, pooled.verifiers)),
        pairs=(replace(pooled.pairs[0], first=HOSTILE),),
        calibration=(Calibration(HOSTILE, "full", 1, 0.0, 0.0, pooled.calibration[0].bins),),
    )  # fmt: skip
    changed = replace(
        result, pooled=bad, scorers=(HOSTILE, *result.scorers[1:]), length=(HOSTILE,), seconds={HOSTILE: 1.0},
        notes=(HOSTILE,), runs=(HOSTILE,),
    )  # fmt: skip
    assert "<img src=x" not in changed.save(tmp_path / "p.html").read_text()
    text = changed.save(tmp_path / "p.md").read_text()
    assert "<img" not in text
    assert "[a](javascript" not in text
    tex = changed.save(tmp_path / "p.tex").read_text()
    assert "\\input{x}" not in tex
    assert re.search(r"50\\% \\\$\\_\\#", tex)
    with changed.save(tmp_path / "p.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["policy"].startswith("'=cmd")


def tables_of(tex: str) -> list[list[str]]:
    """The rows of each table of a LaTeX text, its head first."""
    found = []
    for _, body in re.findall(r"\\begin\{(tabular|longtable)\}(.*?)\\end\{\1\}", tex, re.DOTALL):
        found.append([line for line in body.splitlines() if line.endswith("\\\\") and "\\caption" not in line])
    return found


def test_latex_has_every_table_of_the_page_and_each_is_whole(result: VerifierResult, tmp_path: Path) -> None:
    tex = result.save(tmp_path / "t.tex").read_text()
    scorers, pairs, retried, points, calibrated, cells = tables_of(tex)
    assert len(scorers) == 1 + 6
    assert len(pairs) == 1 + len(result.pooled.pairs)
    assert len(retried) == 1 + 3
    assert len(points) == 1 + 3 * (11 + 3)
    assert len(calibrated) == 1 + len(result.pooled.calibration[0].bins)
    assert len(cells) == 1 + 2 * 3
    for table in (scorers, pairs, retried, points, calibrated, cells):
        assert len({line.count(" & ") for line in table}) == 1
    columns = re.findall(r"\\begin\{(?:tabular|longtable)\}\{(l+r*)\}", tex)
    assert [len(one) for one in columns] == [table[0].count(" & ") + 1 for table in tables_of(tex)]
    text = result.save(tmp_path / "t.md").read_text()
    assert points[5].split(" & ")[1].replace("\\", "") in text
    alone = replace(
        result, cells=result.cells[:1], pooled=replace(result.pooled, pairs=(), retrying=(), calibration=())
    )
    assert len(tables_of(alone.save(tmp_path / "one.tex").read_text())) == 1


def test_runs_together_have_the_scorers_that_all_of_them_have(run: Path, tmp_path: Path, cache: Path) -> None:
    plan = besttake.Plan(
        policy="testbed:alt", env="testbed:pick", starts=3, seeds=3, arms=("base",), demos_per_task=4,
        probe_states=0, check_states=0,
    )  # fmt: skip
    besttake.diagnose(plan, out=tmp_path / "other")
    both = besttake.verifiers([run, tmp_path / "other"])
    assert both.scorers == ("manifold", "coverage")
    assert both.pooled.starts == 19
    assert len(both.cells) == 3
    assert both.notes == ("not all runs have scores by oracle-ish, so it is left out",)
    assert not both.pooled.calibration


def test_scorers_of_one_name_that_differ_between_runs_are_told_apart_in_a_note(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    with Store.open(copy) as store:
        manifest = store.manifest
    with Store.write(copy, manifest) as store:
        scores = Scores.open(copy)
        assert scores is not None
        scores.joined(dict(scores), {"oracle-ish": "2"}).save(store)
    assert besttake.verifiers([run, copy]).notes == (
        "oracle-ish is not the same in all runs: its settings, what it learned from or its instructions differ",
    )


def test_wrong_requests_are_one_line(run: Path, tmp_path: Path, result: VerifierResult) -> None:
    with pytest.raises(PlanError, match="`bar` 'none': not among the scorers"):
        besttake.verifiers(run, bar="none")
    with pytest.raises(PlanError, match="`format` 'pdf': choose html, md, csv, tex, json"):
        result.save(tmp_path / "x.pdf")
    with pytest.raises(RunError):
        besttake.verifiers(tmp_path)


def test_the_command_prints_scorers_and_controls_and_writes_the_page(
    besttake: object, run: Path, tmp_path: Path
) -> None:
    done = besttake("verifiers", run, "-o", tmp_path / "page.html")  # type: ignore[operator]
    for word in ("manifold", "coverage", "oracle-ish", "random", "shortest"):
        assert word in done.stdout
    assert (tmp_path / "page.html").is_file()
    printed = json.loads(besttake("verifiers", run, "--json", "--bar", "coverage").stdout)  # type: ignore[operator]
    assert printed["bar"] == "coverage"


def test_the_report_of_a_run_lists_every_scorer(run: Path, tmp_path: Path) -> None:
    page = besttake.report(run, tmp_path / "report.html").read_text()
    section = page[page.index('id="scorers"') : page.index('id="relation"')]
    for word in ("manifold", "coverage", "shortest", "oracle"):
        assert f">{word}" in section


def test_a_scorer_of_length_alone_is_marked_though_it_does_not_say_so(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    (tmp_path / "by_length.py").write_text(
        "from besttake.scorers.base import Score, ScorerSpec\n"
        "class make:\n"
        "    spec = ScorerSpec('short', reads=('actions',), fingerprint='1')\n"
        "    def score(self, takes, demos):\n"
        "        return [Score([-float(end) for end in take.ends]) for take in takes]\n"
    )
    besttake.score(copy, ["python:by_length:make"])
    marked = besttake.verifiers(copy)
    assert marked.length == ("short",)
    assert marked.pooled.of("short", "episode").capture.value > 0.9  # type: ignore[union-attr,operator]
    assert "short (reads length)" in marked.save(tmp_path / "page.md").read_text()


def test_scorers_that_harm_are_named_with_their_cells_and_what_chance_would_do(result: VerifierResult) -> None:
    first, second = result.cells
    bad = Estimate(-0.1, -0.2, -0.05, 8)
    harmed = replace(first, verifiers=tuple(replace(v, gain=bad) for v in first.verifiers if v.scorer == "manifold"))
    lines = summary(replace(result, cells=(harmed, second)))
    place = f"{first.policy} on {first.tasks}"
    assert f"Picking by manifold is worse than a random pick for {place} (−10.0 points [−20.0, −5.0])." in lines
    assert "These are 1 of 6 pairs of scorer and cell; if none harmed, about 0.2 would still seem to." in lines
    assert not any("worse than a random pick" in line for line in summary(replace(result, cells=(second, second))))
