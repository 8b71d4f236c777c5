"""Episodes and recordings, which every reader returns, and helpers to find and open files of results.

Only regular files are read, bounded in number, size and depth.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from numbers import Real
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from besttake import files
from besttake.errors import BestTakeError, one_line

_BY_CHANCE = 1e-3
"""Two runs are equal by chance more rarely than this where equal files in two folders count as copies."""
_YES = {"1", "1.0", "true", "yes", "success", "succeeded", "successful", "s", "y", "t"}
_NO = {"0", "0.0", "false", "no", "fail", "failure", "failed", "f", "n"}
_NOTHING = {"", "nan", "none", "null", "n/a", "na"}


class IngestError(BestTakeError):
    """Raised for a file of outcomes that is damaged, of an unknown format, or lacks what headroom needs."""


class UnknownFormat(IngestError):
    """Raised for a file of no known format. Such files in a directory are skipped."""


@dataclass(frozen=True)
class Episode:
    """One episode. ``start`` names its initial state within the task; ``seed``, if known, distinguishes repeats.

    ``success`` is None if the episode could not be run (``error`` says why). ``timeout`` marks one that ran out of
    time, which is a failure. ``uid`` identifies this execution, if the file does: two files with the same uid hold the
    same episode. A uid that begins with ``~`` is almost unique: only files that share all such uids are taken for
    copies.

    ``env_seed`` and ``state`` (a hash of the initial state) say, where recorded, which takes share a start. ``others``
    are further columns that may name the start. ``values`` were logged along the episode, ``group`` is a kind of task.
    """

    task: str
    start: str
    success: bool | None
    policy: str = ""
    env: str = ""
    seed: str = ""
    steps: int | None = None
    error: str = ""
    uid: str = ""
    timeout: bool = False
    env_seed: str = ""
    state: str = ""
    group: str = ""
    values: tuple[float, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recording:
    """One evaluation, read from a file or folder.

    ``server`` describes the policy without naming a checkpoint: a server's class, a model family. Recordings with the
    same ``origin`` belong to the same policy. ``words`` are the parts of its path that a person chose, which may
    distinguish policies. ``resets``: to what this harness resets its env, if known: "start" (its initial state) or
    "task" (any one of its task).
    """

    path: str
    format: str
    episodes: tuple[Episode, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    server: str = ""
    origin: str = ""
    words: str = ""
    resets: str = ""


def is_copy(path: str | Path, first: str | Path, recordings: Sequence[Recording]) -> bool:
    """Whether a file with the same episodes as the ``first`` is a copy of it, and not another run with equal outcomes.

    One episode is no evidence. Files in one folder are copies unless their names differ in numbers alone (``run_0``,
    ``run_1``); those and files in two folders are copies if two runs would hardly be equal by chance.
    """
    episodes = [episode for recording in recordings for episode in recording.episodes]
    if len(episodes) == 1:
        return False
    (folder, name), (other, first_name) = ((Path(each).parent, Path(each).stem) for each in (path, first))
    numbered = name != first_name and re.sub(r"\d+", "", name) == re.sub(r"\d+", "", first_name)
    varied = any(episode.uid for episode in episodes) or len({episode.steps for episode in episodes}) > 2
    rate = (sum(episode.success is True for episode in episodes) + 1) / (len(episodes) + 2)
    chance = (rate**2 + (1 - rate) ** 2) ** len(episodes)
    return varied or chance < _BY_CHANCE or (folder == other and not numbered)


def outcome(value: Any) -> bool | None:
    """Parse an outcome: True, False, or None if there is none (null, NaN, an empty cell).

    Booleans, 0 and 1, and words such as "yes" are outcomes. Anything else (0.5, -1, "maybe", a list) is a ValueError,
    so that nothing is mistaken for a success.

    >>> outcome("false"), outcome(1.0), outcome(float("nan"))
    (False, True, None)
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _NOTHING:
            return None
        if text in _YES or text in _NO:
            return text in _YES
    elif hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return outcome(value.item())
    elif isinstance(value, Real) or type(value).__name__ == "Decimal":
        if value != value:  # NaN
            return None
        if value in (0, 1):
            return bool(value == 1)
    raise ValueError(f"success = {value!r:.60} is neither yes nor no; use 1 and 0, or true and false")


_NUMBERED = r"(?:^|[-_./,])({})(?:[-_]?(?:id|idx|index))?[-_=]?(\d+)(?=[-_./,]|$)"
"""A folder or file with a number: ``seed_7``, ``episode-3.json``, ``seed=7,start=3``."""
_STARTS = r"start|init(?:ial)?(?:[-_]?state)?|episode"
NUMBERED = re.compile(_NUMBERED.format(rf"seed|task|{_STARTS}"), re.IGNORECASE)


def _numbers(path: str, names: str) -> dict[str, str]:
    return {f"{name.lower()}/": number for name, number in re.findall(_NUMBERED.format(names), path, re.IGNORECASE)}


