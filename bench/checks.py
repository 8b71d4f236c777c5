"""What the checksums of a run cost: their processor time over that of the whole diagnosis, workers included.

``python -m bench.checks [STARTS]``: a diagnosis of one testbed policy on one task, then the same command again, which
checks everything that was written.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.timing import machine
from besttake.config import Plan
from besttake.verbs.diagnose import diagnose

CHECKS = (
    "besttake.takes.table._checksum", "besttake.takes.take._sealed", "besttake.takes.manifest._checksum",
    "besttake.takes.store._sha256", "besttake.measure.scores._array_checksum",
    "besttake.measure.scores.Scores.digest", "besttake.result._checksum",
)  # fmt: skip


def main() -> None:
    starts = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1].isdigit() else "20"
    plan = Plan(policy="testbed:half", env="testbed:pick", starts=starts)
    with tempfile.TemporaryDirectory() as scratch:
        diagnose(Plan(policy="testbed:half", env="testbed:pick", starts="1", seeds=1), Path(scratch) / "warm")
        for what in ("a diagnosis", "the same again"):
            spent, whole = measured(lambda: diagnose(plan, Path(scratch) / "run"))
            print(f"{what}: checksums {spent:.3f} s of {whole:.1f} s processor time, {100 * spent / whole:.2f} %")
    print(machine())


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds of the checksums, and of everything."""
    spent = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal spent
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                spent += time.thread_time() - began

        return run

    before = os.times()
    with ExitStack() as stack:
        for name in CHECKS:
            stack.enter_context(patch(name, timed(_found(name))))
        work()
    after = os.times()
    return spent, sum(after[:4]) - sum(before[:4])


def _found(name: str) -> Callable[..., Any]:
    from pkgutil import resolve_name

    return resolve_name(name)  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
