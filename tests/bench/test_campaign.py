"""The campaign adds up pieces, and counts what it attacked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.campaign import __main__ as command
from bench.campaign import run
from bench.campaign.stage import STAGES, Attempt, check, stage


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A stage of ten tries of two attacks, of which the fourth is broken while ``faults`` holds something."""
    faults = [1.0]
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(run, "PAGE", tmp_path / "page.md")
    for name in list(STAGES):
        monkeypatch.delitem(STAGES, name)
    tries = iter(range(1000))

    @stage("toy", "nothing", ci=1, full=10, each=2)
    def _(scratch: Path) -> Iterator[Attempt]:
        def attempt(rng: random.Random, place: Path) -> tuple[str, int]:
            check(not (next(tries) == 3 and faults), "it broke")
            return "fine", 2

        yield attempt

    return faults


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["campaign", *arguments])
    return command.main()


def test_pieces_go_on_where_the_last_one_stopped_and_add_up(
    toy: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = STAGES["toy"]
    run.keep(run.run_stage(stage, 0, range(2), until=1e12))
    run.keep(run.run_stage(stage, 7, range(1), until=1e12))
    assert '| 6 of 20 | 3 x "fine" | 0 |' in run.PAGE.read_text()
    assert call(monkeypatch, "--full") == 1
    assert "toy: 7 tries" in capsys.readouterr().err
    page = run.PAGE.read_text()
    assert '| 18 of 20 | 9 x "fine" | 1 |' in page
    assert "- toy: it broke [python -m bench.campaign toy --seed 0 --try 2]" in page
    assert {place: one.tries for place, one in run.kept().items()} == {("toy", 0): 9, ("toy", 7): 1}


def test_a_broken_try_is_made_again_and_counts_once(toy: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "--full") == 1
    toy.clear()
    assert call(monkeypatch, "--full", "--broken") == 0
    assert '| 20 | 10 x "fine" | 0 |' in run.PAGE.read_text()
    assert call(monkeypatch, "--full", "--afresh") == 0
    assert [one.tries for one in run.kept().values()] == [10]


def test_a_stage_that_had_no_time_is_not_passed_over(
    toy: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--minutes", "0.0000001") == 0
    assert "nothing broke; no time for a try of toy\n" in capsys.readouterr().out
