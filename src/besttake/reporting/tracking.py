"""Takes and verdicts of a diagnosis in an experiment tracker, while it goes on (`--track trackio|wandb`).

Trackio keeps them on this machine; Weights & Biases does so, too, unless ``WANDB_MODE`` says otherwise. Nothing of a
run depends on it.
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


class Tracked(Reporter):
    """Shows progress, and logs each take as it ends and each verdict once it is there."""

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
        """As without a tracker, with a record there from the first take to the verdict."""
        with one_clear_error(f"--track {self._tracker}: {{}}"), redirect_stdout(sys.stderr):
            # By this object: takes are logged from other threads, of which trackio's functions know nothing.
            self._record = self._library.init(**self._settings)
        try:
            with super().run(planned) as progress:
                progress.on_take = self._take
                yield progress
        except BaseException:
            self._safely(self._record.finish)
            raise

    def conclude(self, result: Result) -> None:
        """Log what the run found, and end the record."""
        cells = (*result.policies, *result.cells)
        self._send({name: value for cell in cells for name, value in _numbers(cell).items()})
        self._safely(self._record.finish)

    def _take(self, policy: str, arm: str, success: bool | None) -> None:
        if success is None:
            return
        own = self._outcomes.setdefault(f"{policy}/{arm}", [])
        own.append(success)
        made, mean = sum(map(len, self._outcomes.values())), sum(own) / len(own)
        self._send({"takes": made, f"{policy}/{arm}/take": float(success), f"{policy}/{arm}/success": mean})

    def _send(self, values: Mapping[str, float]) -> None:
        self._safely(lambda: self._record.log(dict(values)))

    def _safely(self, call: Callable[[], object]) -> None:
        """Call the tracker; one that fails costs a line, never a run."""
        if self._lost:
            return
        try:
            with redirect_stdout(sys.stderr):  # stdout belongs to the caller's answer
                call()
        except Exception as error:
            self._lost = True
            self.note(f"{self._tracker} failed, nothing more is logged there ({one_line(error)})")


def _numbers(cell: Cell) -> dict[str, float]:
    """The main numbers of a cell that are known, with the ends of their intervals."""
    known = {} if cell.headroom is None else {"pass@1": cell.headroom.pass_1, "headroom": cell.headroom.headroom}
    if cell.verdict is not None:
        known |= {"recommended success": cell.verdict.success, "recommended gain": cell.verdict.gain}
    where = cell.policy if cell.group == "*" else f"{cell.policy}/{cell.group}"
    ends = {(name, end): getattr(one, end) for name, one in known.items() for end in ("value", "low", "high")}
    return {
        f"verdict/{where}/{name}{'' if end == 'value' else f' {end}'}": value
        for (name, end), value in ends.items()
        if value is not None
    }
