"""What the server of the live page gives: the page, the state of the run, and films from the run directory."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from besttake.errors import RunError
from besttake.files import leads_out, links_out
from besttake.live.observer import Observer
from besttake.reporting.html import render
from besttake.reporting.live import LivePage
from besttake.reporting.page import script
from besttake.reporting.takes import Starts, compact, page_takes
from besttake.result import Result
from besttake.takes.store import load_take


@dataclass(frozen=True)
class _Report:
    """The final page, and what it was made of."""

    stamp: object
    result: Result
    text: str


class Content:
    """Makes what is asked for, one thing at a time, so that many clients cost no more memory than one."""

    def __init__(self, directory: Path, name: str) -> None:
        self.observer = Observer(directory)
        self._live = LivePage(name)
        self._turn = threading.RLock()
        self._report: _Report | None = None
        self._starts: Starts | None = None

    def page(self) -> tuple[str, bool]:
        """The page as it is now, and whether it is the final report."""
        with self._turn:
            if self.finished():
                return self._final(), True
            return self._live.whole(self.observer.state()), False

    def parts(self) -> dict[str, Any]:
        """What changes on the live page."""
        with self._turn:
            return self._live.parts(self.observer.state())

    def finished(self) -> bool:
        """Whether the page is the final report."""
        with self._turn:
            return self.observer.finished()

    def take(self, id: str) -> str | None:
        """The film of a take by its id, as JSON; None where the run has no such take."""
        directory = self.observer.directory
        with self._turn:
            row = self.observer.rows.get(id)
            if row is None or row.status != "done":
                return None
            if leads_out(directory, row.key.file):
                raise RunError(f"{row.key.file} leads out of the run")
            take = load_take(directory, row)
            film, steps = compact(take.film, take.frame_steps)
            return str(script({"film": film if film.count else None, "film_steps": [int(step) for step in steps]}))

    def start(self, id: str) -> str | None:
        """A start of a finished run with all its films, as JSON; None where the run has no such start."""
        with self._turn:
            if self._report is None:
                return None
            if self._starts is None:
                for link in links_out(self.observer.directory):
                    raise RunError(f"{link} leads out of the run, so its films are not served")
                self._starts = Starts(self.observer.directory, self._report.result)
            return self._starts.json(id)

    def close(self) -> None:
        """Let go of the run."""
        with self._turn:
            self._forget()

    def _final(self) -> str:
        """The report, made anew only when the run has changed."""
        stamp, directory = self.observer.stamp(), self.observer.directory
        if self._report is None or self._report.stamp != stamp:
            self._forget()
            result = Result.load(directory / "result.json")
            self._report = _Report(stamp, result, render(result, page_takes(directory, result), served=True))
        return self._report.text

    def _forget(self) -> None:
        if self._starts is not None:
            self._starts.close()
        self._report = self._starts = None
