"""Progress on standard error: a bar on a terminal, a line now and then in a pipe, nothing when quiet.

A diagnosis shows one bar for all of its takes (`Reporter.run`), with the present stage, the success of single takes so
far, and the time left. Other work has a bar of its own (`Reporter.stage`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.segment import Segment
from rich.text import Text

from besttake.arms import BASE
from besttake.sanitize import printable

if TYPE_CHECKING:
    from besttake.result import Result

_EVERY = 10.0
_SURE, _ENOUGH = 3.0, 20
"""Seconds and steps before the time left is shown, because the first steps come in bursts or wait for a start."""
Clock = Callable[[], float]


class SafeConsole(Console):
    """A console that escapes control codes in its input, such as names from files."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, highlight=False, emoji=False, markup=False)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with control codes escaped, except those with which rich itself moves the cursor."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Stage:
    """A stage of work: ``done`` of ``total`` steps (0: not known yet), timed once the total is known."""

    def __init__(self, name: str = "", unit: str = "", total: int = 0, clock: Clock = time.monotonic) -> None:
        self.name, self.unit, self.done, self.total = name, unit, 0, total
        self.draw: Callable[[], None] = lambda: None
        self._clock, self.began = clock, clock()

    def advance(self, count: int = 1) -> None:
        """Count ``count`` more steps as done."""
        self.reach(self.done + count, self.total)

    def reach(self, done: int, total: int) -> None:
        """Set the number of steps that are done, and the total as far as it is known."""
        if not self.done and not self.total:
            self.began = self._clock()
        self.done, self.total = done, total
        self.draw()

    def left(self) -> float | None:
        """Seconds left; None if unknown."""
        return time_left(self.done, self.total, self._clock() - self.began)

    def counted(self) -> str:
        """``library 120/400 frames``."""
        return f"{self.name} {self.done}{f'/{self.total}' if self.total else ''} {self.unit}".rstrip()

    def text(self) -> str:
        """``library 120/400 frames, 23 s left``."""
        return ", ".join(filter(None, (self.counted(), duration(self.left()))))


@dataclass
class RunProgress:
    """The progress of a run over all its stages: the most takes ``planned`` for each policy, and those ``done``.

    ``singles`` are the outcomes of single takes of the ``policy`` that is playing.
    """

    planned: dict[str, int]
    clock: Clock = time.monotonic
    draw: Callable[[], None] = lambda: None
    stage: Stage | None = None
    done: int = 0
    policy: str = ""
    singles: list[bool] = field(default_factory=list)
    on_take: Callable[[str, str, bool | None], None] = lambda policy, arm, success: None
    _played: float = 0.0
    _plays: bool = False

    @property
    def total(self) -> int:
        """The most takes of the run, as far as is known."""
        return sum(self.planned.values())

    @contextmanager
    def during(self, stage: Stage, plays: bool) -> Iterator[Stage]:
        """Within this context the run is in ``stage``; ``plays`` says whether it plays takes."""
        self.stage, self._plays, stage.draw = stage, plays, self.draw
        self.draw()
        try:
            yield stage
        finally:
            self._played = self._seconds()
            self.stage, self._plays = None, False

    def _seconds(self) -> float:
        """The time spent playing takes."""
        return self._played + (self.clock() - self.stage.began if self.stage is not None and self._plays else 0.0)

    def saw(self, policy: str, arm: str, success: bool | None) -> None:
        """Count a take. The mean of ``singles`` does not estimate pass@1 yet, because takes that fail end last."""
        self.done += 1
        self.on_take(policy, arm, success)
        if policy != self.policy:
            self.policy, self.singles = policy, []
        if arm == BASE and success is not None:
            self.singles.append(success)

    def left(self) -> float | None:
        """Seconds left for all takes; None if unknown."""
        if self.done >= self.total:
            return self.stage.left() if self.stage is not None else None
        return time_left(self.done, self.total, self._seconds())

    def doing(self) -> str:
        """The present stage: ``takes testbed:half`` or ``scores 12/90 takes``; empty between stages."""
        stage = self.stage
        return "" if stage is None else stage.name if self._plays else stage.counted()

    def text(self) -> str:
        """``takes testbed:half, 120 of at most 2880 takes, of base takes that ended 41 % succeeded, 2 min left``."""
        single = ""
        if self._plays and self.singles:
            single = f"of base takes that ended {100 * sum(self.singles) / len(self.singles):.0f} % succeeded"
        elif self._plays and self.stage is not None and not self.stage.done and self._seconds() > _EVERY:
            single = f"playing the first takes for {self._seconds():.0f} s"
        counted = f"{self.done} of at most {self.total} takes" if self.total else ""
        return ", ".join(filter(None, (self.doing(), counted, single, duration(self.left()))))


def time_left(done: int, total: int, took: float) -> float | None:
    """Seconds left after ``done`` of ``total`` steps took ``took`` seconds; None if that is too early to say."""
    known = total and took >= _SURE and done >= max(1, min(_ENOUGH, total // 5))
    return (total - done) * took / done if known else None


def duration(seconds: float | None) -> str:
    """``2 min left``; empty if unknown."""
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.0f} s left"
    return f"{seconds / 60:.0f} min left" if seconds < 6000 else f"{seconds / 3600:.1f} h left"


class Reporter:
    """Shows progress and notes on standard error, unless it is quiet."""

    def __init__(self, shown: bool = True) -> None:
        self.console = SafeConsole(stderr=True)
        self.shown = shown
        self._run: RunProgress | None = None

    def note(self, text: str) -> None:
        """Print a line, unless quiet."""
        if self.shown:
            self.console.print(text, style="dim", soft_wrap=not self.console.is_terminal)

    def conclude(self, result: Result) -> None:
        """Called with the result of a diagnosis."""

    @contextmanager
    def run(self, planned: Mapping[str, int]) -> Iterator[RunProgress]:
        """Show all stages within this context as one run, with ``planned`` takes for each policy."""
        self._run = run = RunProgress(dict(planned))
        try:
            with self._shown(run):
                yield run
        finally:
            self._run = None

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "", *, plays: bool = False) -> Iterator[Stage]:
        """Show a stage of ``total`` steps; -1 means that `Stage.reach` will set the total, and 0 shows nothing.

        Within `run`, it is a stage of the run; ``plays`` says whether its steps are the run's takes.
        """
        stage = Stage(name, unit, max(total, 0))
        if total == 0:
            yield stage
        elif self._run is not None:
            with self._run.during(stage, plays):
                yield stage
        else:
            with self._shown(stage):
                yield stage

    @contextmanager
    def _shown(self, progress: Stage | RunProgress) -> Iterator[None]:
        """Draw a bar for ``progress``, or print a line now and then if there is no terminal."""
        printed = time.monotonic()

        def line() -> None:
            nonlocal printed
            if self.shown and time.monotonic() - printed >= _EVERY:
                printed = time.monotonic()
                print(printable(progress.text()), file=sys.stderr, flush=True)

        if not self.shown or not self.console.is_terminal:
            progress.draw = line
            yield
            return
        with Progress(BarColumn(20), _Text(progress.text), console=self.console, transient=True) as bar:
            task = bar.add_task("", total=None)
            progress.draw = lambda: bar.update(task, completed=progress.done, total=progress.total or None)
            yield


def as_reporter(progress: bool | Reporter) -> Reporter:
    """Return the reporter itself, or one that shows progress (True) or nothing (False)."""
    return progress if isinstance(progress, Reporter) else Reporter(progress)


class _Text(ProgressColumn):
    """The text beside a bar, made again whenever the bar is drawn, so that the time left is up to date."""

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__()
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text())
