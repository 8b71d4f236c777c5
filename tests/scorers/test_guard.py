"""A scorer that fails loses its own scores, and nobody else's."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from besttake import registry
from besttake.demos.library import Library
from besttake.errors import ComponentError
from besttake.measure.scores import Scores
from besttake.scorers import guard
from besttake.scorers.base import Score
from besttake.scorers.journal import Journal
from besttake.scorers.journal import _sum as journal_sum
from besttake.scorers.portion import Context, make_scorers, windowed
from besttake.scorers.scoring import score_run
from besttake.takes.pool import LocalPool
from besttake.takes.store import Store

SCORER = """
import os, sys, time
import numpy as np
from pathlib import Path
from besttake.errors import BestTakeError
from besttake.scorers.base import Score, ScorerSpec

class Speechless(Exception):
    def __str__(self):
        raise Speechless()

class Unreadable(BestTakeError):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")

class Unsendable(BestTakeError):
    def __init__(self):
        super().__init__("not today", lambda: 1)

class Odd:
    def __init__(self, way, **options):
        self.way = way
        seconds, loading = (0.9, 2.0) if way == "hangs" else (60.0, 600.0)
        self.spec = ScorerSpec(
            f"odd {way}", reads=("actions",), fingerprint="1", seconds=seconds, loading=loading, **options
        )

    def score(self, takes, demos):
        if (marks := os.environ.get("ODD_MARKS")):
            Path(marks, f"{time.time_ns()}").touch()
        late = os.environ.get("ODD_AFTER")
        if late and len(list(Path(marks).iterdir())) <= int(late):
            return [Score([float(take.actions.sum())] * 3, take.steps.astype(np.float32)) for take in takes]
        if self.way == "raises":
            raise ValueError("no such\\n  thing")
        if self.way == "hangs":
            time.sleep(3600)
        if self.way == "dies":
            os._exit(9)
        if self.way == "odd_error":
            raise Unreadable("one", "two")
        if self.way == "unsendable":
            raise Unsendable()
        if self.way == "slow":
            time.sleep(1.5)
        if self.way == "half":
            return [Score([np.nan if i else 1.0] * 3) for i, take in enumerate(takes)]
        if self.way == "exits":
            sys.exit("no weights here")
        if self.way == "speechless":
            raise Speechless()
        if self.way == "ours":
            raise BestTakeError("not\\ntoday " * 500)
        if self.way == "endless":
            return iter(lambda: Score([1.0] * 3), None)
        if self.way == "wide_trace":
            return [Score([1.0] * 3, np.zeros((len(take.steps), 2), np.float32)) for take in takes]
        if self.way == "short":
            takes = takes[:-1]
        value = np.nan if self.way == "nan" else 1.0
        return [Score([value] * 3) for take in takes]

class Length(Odd):
    def score(self, takes, demos):
        return [Score([-float(len(take.actions))] * 3) for take in takes]

class Restless(Odd):
    calls, weight = 0, 0.0

    def score(self, takes, demos):
        self.calls += 1
        return [Score([self.calls - self.weight * len(take.actions)] * 3) for take in takes]

class RestlessLength(Restless):
    weight = 1000.0

def make(way="well"):
    return {"length": Length, "restless": Restless, "restless length": RestlessLength}.get(way, Odd)(way)

def with_camera():
    return Odd("camera", camera="wrist")

def made_badly(way):
    if way == "hangs":
        time.sleep(3600)
    if way == "dies":
        os._exit(9)
    if way == "unsendable":
        return Odd("well", notes=(lambda: 1,))  # in its spec, which the parent needs
    sys.exit("no weights here")
