"""Logs of the LIBERO evaluation scripts of OpenVLA, OpenVLA-OFT and openpi.

Layout: ``experiments/robot/libero/run_libero_eval.py`` of openvla/openvla and of its many forks writes
``EVAL-SUITE-FAMILY-DATE[--NOTE].txt`` and prints the same lines; ``examples/libero/main.py`` of
Physical-Intelligence/openpi logs them with a prefix (``INFO:root:``; others ``INFO | >>`` or ``- INFO -``), between the
bars of tqdm. Each episode has ``Task: ...``, ``Starting episode 3...`` (counted from 1 within its task),
``Success: True`` and ``# episodes completed so far: 23``; an exception is logged and the episode then called a failure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from besttake.recordings.episodes import Episode, IngestError, Recording, UnknownFormat, lines_of, outcome_at

SUFFIXES = (".txt", ".log", ".out", ".err")
RUN = re.compile(
    r"EVAL-(?P<suite>.+?)-(?P<family>[^-]+)-(?P<time>\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d)(?:--(?P<note>.+?))?(?=\.txt|$)"
)
DATE = re.compile(r"\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d")
_AT = r"(?:^|[:\]|>-])\s*"
_SUITE = re.compile(_AT + r"Task suite: (\S+)\s*$")
_TASK = re.compile(_AT + r"Task: (.+?)\s*$")
_START = re.compile(_AT + r"Starting episode (\d+)\.\.\.\s*$")
_SKIP = re.compile(_AT + r"Skipping task \S+ episode \d+")
_ERROR = re.compile(_AT + r"(?:Caught exception|Episode error): (.*)$")
_SUCCESS = re.compile(_AT + r"Success: (.+?)\s*$")
_COUNT = re.compile(_AT + r"# episodes completed so far: (\d+)\s*$")
_WINS = re.compile(_AT + r"# successes: (\d+) ")
_HEAD = 2000
"""A log names its suite or an episode within so many lines; tqdm's bars and warnings come before."""


@dataclass
class _Evaluation:
    """One evaluation, collected line by line."""

    suite: str = ""
    task: str = ""
    block: str = ""
    last: int = 0
    skipped: int = 0
    pending: int = 0
    error: str = ""
    wins: int | None = None
    running: tuple[str, str] | None = None
    unfinished: int = 0
    said: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    episodes: list[Episode] = field(default_factory=list)

    def start(self, number: int) -> None:
        """``Starting episode number...``: from 1 on again means another task, perhaps of the same words."""
        self.unfinished += self.running is not None
        if self.task != self.block or number <= self.last:
            self.block, self.skipped = self.task, 0
            self.seen[self.task] += 1
        self.skipped += self.pending
        self.pending, self.last, self.error = 0, number, ""
        times = self.seen[self.task]
        self.running = (self.task if times == 1 else f"{self.task} ({times})", str(number - 1 + self.skipped))

    def end(self, path: Path, line: int, text: str) -> None:
        """``Success: text``."""
        if self.running is None:
            return
        won = outcome_at(f"{path}: line {line}", text)
        task, start = self.running
        self.episodes.append(
            Episode(task, start, None if self.error else won, env=self.suite or "LIBERO", error=self.error)
        )
        self.said.append(text)
        self.running = None

    def with_uids(self, run: str) -> tuple[Episode, ...]:
        """The episodes, each named by the run and its number in it."""
        numbered = enumerate(zip(self.episodes, self.said, strict=True), start=1)
        return tuple(replace(one, uid=uid_of(run, n, one.task, text)) for n, (one, text) in numbered)


def uid_of(run: str, number: int, task: str, success: str) -> str:
    """An id of an episode that is the same for its log and its video; scripts cut and join the words of a task."""
    date = DATE.search(run)
    words = re.sub(r"[ \n.]", "_", task.lower())[:40]
    return f"~{date[0] if date else run}/{number}/{words}/{success}"


def read_log(path: Path) -> list[Recording]:
    """Read the evaluations of one log; a log that was appended to holds several."""
    evaluations, run = _evaluations(path)
    kept = [one for one in evaluations if one.episodes]
    if not kept:
        raise UnknownFormat(f"{path}: not the log of a LIBERO evaluation")
    match = RUN.search(path.name) or RUN.search(run)
    place = path.resolve()
    note = (match["note"] or "") if match else path.stem
    recordings = []
    for number, one in enumerate(kept, start=1):
        _check_wins(path, one)
        notes = []
        if one.unfinished or one.running:
            notes.append(f"{path.name}: {one.unfinished + bool(one.running)} episodes were begun and not finished")
        recordings.append(
            Recording(
                str(path), "OpenVLA log" if match else "LIBERO log",
                one.with_uids(match[0]) if match and len(kept) == 1 else tuple(one.episodes),
                evaluation=match[0] if match else "", notes=tuple(notes),
                server=match["family"] if match else "", origin=f"{place}#{number}",
                words="/".join([*place.parent.parts, note]),
            )
        )  # fmt: skip
    return recordings


def _evaluations(path: Path) -> tuple[list[_Evaluation], str]:
    """What a log holds, and the name of the EVAL file that it says it also writes."""
    evaluations, run = [_Evaluation()], ""
    for line, text in _known_lines(path):
        one = evaluations[-1]
        if match := _SUITE.search(text):
            one.suite = match[1]
        elif match := _TASK.search(text):
            one.task = match[1]
        elif _SKIP.search(text):
            one.pending += 1
        elif match := _START.search(text):
            one.start(int(match[1][:9]))
        elif match := _ERROR.search(text):
            one.error = (match[1].strip() or "exception")[:200]
        elif match := _SUCCESS.search(text):
            one.end(path, line, match[1])
        elif match := _WINS.search(text):
            one.wins = int(match[1][:9])
        elif (match := _COUNT.search(text)) and int(match[1][:9]) == 1 and len(one.episodes) > 1:
            evaluations.append(_Evaluation(suite=one.suite, task=one.task, block=one.block, last=one.last))
            evaluations[-1].seen[one.block] = 1
            last = one.episodes.pop()
            evaluations[-1].said.append(one.said.pop())
            evaluations[-1].episodes.append(
                Episode(one.block, last.start, last.success, env=one.suite or "LIBERO", error=last.error)
            )
        elif not run and (match := RUN.search(text)):
            run = match[0]
    return evaluations, run


def _known_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a log; UnknownFormat if its beginning is not that of a log."""
    known = False
    for line, text in lines_of(path):
        known = known or bool(_SUITE.search(text) or _START.search(text))
        if not known and line > _HEAD:
            raise UnknownFormat(f"{path}: not the log of a LIBERO evaluation")
        yield line, text


def _check_wins(path: Path, one: _Evaluation) -> None:
    """Compare with the script's own count: if it differs, lines are missing or were misread."""
    won = sum(bool(episode.success) for episode in one.episodes)
    if one.wins is not None and not any(episode.error for episode in one.episodes) and one.wins != won:
        raise IngestError(f"{path}: its own count says {one.wins} successes, its episodes {won}; lines are missing")
