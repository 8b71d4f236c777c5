"""Progress for people: a bar with time left on a terminal, a plain line now and then when piped, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_EVERY = 10.0


class Stage:
    """One stretch of work that counts its steps."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0

    def advance(self, count: int = 1) -> None:
        """Note that ``count`` more are done."""
        self.done += count


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
            yield Stage(name, total)
        elif self.console.is_terminal:
            with Progress(
                TextColumn("{task.description:<12}"), BarColumn(40), MofNCompleteColumn(), _Rate(unit),
                TimeRemainingColumn(), console=self.console, transient=True,
            ) as bar:  # fmt: skip
                yield _BarStage(name, total, bar)
        else:
            yield _LineStage(name, total, unit)


def as_reporter(progress: bool | Reporter) -> Reporter:
    """The reporter itself, or one that shows progress (True) or nothing (False)."""
    return progress if isinstance(progress, Reporter) else Reporter(progress)


class _BarStage(Stage):
    def __init__(self, name: str, total: int, bar: Progress) -> None:
        super().__init__(name, total)
        self._bar, self._id = bar, bar.add_task(name, total=total)

    def advance(self, count: int = 1) -> None:
        super().advance(count)
        self._bar.update(self._id, advance=count)


class _LineStage(Stage):
    def __init__(self, name: str, total: int, unit: str) -> None:
        super().__init__(name, total)
        self._unit, self._began, self._printed = unit, time.monotonic(), time.monotonic()

    def advance(self, count: int = 1) -> None:
        super().advance(count)
        now = time.monotonic()
        if now - self._printed >= _EVERY and self.done < self.total:
            self._printed = now
            rate = self.done / (now - self._began)
            left = (self.total - self.done) / rate
            line = f"{self.name}: {self.done}/{self.total} {self._unit}, {rate:.1f}/s, {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        rate = f"{task.speed:.1f} {self._unit}/s" if task.speed and self._unit else ""
        return Text(rate, style="dim")
