"""Worker processes as a user's script meets them: it is never run again, and nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import toy

from besttake.errors import RolloutError
from besttake.takes.pool import WorkerPool

WORLD = """
from besttake.testbed.env import make as testbed

def make():
    return testbed("pick")
"""

PLAIN_SCRIPT = """
open("ran", "a").write("once\\n")
import besttake
plan = besttake.Plan(policy="testbed:half", env="python:world:make", demos="testbed:pick", demos_per_task=2, starts=1,
                     seeds=1, arms=["base", "retrieve"], probe_states=0)
print(besttake.diagnose(plan, out="run").digest)
"""

HOLDS_WORKERS = """
import signal
import time
from besttake.takes.pool import WorkerPool
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
pool = WorkerPool(2)
pool.map(abs, [1, 2, 3, 4])
print(*pool.pids, flush=True)
time.sleep(600)
"""


def gone(pid: int, within: float = 60.0) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_plain_script_with_a_module_beside_it_diagnoses_and_runs_once(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "script.py").write_text(PLAIN_SCRIPT)
    (tmp_path / "world.py").write_text(WORLD)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == 64
    assert (tmp_path / "ran").read_text() == "once\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(HOLDS_WORKERS)
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert not any(gone(pid, 0.1) for pid in pids)
    parent.send_signal(how)
    parent.wait(timeout=60)
    parent.stdout.close()
    assert all(gone(pid) for pid in pids)


def test_a_worker_that_dies_idle_is_replaced() -> None:
    pool = WorkerPool(2)
    pool.map(toy.halved, [2, 4])
    os.kill(pool.pids[1], signal.SIGKILL)
    assert gone(pool.pids[1])
    assert pool.map(toy.halved, [2, 4, 6]) == [1, 2, 3]
    pool.close()


def test_work_that_raises_or_kills_its_worker_is_told(tmp_path: Path) -> None:
    own = WorkerPool(2)
    with pytest.raises(RolloutError, match="died or gave no answer 3 times"):
        own.map(toy.halved, [2, 13])
    own.close()
    other = WorkerPool(1)
    with pytest.raises(ValueError, match="7 is odd"):
        other.map(toy.halved, [7])
    other.close()


def test_a_worker_killed_in_the_middle_of_its_answer_is_replaced(tmp_path: Path) -> None:
    own = WorkerPool(1)
    assert own.map(toy.cut_short, [str(tmp_path / "died")]) == ["whole"]
    own.close()


def test_workers_that_cannot_start_are_one_line_and_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("besttake.takes.process._CODE", "raise SystemExit(1)")
    monkeypatch.setattr("besttake.takes.pool._WAIT", 0.01)
    with closing(WorkerPool(2)) as own, pytest.raises(RolloutError, match="is memory short"):
        own.map(toy.halved, [2, 4])


def test_a_machine_that_slept_gives_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("besttake.takes.pool.time.monotonic", iter(range(0, 10**9, 3600)).__next__)
    pool = WorkerPool(1, patience=30)
    assert pool.map(toy.halved, [2, 4]) == [1, 2], "an hour between two looks counts as a second"
    assert pool.stalled == 0
    monkeypatch.undo()
    pool.close()
