"""Log takes and verdicts of a diagnosis to an experiment tracker while it runs (`--track trackio|wandb`).

Both trackers keep them on this machine; Weights & Biases uploads them if ``WANDB_MODE`` says so. A tracker that fails
does not affect the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from besttake.config import Plan
from besttake.errors import PlanError, need, one_clear_error, one_line
from besttake.progress import Reporter, RunProgress
from besttake.result import Cell, Result


class TrackingReporter(Reporter):
    """Shows progress, and logs each take when it ends and each verdict at the end."""

    def __init__(self, shown: bool, tracker: str, plan: Plan, out: Path) -> None:
        super().__init__(shown)
        if tracker not in ("trackio", "wandb"):
            raise PlanError(f"`track` {tracker}: choose trackio or wandb")
        self._library = need(tracker, f"--track {tracker}", tracker)
        self._settings: dict[str, Any] = {
            "project": "besttake",
            "name": out.name,
            "config": plan.model_dump(mode="json"),
        }
        if tracker == "wandb":
            self._settings |= {"mode": os.environ.get("WANDB_MODE", "offline"), "dir": os.environ.get("WANDB_DIR", out)}
        self._record: Any = None
        self._tracker, self._outcomes, self._lost = tracker, dict[str, list[bool]](), False

    @contextmanager
    def run(self, planned: Mapping[str, int]) -> Iterator[RunProgress]:
        """Show the progress of the takes, and open a record in the tracker."""
        with one_clear_error(f"--track {self._tracker}: {{}}"), redirect_stdout(sys.stderr):
            # Takes are logged through this object, because trackio's functions do not work in other threads.
            self._record = self._library.init(**self._settings)
        try:
            with super().run(planned) as progress:
                progress.on_take = self._take
                yield progress
        except BaseException:
            self._safely(self._record.finish)
            raise

    def conclude(self, result: Result) -> None:
        """Log the verdicts, and end the record."""
        cells = (*result.policies, *result.cells)
        self._send({name: value for cell in cells for name, value in _numbers(cell).items()})
        self._safely(self._record.finish)

    def _take(self, policy: str, arm: str, success: bool | None) -> None:
        if success is None:
            return
        outcomes = self._outcomes.setdefault(f"{policy}/{arm}", [])
        outcomes.append(success)
        takes, mean = sum(map(len, self._outcomes.values())), sum(outcomes) / len(outcomes)
        self._send({"takes": takes, f"{policy}/{arm}/take": float(success), f"{policy}/{arm}/success": mean})

    def _send(self, values: Mapping[str, float]) -> None:
        self._safely(lambda: self._record.log(dict(values)))

    def _safely(self, call: Callable[[], object]) -> None:
        """Call the tracker; if it fails, print a line and do not call it again."""
        if self._lost:
            return
        try:
            with redirect_stdout(sys.stderr):  # stdout is for the result
                call()
        except Exception as error:
            self._lost = True
            self.note(f"{self._tracker} failed, nothing more is logged there ({one_line(error)})")


def _numbers(cell: Cell) -> dict[str, float]:
    """Return the main numbers of a cell that are known, with the ends of their intervals."""
    known = {} if cell.headroom is None else {"pass@1": cell.headroom.pass_1, "headroom": cell.headroom.headroom}
    if cell.verdict is not None:
        known |= {"recommended success": cell.verdict.success, "recommended gain": cell.verdict.gain}
    prefix = f"verdict/{cell.policy}" if cell.group == "*" else f"verdict/{cell.policy}/{cell.group}"
    return {
        f"{prefix}/{name}{suffix}": value
        for name, estimate in known.items()
        for suffix, value in (("", estimate.value), (" low", estimate.low), (" high", estimate.high))
        if value is not None
    }