"""


@pytest.fixture(autouse=True)
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd_scorer.py").write_text(SCORER)
    monkeypatch.syspath_prepend(str(tmp_path))


def scored(run: Path, library: Library | None, *uris: str, pool: LocalPool | None = None) -> Scores:
    (run / "scores.safetensors").unlink(missing_ok=True)
    encoder = None if library is None else library.encoder()
    with Store.open(run) as store:
        return score_run(store, library, encoder, ["manifold", *uris] if library else uris, pool=pool)


WRONG = {
    "raises": r"^scorer odd raises: ValueError: no such thing \(.*odd_scorer\.py:\d+\)$",
    "dies": r"^scorer odd dies: its process died",
    "short": r"^scorer odd short: 2 scores for 3 takes$",
    "exits": r"^scorer odd exits: SystemExit: no weights here$",
    "speechless": r"^scorer odd speechless: Speechless \(.*odd_scorer\.py:\d+\)$",
    "ours": r"^scorer odd ours: not today not today [^\n]{1,520}$",
    "unsendable": r"^scorer odd unsendable: TypeError: its error cannot be sent to another process \(.*not today",
    "endless": r"^scorer odd endless: 4 scores for 3 takes$",
    "wide_trace": r"^scorer odd wide_trace: a trace of \d+ x 2 for \d+ frames$",
}


@pytest.mark.parametrize(("ways", "workers"), [(("raises",), 1), (tuple(WRONG), 0)], ids=["in a worker", "here"])
def test_scorers_that_fail_lose_their_own_columns_with_one_line_each(
    run: Path, library: Library, ways: tuple[str, ...], workers: int
) -> None:
    alone = scored(run, library)
    odd = [f"python:odd_scorer:make?way={way}" for way in ways]
    pool = LocalPool(workers) if workers else None
    try:
        scores = scored(run, library, *odd, "python:odd_scorer:make", pool=pool)
    finally:
        if pool is not None:
            pool.close()
    assert set(scores.lost) == {f"odd {way}" for way in ways}
    for way in ways:
        assert re.search(WRONG[way], scores.lost[f"odd {way}"])
    assert list(scores.scorers) == ["manifold", "odd well"]
    for key, one in alone.items():
        assert {name: value for name, value in scores[key].scores.items() if name.scorer == "manifold"} == one.scores
        assert scores[key].scores["odd well", "full"] == 1.0  # type: ignore[index]
    kept = Scores.open(run)
    assert kept is not None
    assert set(kept.scorers) == {"manifold", "odd well"}


def test_a_scorer_that_hangs_is_given_up_in_time_and_its_process_is_ended(run: Path, library: Library) -> None:
    began = time.monotonic()
    with guard.Guard({"odd hangs": "python:odd_scorer:make?way=hangs"}) as guarded:
        odd = registry.scorer("python:odd_scorer:make?way=hangs")
        with Store.open(run) as store:
            takes = [store.load(row) for row in store.rows()[:3]]
        assert guarded.ask(odd, [windowed(takes)], None, ["a start"]) is None
        assert guarded.lost == {"odd hangs": "scorer odd hangs: it gave no answer within 4.7 s"}
        assert guarded.ask(odd, [windowed(takes)], None, ["a start"]) is None
        assert not guarded._children
    assert time.monotonic() - began < 300


@pytest.mark.parametrize(
    ("way", "problem"),
    [
        ("hangs", "it gave no answer within 2 s"),
        ("dies", "its process died (out of memory, or a fault in a library it uses)"),
        ("exits", "SystemExit: no weights here"),
        ("unsendable", "TypeError: its answer cannot be sent to another process (AttributeError: Can't"),
    ],
)
def test_a_scorer_that_cannot_be_made_in_its_process_costs_one_line(
    way: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_MAKING", 2.0)
    uri = f"python:odd_scorer:made_badly?way={way}"
    with pytest.raises(ComponentError, match=re.escape(f"scorer {uri}: {problem}")):
        make_scorers(["manifold", uri])


def test_code_of_others_is_not_imported_here_to_make_its_scorer(tmp_path: Path) -> None:
    scorer = guard.make_scorer("python:odd_scorer:make")
    assert scorer.spec.name == "odd well"
    assert scorer.spec == registry.scorer("python:odd_scorer:make").spec
    (tmp_path / "never_ending.py").write_text("raise SystemExit('imported')")
    with pytest.raises(ComponentError, match="SystemExit: imported"):
        guard.make_scorer("python:never_ending:make")


def test_a_scorer_that_gives_no_take_a_number_is_lost_and_one_that_gives_some_is_not(
    run: Path, library: Library
) -> None:
    scores = scored(run, library, "python:odd_scorer:make?way=nan", "python:odd_scorer:make?way=half")
    assert scores.lost == {"odd nan": f"scorer odd nan: it gave none of {len(scores)} takes a number"}
    assert list(scores.scorers) == ["manifold", "odd half"]
    given = [one.scores["odd half", "full"] for one in scores.values()]  # type: ignore[index]
    assert any(np.isnan(given))
    assert any(np.isfinite(given))
    kept = Scores.open(run)
    assert kept is not None
    assert set(kept.scorers) == {"manifold", "odd half"}


@pytest.mark.slow
def test_a_pool_waits_as_long_as_a_scorer_may_take(run: Path, library: Library) -> None:
    pool = LocalPool(1, patience=0.01)  # a tenth of a second for other work than takes
    try:
        scores = scored(run, library, "python:odd_scorer:make?way=slow", pool=pool)
    finally:
        pool.close()
    assert not scores.lost
    assert not pool.stalled


def test_an_answer_that_cannot_be_read_loses_its_scorer(run: Path, library: Library) -> None:
    scores = scored(run, library, "python:odd_scorer:make?way=odd_error")
    assert re.search(r"^scorer odd odd_error: its answer cannot be read \(TypeError", scores.lost["odd odd_error"])
    assert list(scores.scorers) == ["manifold"]


def test_a_scorer_that_reads_length_is_noticed_though_it_does_not_say_so(run: Path, library: Library) -> None:
    scores = scored(run, library, "python:odd_scorer:make?way=length", "python:odd_scorer:make")
    assert scores.length == {"odd length"}
    kept = Scores.open(run)
    assert kept is not None
    assert kept.length == {"odd length"}


def test_a_scorer_that_never_says_the_same_is_not_taken_for_one_that_reads_length(
    run: Path, library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "besttake"):
        scores = scored(
            run, library, "python:odd_scorer:make?way=restless", "python:odd_scorer:make?way=restless length"
        )
    assert scores.length == {"odd restless length"}
    assert "the scorer odd restless gives the same take another score each time it is asked" in caplog.text


def test_a_run_that_goes_on_remembers_that_a_scorer_reads_length(run: Path, tmp_path: Path) -> None:
    uri = "python:odd_scorer:make?way=length"
    odd = registry.scorer(uri)
    with Store.open(run) as store:
        takes = windowed([store.load(row) for row in store.rows()[:3]])
    for _killed in range(2):
        with guard.Guard({"odd length": uri}, Journal(tmp_path)) as guarded:
            assert guarded.ask(odd, [takes], None, ["a start"]) is not None
            assert guarded.length == {"odd length"}


def test_a_scorer_of_another_camera_is_refused_in_one_line(run: Path, library: Library) -> None:
    (run / "scores.safetensors").unlink(missing_ok=True)
    context = Context({}, {"pick": "front", "push": "front"})
    with Store.open(run) as store:
        scores = score_run(
            store, library, library.encoder(), ["manifold", "python:odd_scorer:with_camera"], context=context
        )
    assert scores.lost == {
        "odd camera": "scorer odd camera: it needs the camera 'wrist', and takes keep the pictures of 'front'"
    }


def test_without_demonstrations_scorers_that_need_none_work(run: Path) -> None:
    scores = scored(run, None, "python:odd_scorer:make", "manifold")
    assert list(scores.scorers) == ["odd well"]
    assert scores.lost == {"manifold": "scorer manifold: it needs demonstrations; name them with `demos`"}
    assert all(one.scores["odd well", "full"] == 1.0 for one in scores.values())  # type: ignore[index]


def test_a_scorer_that_failed_late_goes_on_where_it_stopped(
    run: Path, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("ODD_MARKS", str(marks))
    monkeypatch.setenv("ODD_AFTER", "12")
    lost = scored(run, library, "python:odd_scorer:make?way=raises")
    assert list(lost.lost) == ["odd raises"]
    first = len(list(marks.iterdir()))
    monkeypatch.setenv("ODD_AFTER", "1000")
    again = scored(run, library, "python:odd_scorer:make?way=raises")
    starts = 18
    assert first < starts
    assert len(list(marks.iterdir())) - first == starts - (first - 3) + 2, (
        "one call failed, two each looked at the length"
    )
    assert not (run / "scoring").exists()
    with Store.open(run) as store:
        for _, take in store.takes():
            assert again[take.key].scores["odd raises", "full"] == float(take.actions.sum())  # type: ignore[index]
            np.testing.assert_array_equal(again[take.key].traces["odd raises"], take.frame_steps)


@pytest.mark.parametrize(
    "text", ["[]", "7", '{"scorer": "a"}', '{"scorer": "a", "start": "b", "scores": [[["x"], null]]}', "[" * 5000]
)
def test_a_line_of_the_journal_that_we_would_not_write_is_left_out(tmp_path: Path, text: str) -> None:
    Journal(tmp_path).put("a", "first", [Score([1.0])])
    (path,) = (tmp_path / "scoring").iterdir()
    path.write_text(f"{journal_sum(text)} {text}\n{path.read_text()}")
    known = Journal(tmp_path).get("a", "first")
    assert known is not None
    assert list(known[0].values) == [1.0]


def test_a_line_of_the_journal_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    scores = [Score([0.1, float("nan"), -2.0], np.arange(3, dtype=np.float32)), Score([1.0, 2.0, 3.0])]
    journal.put("a", "first", scores)
    journal.put("a", "second", scores)
    (path,) = (tmp_path / "scoring").iterdir()
    path.write_text(path.read_text()[:-20])
    again = Journal(tmp_path)
    assert again.get("a", "second") is None
    assert again.get("b", "first") is None
    known = again.get("a", "first")
    assert known is not None
    np.testing.assert_array_equal(known[0].values, scores[0].values)
    assert known[0].trace is not None
    assert known[1].trace is None
    again.clear()
    assert not (tmp_path / "scoring").exists()
