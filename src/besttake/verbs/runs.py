"""The runs below a directory with their verdicts (`besttake runs list`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from besttake.errors import BestTakeError, RunError
from besttake.reporting import words
from besttake.reporting.numbers import percent
from besttake.reporting.table import Column, Entry, Head, Table, Tabular, right
from besttake.result import Cell, Result
from besttake.takes.manifest import Manifest

State = Literal["finished", "unfinished", "damaged"]
_DEEPEST = 4


@dataclass(frozen=True)
class PolicyLine:
    """What a run says of one policy: its pass@1, what it needs in a word or two, and the sentence."""

    policy: str
    pass_1: float | None
    needs: str
    headline: str


@dataclass(frozen=True)
class ListedRun:
    """One run: an unfinished one has no verdicts yet, of a damaged one ``problem`` says what is wrong."""

    path: str
    state: State
    created: str = ""
    takes: int = 0
    command: str = ""
    digest: str = ""
    policies: tuple[PolicyLine, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class RunList(Tabular):
    """The runs, the newest first."""

    runs: tuple[ListedRun, ...]

    def to_json(self) -> str:
        """As JSON text: a list of runs."""
        return json.dumps([asdict(run) for run in self.runs], indent=1, allow_nan=False)

    def _table(self) -> Table:
        rows = []
        for run in self.runs:
            done = run.state == "finished"
            made, takes = (run.created[:16].replace("T", " "), run.takes) if done else ("", None)
            for line in lines(run):
                rate = Entry(percent(line.pass_1) or "-", "" if line.pass_1 is not None else "none", line.pass_1)
                needs = line.needs if done else Entry(run.problem or run.state, "warn")
                rows.append((Entry(run.path, "best"), line.policy, rate, needs, made, takes))
        columns: Head = [
            "run",
            "policy",
            *right("pass@1"),
            "needs",
            Column("made", extra=True),
            *right("takes", extra=True),
        ]
        return Table(f"{len(self.runs)} runs", columns, rows)


def lines(run: ListedRun) -> tuple[PolicyLine, ...]:
    """The policies of a run; one empty line where nothing is known of them."""
    return run.policies or (PolicyLine("", None, run.problem, ""),)


def list_runs(directory: str | Path = ".") -> RunList:
    """All runs in ``directory`` and below it, the newest first; RunError when it is no directory."""
    root = Path(directory)
    if not root.is_dir():
        raise RunError(f"{root} is not a directory; name one that holds runs, e.g. runs")
    runs = [_read(path) for path in _places(root, _DEEPEST)]
    return RunList(tuple(sorted(runs, key=lambda run: (run.created, run.path), reverse=True)))


def _places(directory: Path, deep: int) -> Iterator[Path]:
    """Directories that are runs; what lies inside a run is not looked at."""
    if any((directory / name).is_file() for name in ("run.json", "result.json")):
        yield directory
    elif deep:
        try:
            entries = sorted(entry.path for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
        except OSError:
            return
        for path in entries:
            if not Path(path).name.startswith("."):
                yield from _places(Path(path), deep - 1)


def _read(path: Path) -> ListedRun:
    try:
        if not (path / "result.json").is_file():
            return ListedRun(str(path), "unfinished", command=Manifest.read(path).command)
        result = Result.load(path / "result.json")
    except BestTakeError as error:
        return ListedRun(str(path), "damaged", problem=str(error))
    policies = tuple(map(_line, result.policies))
    return ListedRun(str(path), "finished", result.created, result.cost.takes, result.command, result.digest, policies)


def _line(policy: Cell) -> PolicyLine:
    pass_1 = policy.headroom.pass_1.value if policy.headroom is not None else None
    return PolicyLine(policy.policy, pass_1, words.needs_text(policy), words.headline(policy))
