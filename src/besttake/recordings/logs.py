"""Logs of the LIBERO evaluation scripts of OpenVLA, OpenVLA-OFT and openpi, and the names of videos that scripts save.

Logs: ``experiments/robot/libero/run_libero_eval.py`` of openvla/openvla and of its many forks writes
``EVAL-SUITE-FAMILY-DATE[--NOTE].txt`` and prints the same lines; ``examples/libero/main.py`` of
Physical-Intelligence/openpi logs them with a prefix (``INFO:root:``; others ``INFO | >>`` or ``- INFO -``), between the
bars of tqdm. Each episode has ``Task: ...``, ``Starting episode 3...`` (counted from 1 within its task),
``Success: True`` and ``# episodes completed so far: 23``; an exception is logged and the episode then called a failure.

Videos, which are not opened: ``save_rollout_video`` in ``experiments/robot/libero/libero_utils.py`` of openvla/openvla
(``DATE--episode=3--success=True--task=....mp4``, episodes counted over all tasks);
``simpler_env/evaluation/maniskill2_evaluator.py`` of simpler-env/SimplerEnv
(``CHECKPOINT/SCENE/CONTROL/ENV/rob_..._rgb_overlay_.../success_obj_episode_3_....mp4``), and its branch for ManiSkill 3
(``real2sim_eval/MODEL_ENV/gpu_eval_3_success=True.mp4``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
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
        uid = uid_in_run(len(self.episodes) + 1, task, text)
        success, env = None if self.error else won, self.suite or "LIBERO"
        self.episodes.append(Episode(task, start, success, env=env, error=self.error, uid=uid))
        self.running = None


def uid_in_run(number: int, task: str, success: str) -> str:
    """An id of an episode that is the same for its log and its video; scripts cut and join the words of a task."""
    words = re.sub(r"[ \n.]", "_", task.lower())[:40]
    return f"{number}/{words}/{success}"


def uid_of(run: str, episode: str) -> str:
    """An id of an episode in all runs, which are named by the second in which they began."""
    date = DATE.search(run)
    return f"~{date[0] if date else run}/{episode}"


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
        notes, known = [], match is not None and len(kept) == 1
        if one.unfinished or one.running:
            notes.append(f"{path.name}: {one.unfinished + bool(one.running)} episodes were begun and not finished")
        recordings.append(
            Recording(
                str(path), "OpenVLA log" if match else "LIBERO log",
                tuple(replace(e, uid=uid_of(match[0], e.uid) if match and known else "") for e in one.episodes),
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
            evaluations[-1].episodes.append(replace(one.episodes.pop(), task=one.block))
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


VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".gif")
_OPENVLA = re.compile(r"^(?P<run>.+?)--episode=(?P<number>\d{1,9})--success=(?P<won>[^-]+?)--task=(?P<task>.*)$")
_SIMPLER = re.compile(r"^(?P<won>success|failure)_obj_(?P<start>episode_\d+|[^_]+_[^_]+)(?:_.*)?$")
_MANISKILL3 = re.compile(r"^(?:cpu|gpu)_eval_(?P<start>-?\d+)_success=(?P<won>[^_]+)$")
_MODEL_ENV = re.compile(r"^(?P<model>.+)_(?P<env>[A-Za-z0-9]+-v\d+)$")


def names_outcome(path: Path) -> bool:
    """Whether the name of a video says how its episode ended."""
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        return False
    simpler = _SIMPLER.match(path.stem) and path.parent.name.startswith("rob_")
    return bool(_OPENVLA.match(path.stem) or simpler or _MANISKILL3.match(path.stem))


def read_videos(paths: Iterable[Path], logged: Collection[str] = ()) -> tuple[list[Recording], list[str]]:
    """Read the evaluations that these videos show; also return a line for each that was left out.

    ``logged`` are the uids of episodes that a log already holds; their videos are ignored.
    """
    groups: dict[tuple[str, Path, str], list[Path]] = defaultdict(list)
    for path in paths:
        folder = path.resolve().parent
        if match := _OPENVLA.match(path.stem):
            if _uid(match) in logged:
                continue
            groups["openvla", folder, match["run"]].append(path)
        elif _MANISKILL3.match(path.stem):
            groups["maniskill3", folder, ""].append(path)
        else:
            checkpoint = folder.parents[3] if len(folder.parents) > 4 else folder
            groups["simpler", checkpoint, ""].append(path)
    recordings, left_out = [], []
    for (kind, folder, run), videos in sorted(groups.items()):
        try:
            recordings.append(_GROUPS[kind](folder, run, videos))
        except IngestError as error:
            left_out.append(str(error))
    return recordings, left_out


def _openvla(folder: Path, run: str, videos: Sequence[Path]) -> Recording:
    """Read OpenVLA's videos. Episodes are numbered over all tasks of equal size, so the number gives the start."""
    episodes: dict[int, tuple[str, bool | None]] = {}
    uids = {}
    for video in videos:
        match = _OPENVLA.match(video.stem)
        assert match is not None
        won = outcome_at(f"{video}: its name", match["won"])
        number, seen = int(match["number"]), (match["task"].partition("--")[0], won)
        if episodes.setdefault(number, seen) != seen:
            raise IngestError(f"{folder}: {run} has episode {number} twice, with different outcomes; remove one")
        uids[number] = _uid(match)
    numbers = sorted(episodes)
    if numbers != list(range(1, len(numbers) + 1)):
        raise IngestError(
            f"{folder}: {run} has videos of {len(numbers)} of {numbers[-1]} episodes, so their starts are not known;"
            " give the EVAL-*.txt that was written with them"
        )
    read = [
        Episode(task, str(start), episodes[number][1], env="LIBERO", uid=uids[number])
        for number, (task, start) in zip(numbers, _placed([episodes[n][0] for n in numbers]), strict=True)
    ]
    family = run.partition("--")[2]
    words = "/".join([*folder.parts, DATE.sub("", run)])
    return Recording(
        str(folder), "OpenVLA videos", tuple(read), evaluation=run, server=family, origin=f"{folder}/{run}", words=words
    )