def seed_in(path: str) -> str:
    """Return the seed that a path names (``seed_7/``); the innermost if several do, and "" if none does."""
    return _numbers(path, "seed").get("seed/", "")


def task_in(path: str) -> str:
    """Return the task that a path numbers (``task_3/``), as "task 3"; "" if it numbers none."""
    number = _numbers(path, "task").get("task/", "")
    return f"task {number}" if number else ""


def suite_in(path: str) -> str:
    """Return the suite of LIBERO that a path names (``libero_goal/``); "" if it names none."""
    return next(iter(re.findall(r"libero_(?:spatial|object|goal|10|90)(?![^-_./,])", path)), "")


def starts_in(path: str, levels: str = "") -> dict[str, str]:
    """Return the folders and files in a path that number starts, or those that the user named (``scene/``).

    >>> starts_in("results/start_3/episode_1.json")
    {'start/': '3', 'episode/': '1'}
    """
    return _numbers(path, "|".join(map(re.escape, levels.lower().strip("/").split("/"))) if levels else _STARTS)


def start_in(path: str, levels: str = "") -> str:
    """Return the start that the numbers in a path make together; "" if it has none."""
    return "/".join(starts_in(path, levels).values())


_TIMEOUT = re.compile(r"time[sd]?[ _-]?out|(?:max|maximum|step)[ _-]?(?:steps?|limit)(?:[ _-]reached)?|truncated", re.I)


def is_timeout(reason: str) -> bool:
    """Whether the reason of a failure is only that the time was up."""
    return bool(_TIMEOUT.fullmatch(reason.strip()))


def outcome_at(place: str, value: Any) -> bool | None:
    """`outcome` of a value that stands at ``place``; IngestError, which begins with it, if it is invalid."""
    try:
        return outcome(value)
    except ValueError as error:
        raise IngestError(f"{place} has {error}") from error


def whole(value: Any) -> int | None:
    """Parse a count such as a number of steps; None if it is not one."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number >= 0 and not isinstance(value, bool) else None


LARGEST_JSON = 256 * 2**20
"""JSON is parsed as a whole, which takes about ten times its size; result files have some megabytes."""
LONGEST_LINE = 2**20
_MOST_FILES = 1_000_000


def files_under(root: Path) -> Iterator[Path]:
    """Yield the regular files under a directory, sorted by name; links to directories are not followed.

    Files of a LeRobot data set are left out: they are no results of an evaluation.
    """
    seen = 0
    stack = [root]
    while stack:
        directory = stack.pop()
        if _safely((directory / "meta" / "info.json").is_file):
            continue
        try:
            with os.scandir(directory) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            if directory == root:
                raise IngestError(f"{root}: cannot be listed ({one_line(error)})") from error
            continue
        stack += [Path(entry.path) for entry in reversed(entries) if _safely(entry.is_dir, follow_symlinks=False)]
        for entry in entries:
            if _safely(entry.is_file):
                seen += 1
                if seen > _MOST_FILES:
                    raise IngestError(f"{root} holds over {_MOST_FILES} files; name the folder that has the results")
                yield Path(entry.path)


def check_file(path: Path) -> None:
    """Raise IngestError unless ``path`` is a regular file (no pipe, no device)."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise IngestError(f"{path}: no such file or directory") from error
    if not stat.S_ISREG(mode):
        raise IngestError(f"{path}: not a regular file; give a file or a directory of results")


def read_json(path: Path) -> Any:
    """Read a JSON file; UnknownFormat if it is damaged, nested too deeply or larger than `LARGEST_JSON`."""
    try:
        with open_text(path) as file:
            text = file.read(LARGEST_JSON + 1)
        if len(text) > LARGEST_JSON:
            raise ValueError(f"more than {LARGEST_JSON >> 20} MB")
        return files.read_json(text)
    except (OSError, ValueError) as error:
        reason = one_line(error, 160)
        raise UnknownFormat(f"{path}: damaged JSON ({reason}); write it again with the program that made it") from error


def open_text(path: Path, **options: Any) -> TextIO:
    """Open a text file, which may be packed (``.gz``)."""
    packed = gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb")
    return TextIOWrapper(cast(BinaryIO, packed), encoding="utf-8-sig", **options)


def kind_of(path: Path) -> str:
    """The ending of a file's name that says its format: ``.csv`` for ``o.csv`` and ``o.csv.gz``."""
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines of a text file; UnknownFormat for a line longer than `LONGEST_LINE`."""
    try:
        with open_text(path, errors="replace") as file:
            for number in range(1, 1 << 60):
                line = file.readline(LONGEST_LINE)
                if not line:
                    return
                if len(line) == LONGEST_LINE:
                    raise UnknownFormat(f"{path}: line {number} is longer than any that a harness writes")
                yield number, line.rstrip("\n")
    except OSError as error:
        raise IngestError(f"{path}: cannot be read ({one_line(error)})") from error


def _safely(ask: Any, **options: Any) -> bool:
    try:
        return bool(ask(**options))
    except OSError:
        return False
