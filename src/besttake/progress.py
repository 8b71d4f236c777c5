"""Progress for people: a bar with time left on a terminal, a plain line now and then when piped, nothing when quiet.

A diagnosis shows one bar for all of its takes (`Reporter.run`), with the stage that is going on, the success of single
takes so far, and the time that is left. Other work shows its own bar (`Reporter.stage`).
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
"""Before so many seconds and steps no time is told: the first steps come in bursts, or wait for something to start."""
Clock = Callable[[], float]


class SafeConsole(Console):
    """A console that writes out control codes in what it is given, such as names that came from files."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, highlight=False, emoji=False, markup=False)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of ``renderable``, made harmless; those by which rich itself moves the cursor stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class Stage:
    """One stretch of work: ``done`` of ``total`` steps (0: not known yet), timed once the total is known."""

    def __init__(self, name: str = "", unit: str = "", total: int = 0, clock: Clock = time.monotonic) -> None:
        self.name, self.unit, self.done, self.total = name, unit, 0, total
        self.draw: Callable[[], None] = lambda: None
        self._clock, self.began = clock, clock()

    def advance(self, count: int = 1) -> None:
        """Note that ``count`` more steps are done."""
        self.reach(self.done + count, self.total)

    def reach(self, done: int, total: int) -> None:
        """Note that ``done`` of ``total`` steps are done, as far as one knows now."""
        if not self.done and not self.total:
            self.began = self._clock()
        self.done, self.total = done, total
        self.draw()

    def left(self) -> float | None:
        """Seconds that are left; None where that is not known."""
        return time_left(self.done, self.total, self._clock() - self.began)

    def counted(self) -> str:
        """``library 120/400 frames``."""
        return f"{self.name} {self.done}{f'/{self.total}' if self.total else ''} {self.unit}".rstrip()

    def text(self) -> str:
        """``library 120/400 frames, 23 s left``."""
        return ", ".join(filter(None, (self.counted(), duration(self.left()))))


@dataclass
class RunProgress:
    """A run with all of its stages: the takes that each policy has at most to make, and those done.

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
        """All takes that are to be made, as far as one knows now."""
        return sum(self.planned.values())

    @contextmanager
    def during(self, stage: Stage, plays: bool) -> Iterator[Stage]:
        """``stage`` goes on within; ``plays`` says that it makes takes."""
        self.stage, self._plays, stage.draw = stage, plays, self.draw
        self.draw()
        try:
            yield stage
        finally:
            self._played = self._seconds()
            self.stage, self._plays = None, False

    def _seconds(self) -> float:
        """How long takes have been played."""
        return self._played + (self.clock() - self.stage.began if self.stage is not None and self._plays else 0.0)

    def saw(self, policy: str, arm: str, success: bool | None) -> None:
        """Count a take. Those of the arm base are no estimate of pass@1 yet: takes that fail can take longest."""
        self.done += 1
        self.on_take(policy, arm, success)
        if policy != self.policy:
            self.policy, self.singles = policy, []
        if arm == BASE and success is not None:
            self.singles.append(success)

    def left(self) -> float | None:
        """Seconds for the takes to come; None while nobody can tell."""
        if self.done >= self.total:
            return self.stage.left() if self.stage is not None else None
        return time_left(self.done, self.total, self._seconds())

    def doing(self) -> str:
        """The stage that is going on: ``takes testbed:half``, ``scores 12/90 takes``; empty between two."""
        stage = self.stage
        return "" if stage is None else stage.name if self._plays else stage.counted()

    def text(self) -> str:
        """``takes testbed:half, 120 of at most 2880 takes, of base takes that ended 41 % succeeded, 2 min left``."""
        shown = self._plays and self.singles
        single = (
            f"of base takes that ended {100 * sum(self.singles) / len(self.singles):.0f} % succeeded" if shown else ""
        )
        if not shown and self._plays and self.stage is not None and not self.stage.done and self._seconds() > _EVERY:
            single = f"playing the first takes for {self._seconds():.0f} s"
        counted = f"{self.done} of at most {self.total} takes" if self.total else ""
        return ", ".join(filter(None, (self.doing(), counted, single, duration(self.left()))))


def time_left(done: int, total: int, took: float) -> float | None:
    """Seconds for what is left when ``done`` of ``total`` took so long; None before that tells how fast it goes."""
    return (
        (total - done) * took / done if took >= _SURE and done >= max(1, min(_ENOUGH, total // 5)) and total else None
    )


def duration(seconds: float | None) -> str:
    """``2 min left``; empty where that is not known."""
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
        """A line worth reading unless one wants quiet."""
        if self.shown:
            self.console.print(text, style="dim", soft_wrap=not self.console.is_terminal)

    def conclude(self, result: Result) -> None:
        """A diagnosis has come to its result."""

    @contextmanager
    def run(self, planned: Mapping[str, int]) -> Iterator[RunProgress]:
        """Show all stages within as those of one run, whose policies have ``planned`` takes to make."""
        self._run = run = RunProgress(dict(planned))
        try:
            with self._shown(run):
                yield run
        finally:
            self._run = None

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "", *, plays: bool = False) -> Iterator[Stage]:
        """Show a stretch of ``total`` steps; nothing where there are none. -1: the work itself says (`Stage.reach`).

        Within `run`, it is a stage of the run; ``plays`` says that its steps are the run's takes.
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
        """Move a bar whenever ``progress`` draws, or print a line now and then where there is no terminal."""
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
    """The reporter itself, or one that shows progress (True) or nothing (False)."""
    return progress if isinstance(progress, Reporter) else Reporter(progress)


class _Text(ProgressColumn):
    """The text that goes with a bar, made anew whenever the bar is drawn, so that the time left goes on."""

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__()
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text())
