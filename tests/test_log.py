"""The log: silent in a program, one format on standard error with ``-v``, also from workers."""

from __future__ import annotations

import logging
import subprocess
import sys


def test_the_package_says_nothing_unless_a_program_asks() -> None:
    import besttake as _  # noqa: F401  (its logger gets a handler that says nothing)

    code = "import besttake, logging; logging.getLogger('besttake.takes').warning('heard?')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("besttake").handlers)


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