def _uid(video: re.Match[str]) -> str:
    return uid_of(video["run"], uid_in_run(int(video["number"]), video["task"].partition("--")[0], video["won"]))


def _placed(tasks: Sequence[str]) -> list[tuple[str, int]]:
    """The (task, start) of episodes in order. A block longer than all others is several tasks of the same name."""
    blocks: list[list[int]] = []
    for i, task in enumerate(tasks):
        if not blocks or tasks[blocks[-1][0]] != task:
            blocks.append([])
        blocks[-1].append(i)
    trials = min(map(len, blocks[:-1] or blocks))
    if any(len(block) % trials for block in blocks[:-1]):
        trials = len(tasks)
    seen: Counter[str] = Counter()
    placed = []
    for block in blocks:
        for first in range(0, len(block), trials):
            name = tasks[block[0]]
            seen[name] += 1
            label = name if seen[name] == 1 else f"{name} ({seen[name]})"
            placed += [(label, start) for start in range(len(block[first : first + trials]))]
    return placed


def _simpler(checkpoint: Path, run: str, videos: Sequence[Path]) -> Recording:
    episodes = []
    for video in videos:
        parts = video.resolve().parent.parts[-4:]
        if len(parts) < 4:
            raise IngestError(f"{video}: not in the folders that SimplerEnv makes (CHECKPOINT/SCENE/CONTROL/ENV/rob_…)")
        scene, _, env, pose = parts
        start, won = _start_and_outcome(_SIMPLER, video)
        episodes.append(Episode(f"{scene}/{env}", f"{pose}/{start}", won, env="SimplerEnv"))
    return _named(checkpoint, "SimplerEnv results", episodes, checkpoint.name)


def _maniskill3(folder: Path, run: str, videos: Sequence[Path]) -> Recording:
    named = _MODEL_ENV.match(folder.name)
    env = named["env"] if named else folder.name
    episodes = [Episode(env, *_start_and_outcome(_MANISKILL3, video), env="SimplerEnv") for video in videos]
    return _named(folder, "SimplerEnv videos", episodes, named["model"] if named else "")


_GROUPS = {"openvla": _openvla, "maniskill3": _maniskill3, "simpler": _simpler}
"""What reads the videos of one evaluation."""


def _start_and_outcome(pattern: re.Pattern[str], video: Path) -> tuple[str, bool | None]:
    match = pattern.match(video.stem)
    assert match is not None
    return match["start"], outcome_at(f"{video}: its name", match["won"])


def _named(folder: Path, kind: str, episodes: list[Episode], model: str) -> Recording:
    counts = Counter((episode.task, episode.start) for episode in episodes)
    again = [start for start, number in counts.items() if number > 1]
    if again:  # a second run keeps the first one's videos where outcomes changed
        raise IngestError(
            f"{folder}: {len(again)} starts have several videos (such as {again[0][1]} of {again[0][0]}): the results "
            "of several runs lie in one folder, and which outcomes are of which is not known; keep each run apart"
        )
    ordered = tuple(sorted(episodes, key=lambda e: (e.task, e.start)))
    words = "/".join(folder.parent.parts)
    return Recording(str(folder), kind, ordered, server=model, origin=str(folder), words=words)
