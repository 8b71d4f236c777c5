"""Progress for people: a bar with time left on a terminal, a plain line now and then when piped, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_EVERY = 10.0


class Stage:
    """One stretch of work that counts its steps; ``show`` is called with the number done."""

    def __init__(self, show: Callable[[int], None] = lambda done: None) -> None:
        self.done, self._show = 0, show

    def advance(self, count: int = 1) -> None:
        """Note that ``count`` more are done."""
        self.done += count
        self._show(self.done)


class Reporter:
    """Shows progress and notes on standard error, unless it is quiet."""

    def __init__(self, shown: bool = True) -> None:
        self.console = Console(stderr=True, highlight=False, emoji=False, markup=False)
        self.shown = shown

    def note(self, text: str) -> None:
        """A line worth reading unless one wants quiet."""
        if self.shown:
            self.console.print(text, style="dim", soft_wrap=True)

    @contextmanager
    def stage(self, name: str, total: int, unit: str = "") -> Iterator[Stage]:
        """Show a stretch of ``total`` steps."""
        if not self.shown or total == 0:
            yield Stage()
        elif self.console.is_terminal:
            with Progress(
                TextColumn("{task.description:<12}"), BarColumn(40), MofNCompleteColumn(), _Rate(),
                TimeRemainingColumn(), console=self.console, transient=True,
            ) as bar:  # fmt: skip
                task = bar.add_task(name, total=total, unit=unit)
                yield Stage(lambda done: bar.update(task, completed=done))
        else:
            yield Stage(_Lines(name, total, unit).show)


def as_reporter(progress: bool | Reporter) -> Reporter:
    """The reporter itself, or one that shows progress (True) or nothing (False)."""
    return progress if isinstance(progress, Reporter) else Reporter(progress)


class _Lines:
    """Prints a line every ten seconds, where there is no terminal to draw a bar on."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._began = self._printed = time.monotonic()

    def show(self, done: int) -> None:
        now = time.monotonic()
        if now - self._printed >= _EVERY and done < self._total:
            self._printed = now
            rate = done / (now - self._began)
            left = (self._total - done) / rate
            line = f"{self._name}: {done}/{self._total} {self._unit}, {rate:.1f}/s, {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        unit = task.fields["unit"]
        return Text(f"{task.speed:.1f} {unit}/s" if task.speed and unit else "", style="dim")
