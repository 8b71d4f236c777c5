"""Progress counts a whole run, and promises nothing before it can."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from besttake import progress
from besttake.progress import Reporter, RunProgress, Stage


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_run_is_one_count_over_all_policies_with_the_time_for_all_of_it() -> None:
    clock = Clock()
    run = RunProgress({"a": 100, "b": 100}, clock)
    with run.during(Stage("check", "samples", 10, clock), plays=False):
        clock.now = 7.0
        assert run.text() == "check 0/10 samples, 0 of at most 200 takes"
    with run.during(Stage("takes a", "takes", 100, clock), plays=True):
        clock.now = 57.0
        for i in range(50):
            run.saw("a", "base" if i % 2 else "cooled", i % 4 == 1)
        assert run.left() == pytest.approx(150), "one a second"
        assert run.text() == "takes a, 50 of at most 200 takes, of base takes that ended 52 % succeeded, 2 min left"
        run.planned["b"] = 25
        run.saw("b", "base", False)
        assert run.text() == "takes a, 51 of at most 125 takes, of base takes that ended 0 % succeeded, 73 s left", (
            "policies are not pooled"
        )
    assert run.text().startswith("51 of at most 125 takes")


def test_a_pipe_gets_lines_that_name_the_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    with Reporter().stage("statistics", 3, "cells") as stage:
        stage.advance(2)
    assert capsys.readouterr().err == "statistics 2/3 cells\n"
    with Reporter(False).run({"a": 1}), Reporter(False).stage("x", 3) as stage:
        stage.advance()
    assert capsys.readouterr().err == ""
