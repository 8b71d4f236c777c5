"""The log: silent in a program, one format on standard error with ``-v``, also from workers."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

PLAN = ["--policy", "testbed:half", "--env", "testbed:pick", "--starts", "1", "--seeds", "1", "--arms", "base",
        "--demos-per-task", "4", "--probe-states", "0"]  # fmt: skip


def test_the_package_says_nothing_unless_a_program_asks() -> None:
    import besttake as _  # noqa: F401  (its logger gets a handler that says nothing)

    code = "import besttake, logging; logging.getLogger('besttake.takes').warning('heard?')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("besttake").handlers)


@pytest.mark.slow
def test_verbose_tells_what_is_set_up_and_what_a_run_already_has(besttake, tmp_path: Path) -> None:
    first = besttake("diagnose", *PLAN, "-o", tmp_path / "run", "-q", "-v").stderr
    assert "besttake.verbs.diagnose.setup: environment testbed:pick: 1 tasks, 1000 starts each" in first
    assert "besttake.verbs.diagnose.setup: loading policy testbed:half" in first
    assert "testbed:half in testbed:pick: 1 of 1 takes to play" in first
    again = besttake("diagnose", *PLAN, "--starts", "2", "-o", tmp_path / "run", "-q", "-v").stderr
    assert "found in the cache at" in again
    assert "1 takes are there" in again
    assert "1 of 2 takes to play" in again
    assert besttake("diagnose", *PLAN, "--starts", "2", "-o", tmp_path / "run", "-q").stderr == ""


def test_workers_log_as_their_parent_does() -> None:
    code = """
import logging
from besttake import log
from besttake.takes.pool import WorkerPool
log.show(logging.INFO)
pool = WorkerPool(1)
pool.map(logging.getLogger("besttake.somewhere").info, ["from a worker"])
pool.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip().endswith("besttake.somewhere: from a worker")
