"""Progress counts a whole run, and promises nothing before it can."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from besttake import progress
from besttake.progress import Pace, Reporter, Whole


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_run_is_one_count_over_all_policies_with_the_time_for_all_of_it() -> None:
    clock = Clock()
    whole = Whole({"a": 100, "b": 100}, clock)
    whole.begin(Pace("check", "samples", clock, total=10), plays=False)
    clock.now = 7.0
    assert whole.text() == "check 0/10 samples, 0 of at most 200 takes"
    whole.end()
    whole.begin(Pace("takes a", "takes", clock, total=100), plays=True)
    clock.now = 57.0
    for i in range(50):
        whole.saw("a", "base" if i % 2 else "cooled", i % 4 == 1)
    # 150 takes at one a second, and one more check of 7 s
    assert whole.left() == pytest.approx(150 + 7)
    assert whole.text() == "takes a, 50 of at most 200 takes, pass@1 so far 52 %, 3 min left"
    whole.expect("b", 25)
    assert whole.left() == pytest.approx(75 + 7)
    whole.expect("a", 100)
    whole.saw("b", "base", False)
    assert whole.text() == "takes a, 51/125 takes, pass@1 so far 0 %, 80 s left", "policies are not pooled"
    whole.end()
    assert whole.text().startswith("51/125 takes")


def test_the_first_steps_give_no_rate() -> None:
    clock = Clock()
    pace = Pace("takes", "takes", clock, total=400)
    pace.done, clock.now = 60, 0.5
    assert pace.text() == "takes 60/400 takes"
    pace.done, clock.now = 1, 60.0
    assert pace.text() == "takes 1/400 takes"
    pace.done, clock.now = 100, 50.0
    assert pace.text() == "takes 100/400 takes, 2.0/s, 2 min left"


def test_a_pipe_gets_lines_that_name_the_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    with Reporter().stage("statistics", 3, "cells") as stage:
        stage.advance(2)
    assert capsys.readouterr().err == "statistics 2/3 cells\n"
    with Reporter(False).whole({"a": 1}), Reporter(False).stage("x", 3) as stage:
        stage.advance()
    assert capsys.readouterr().err == ""
