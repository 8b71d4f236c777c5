"""Progress for people: a bar with time left on a terminal, a plain line now and then when piped, nothing when quiet.

A diagnosis shows one bar for all of its takes (`Reporter.whole`), with the stage that is going on, the success of
single takes so far, and the time that is left for takes and checks. Other work shows its own bar (`Reporter.stage`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.segment import Segment
from rich.text import Text

from besttake.arms import BASE
from besttake.sanitize import printable

_EVERY = 10.0
_SURE = 3.0
_ENOUGH = 20
"""Before so many seconds and steps no rate is shown: the first steps come in bursts, or wait for something to start."""
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
    """One stretch of work that counts its steps; ``show`` gets the number done and that of all (0: unknown)."""

    def __init__(self, show: Callable[[int, int], None] = lambda done, total: None, total: int = 0) -> None:
        self.done, self.total, self._show = 0, total, show

    def advance(self, count: int = 1) -> None:
        """Note that ``count`` more are done."""
        self.reach(self.done + count, self.total)

    def reach(self, done: int, total: int) -> None:
        """Note that ``done`` of ``total`` are done, as far as one knows now."""
        self.done, self.total = done, total
        self._show(done, total)


@dataclass
class Pace:
    """How fast one stretch of work goes, over all of it so far.

    Work that does not know beforehand how much it is (``total`` 0) says so with its first count, when all is set up:
    a model is loaded, a data set is open. Its time counts from then on.
    """

    name: str
    unit: str = ""
    clock: Clock = time.monotonic
    done: int = 0
    total: int = 0

    def __post_init__(self) -> None:
        self.began = self.clock()
        self._counted_from = self.began, 0

    def count(self, done: int, total: int) -> None:
        """Note that ``done`` of ``total`` steps are done."""
        if not self.done and not self.total:
            self._counted_from = self.clock(), done
        self.done, self.total = done, total

    def rate(self) -> float | None:
        """Steps a second; None while that cannot be told yet."""
        began, before = self._counted_from
        took, steps = self.clock() - began, self.done - before
        return steps / took if took >= _SURE and _enough(steps, self.total) else None

    def left(self) -> float | None:
        """Seconds that are left; None where that is not known."""
        rate = self.rate()
        return (self.total - self.done) / rate if rate and self.total else None

    def text(self) -> str:
        """``library 120/400 frames, 12.1/s, 23 s left``."""
        counted = f"{self.done}/{self.total}" if self.total else str(self.done)
        rate = self.rate()
        parts = [f"{self.name} {counted} {self.unit}".rstrip(), f"{rate:.1f}/s" if rate else "", duration(self.left())]
        return ", ".join(filter(None, parts))


@dataclass
class Whole:
    """A run with all of its stages: the takes that each policy has at most to make, and those done.

    ``singles`` are the outcomes of single takes of the ``policy`` that is playing.
    """

    planned: dict[str, int]
    clock: Clock = time.monotonic
    stage: Pace | None = None
    done: int = 0
    policy: str = ""
    singles: list[bool] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _playing: float = 0.0
    _others: dict[str, list[float]] = field(default_factory=dict)
    _plays: bool = False

    @property
    def total(self) -> int:
        """All takes that are to be made, as far as one knows now."""
        return sum(self.planned.values())

    def expect(self, policy: str, takes: int) -> None:
        """Note how many takes a policy really has to make."""
        self.planned[policy] = takes
        self._known.add(policy)

    def begin(self, stage: Pace, plays: bool) -> None:
        """``stage`` begins; ``plays`` says that it makes takes."""
        self.stage, self._plays = stage, plays

    def end(self) -> None:
        """The stage is over."""
        assert self.stage is not None
        took = self.clock() - self.stage.began
        if self._plays:
            self._playing += took
        else:
            self._others.setdefault(self.stage.name, []).append(took)
        self.stage, self._plays = None, False

    def saw(self, policy: str, arm: str, success: bool | None) -> None:
        """Count a take; single takes of the arm base estimate pass@1 of their policy."""
        self.done += 1
        if policy != self.policy:
            self.policy, self.singles = policy, []
        if arm == BASE and success is not None:
            self.singles.append(success)

    def left(self) -> float | None:
        """Seconds for the takes to come, and for what every policy is asked besides; None while nobody can tell."""
        running = self.clock() - self.stage.began if self.stage is not None and self._plays else 0.0
        played = self._playing + running
        if self.done >= self.total:
            return self.stage.left() if self.stage is not None else None
        if played < _SURE or not _enough(self.done, self.total):
            return None
        each = [sum(took) / len(took) * max(0, len(self.planned) - len(took)) for took in self._others.values()]
        return (self.total - self.done) * played / self.done + sum(each)

    def doing(self) -> str:
        """The stage that is going on: ``takes testbed:half``, ``scores 12/90 takes``; empty between two."""
        stage = self.stage
        return "" if stage is None else stage.name if self._plays else stage.text().partition(", ")[0]

    def text(self) -> str:
        """``takes testbed:half, 120 of at most 2880 takes, pass@1 so far 41 %, 2 min left``."""
        own, shown = self.doing(), self._plays and self.singles
        single = f"pass@1 so far {100 * sum(self.singles) / len(self.singles):.0f} %" if shown else ""
        sure = self.planned.keys() <= self._known  # until then, the check of a policy may leave arms out
        counted = f"{self.done}{'/' if sure else ' of at most '}{self.total} takes" if self.total else ""
        return ", ".join(filter(None, (own, counted, single, duration(self.left()))))


def _enough(done: int, total: int) -> bool:
    """Whether so many steps tell how fast the others will be."""
    return done >= max(1, min(_ENOUGH, total // 5))


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
        self._whole: Whole | None = None
        self._draw: Callable[[], None] = lambda: None

    def note(self, text: str) -> None:
        """A line worth reading unless one wants quiet."""
        if self.shown:
            self.console.print(text, style="dim", soft_wrap=not self.console.is_terminal)

    @contextmanager
    def whole(self, planned: Mapping[str, int]) -> Iterator[Whole]:
        """Show all stages within as those of one run, whose policies have ``planned`` takes to make."""
        self._whole = whole = Whole(dict(planned))
        try:
            with self._shown(whole.text, lambda: (whole.done, whole.total)) as self._draw:
                yield whole
        finally:
            self._whole, self._draw = None, lambda: None

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "", *, plays: bool = False) -> Iterator[Stage]:
        """Show a stretch of ``total`` steps; nothing where there are none. -1: the work itself will say (`reach`).

        Within `whole`, it is a stage of the run; ``plays`` says that its steps are the run's takes.
        """
        if total == 0 or (not self.shown and self._whole is None):
            yield Stage()
            return
        pace = Pace(name, unit, total=max(total, 0))
        if self._whole is not None:
            self._whole.begin(pace, plays)
            self._draw()
            try:
                yield Stage(partial(_counted, pace, self._draw), pace.total)
            finally:
                self._whole.end()
        else:
            with self._shown(pace.text, lambda: (pace.done, pace.total)) as draw:
                yield Stage(partial(_counted, pace, draw), pace.total)

    @contextmanager
    def _shown(self, text: Callable[[], str], counts: Callable[[], tuple[int, int]]) -> Iterator[Callable[[], None]]:
        """Yield what to call when something has changed: it moves a bar, or prints a line now and then."""
        if not self.shown:
            yield lambda: None
        elif self.console.is_terminal:
            columns = BarColumn(20), _Text(text), TextColumn("")
            with Progress(*columns, console=self.console, transient=True) as bar:
                yield _Bar(bar, bar.add_task("", total=None), counts).draw
        else:
            yield _Lines(text).show


def _counted(pace: Pace, draw: Callable[[], None], done: int, total: int) -> None:
    pace.count(done, total)
    draw()


def as_reporter(progress: bool | Reporter) -> Reporter:
    """The reporter itself, or one that shows progress (True) or nothing (False)."""
    return progress if isinstance(progress, Reporter) else Reporter(progress)


@dataclass(frozen=True)
class _Bar:
    """A bar that is as long as the counts say."""

    progress: Progress
    task: TaskID
    counts: Callable[[], tuple[int, int]]

    def draw(self) -> None:
        done, total = self.counts()
        self.progress.update(self.task, completed=done, total=total or None)


class _Lines:
    """Prints a line every ten seconds, where there is no terminal to draw a bar on."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text, self._printed = text, time.monotonic()

    def show(self) -> None:
        now = time.monotonic()
        if now - self._printed >= _EVERY:
            self._printed = now
            print(printable(self._text()), file=sys.stderr, flush=True)


class _Text(ProgressColumn):
    """The text that goes with a bar, made anew whenever the bar is drawn, so that the time left goes on."""

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__()
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text())
