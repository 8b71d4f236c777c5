"""The sign of life of a run."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from besttake.takes import heartbeat
from besttake.takes.heartbeat import Beat, Heartbeat, read_heartbeat


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_EVERY", 0.01)


def wait_for_another(directory: Path, number: int) -> Beat:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        beat = read_heartbeat(directory)
        if beat is not None and beat.number > number:
            return beat
        time.sleep(0.005)
    raise TimeoutError


def test_a_run_beats_while_it_goes_on_and_leaves_nothing_behind(tmp_path: Path) -> None:
    counts = itertools.count()
    with Heartbeat(tmp_path, lambda: Beat("takes", next(counts), 40, 1.5)):
        first = read_heartbeat(tmp_path)
        assert first is not None
        later = wait_for_another(tmp_path, first.number)
        assert (later.text, later.total, later.left) == ("takes", 40, 1.5)
        assert later.done > first.done
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_run_is_not_written_through(tmp_path: Path) -> None:
    other, run = tmp_path / "other", tmp_path / "run"
    other.write_text("mine")
    run.mkdir()
    for name in (heartbeat.FILE, f"{heartbeat.FILE}.tmp"):
        (run / name).symlink_to(other)
    with Heartbeat(run, lambda: Beat("takes")):
        assert wait_for_another(run, 0).text == "takes"
    assert other.read_text() == "mine"
