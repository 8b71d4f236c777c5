"""Progress for people: a bar with time left on a terminal, a plain line now and then when piped, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.text import Text

from besttake.escapes import printable

_EVERY = 10.0


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


class Reporter:
    """Shows progress and notes on standard error, unless it is quiet."""

    def __init__(self, shown: bool = True) -> None:
        self.console = SafeConsole(stderr=True)
        self.shown = shown

    def note(self, text: str) -> None:
        """A line worth reading unless one wants quiet."""
        if self.shown:
            self.console.print(text, style="dim", soft_wrap=True)

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "") -> Iterator[Stage]:
        """Show a stretch of ``total`` steps; nothing where there are none. -1: the work itself will say (`reach`)."""
        if not self.shown or total == 0:
            yield Stage()
        elif self.console.is_terminal:
            with Progress(
                TextColumn("{task.description:<12}"), BarColumn(40), MofNCompleteColumn(), _Rate(),
                TimeRemainingColumn(), console=self.console, transient=True,
            ) as bar:  # fmt: skip
                task = bar.add_task(name, total=max(total, 0) or None, unit=unit)
                yield Stage(lambda done, all: bar.update(task, completed=done, total=all or None), max(total, 0))
        else:
            yield Stage(_Lines(name, unit).show, max(total, 0))


def as_reporter(progress: bool | Reporter) -> Reporter:
    """The reporter itself, or one that shows progress (True) or nothing (False)."""
    return progress if isinstance(progress, Reporter) else Reporter(progress)


class _Lines:
    """Prints a line every ten seconds, where there is no terminal to draw a bar on."""

    def __init__(self, name: str, unit: str) -> None:
        self._name, self._unit = name, unit
        self._began = self._printed = time.monotonic()

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done and now - self._printed >= _EVERY and (done < total or not total):
            self._printed = now
            rate = done / (now - self._began)
            counted = f"{done}/{total} {self._unit}" if total else f"{done} {self._unit}"
            left = f", {(total - done) / rate:.0f} s left" if total else ""
            print(f"{self._name}: {counted}, {rate:.1f}/s{left}", file=sys.stderr, flush=True)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        unit = task.fields["unit"]
        return Text(f"{task.speed:.1f} {unit}/s" if task.speed and unit else "", style="dim")
