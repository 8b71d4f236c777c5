"""Logs that are written line by line, and the names of videos that evaluation scripts save.

A log is described by patterns with named groups, which are tried on each of its lines (`LogFormat`). The built-in one
reads ``experiments/robot/libero/run_libero_eval.py`` of openvla/openvla and its many forks (OpenVLA-OFT, Cosmos), which
write ``EVAL-SUITE-FAMILY-DATE[--NOTE].txt`` and print the same lines; ``examples/libero/main.py`` of
Physical-Intelligence/openpi and its forks (StarVLA), which log them with a prefix between the bars of tqdm; and the
logs of Xiaomi-Robotics. Another reads what ``script/eval_policy.py`` of RoboTwin prints. Users describe others with
``--pattern``.

Videos, which are not opened: ``simpler_env/evaluation/maniskill2_evaluator.py`` of simpler-env/SimplerEnv
(``CHECKPOINT/SCENE/CONTROL/ENV/rob_..._rgb_overlay_.../success_obj_episode_3_....mp4``), and its branch for ManiSkill 3
(``real2sim_eval/MODEL_ENV/gpu_eval_3_success=True.mp4``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from besttake import files
from besttake.errors import one_line
from besttake.recordings.episodes import (
    Episode,
    IngestError,
    Recording,
    UnknownFormat,
    is_timeout,
    lines_of,
    outcome_at,
    whole,
)

SUFFIXES = (".txt", ".log", ".out", ".err")
RUN = re.compile(
    r"EVAL-(?P<suite>.+?)-(?P<family>[^-]+)-(?P<time>\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d)(?:--(?P<note>.+?))?(?=\.txt|$)"
)
_HEAD = 2000
"""A known log has a line that fits among its first lines, after warnings and progress bars."""
_LASTING = ("suite", "task", "task_id", "policy", "seed", "env_seed", "resets")
GROUPS = (*_LASTING, "start", "steps", "error", "value", "success", "count", "wins")
"""The named groups of patterns. The first ones hold until a later line changes them; the others belong to one episode,
which begins with its start and ends with its success; the last two are the log's own counts. In a format without
``success``, a line with a start and ``wins`` ends an episode, which succeeded if ``wins`` rose."""


@dataclass(frozen=True)
class LogFormat:
    """A kind of log, described by ``patterns`` with the named `GROUPS`; the first that fits a line counts.

    Starts are counted from ``first``. Users write one as YAML: ``name``, ``first`` and the list ``patterns``.
    """

    name: str
    patterns: tuple[re.Pattern[str], ...]
    first: int = 0

    @classmethod
    def of(cls, given: Sequence[str]) -> LogFormat:
        """Make a format of patterns, or of one YAML file with them; IngestError says what is wrong."""
        name, first, patterns = "your pattern", 0, list(given)
        if len(given) == 1 and given[0].endswith((".yaml", ".yml")):
            import yaml

            try:
                described = yaml.safe_load(files.read_regular(Path(given[0])))
                patterns, name = list(described["patterns"]), str(described.get("name", name))
                first = int(described.get("first", 0))
            except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
                raise IngestError(f"{given[0]}: {one_line(error)}; it needs 'patterns', a list") from error
        try:
            made = tuple(re.compile(pattern) for pattern in patterns)
        except (re.error, TypeError) as error:
            raise IngestError(f"--pattern: not a regular expression ({error})") from error
        known = {name for pattern in made for name in pattern.groupindex}
        if "start" not in known or not known & {"success", "wins"} or known - {*GROUPS}:
            raise IngestError(
                f"--pattern: names the groups {', '.join(sorted(known)) or 'none'}; it needs (?P<start>…) \
and (?P<success>…), and knows {', '.join(GROUPS)}"
            )
        return cls(name, made, first)


_AT = r"(?:^|[:\]|>-])\s*"
LIBERO = LogFormat(
    "LIBERO log",
    tuple(re.compile(_AT + pattern) for pattern in (
        r"Task suite: (?P<suite>\S+)\s*$",
        r"Task(?: (?P<task_id>\d+))?: (?P<task>.+?)(?:[\s\u2580-\u259f]*\| \d+/\d+ \[.*)?\s*$",
        r"Starting (?:task=(?P<task_id>\d+) )?episode[ =](?P<start>\d+) ?\.\.\.\s*$",
        r"Task_id (?P<task_id>\d+): Episode (?P<start>\d+): (?P<success>\w+) \|.*\((?P<wins>\d+)/\d+\)",
        r"(?:Caught exception|Episode error): (?P<error>.*)$",
        r"Success: (?P<success>.+?)\s*$",
        r"# episodes completed (?:on this rank )?so far: (?P<count>\d+)\s*$",
        r"# successes(?: on this rank)?: (?P<wins>\d+) ",
        r"Current base seed: (?P<seed>\d+)",
        r"Predicted value = (?P<value>-?[\d.]+)",
        r"(?P<resets>Using default initial states)",
    )),
    first=1,
)  # fmt: skip
ROBOTWIN = LogFormat(
    "RoboTwin log",
    tuple(re.compile(pattern) for pattern in (
        r"Success rate: (?P<wins>\d+)/(?P<count>\d+) => .*current seed: (?P<start>\d+)",
        r"^(?P<task>\w+) \| (?:\S+ \| )?(?P<suite>\w+)(?: \| \S+)?\s*$",  # of the policy and checkpoint, too
    )),
)  # fmt: skip
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


@dataclass
class _Evaluation:
    """One evaluation, collected line by line: the values that hold now (``said``), and the episodes that ended."""

    said: dict[str, str] = field(default_factory=dict)
    block: tuple[str, str] = ("", "")
    last: int = 0
    running: dict[str, str] | None = None
    values: list[float] = field(default_factory=list)
    wins: int | None = None
    unfinished: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    episodes: list[Episode] = field(default_factory=list)

    def start(self, number: int, first: int) -> None:
        """Begin an episode. A number that is not higher means another task, perhaps with the same instruction."""
        self.unfinished += self.running is not None
        task = self.said.get("task") or self.said.get("task_id") or "task"
        block = task, self.said.get("task_id", "")
        if block != self.block or number <= self.last:
            self.block = block
            self.seen[task] += 1
        self.last, self.values = number, []
        times = self.seen[task]
        start = str(number - first)
        self.running = {"task": task if times == 1 else f"{task} ({times})", "start": start}

    def end(self, place: str, text: str, env: str) -> None:
        """End the episode with the outcome ``text``."""
        if self.running is None:
            return
        own, error = self.running, self.running.get("error", "")
        won, late = outcome_at(place, text), is_timeout(error)
        self.episodes.append(Episode(
            own["task"], own["start"], None if error and not late else won and not late, error=error, timeout=late,
            policy=self.said.get("policy", ""), seed=self.said.get("seed", ""), env=self.said.get("suite") or env,
            steps=whole(own.get("steps")), env_seed=self.said.get("env_seed", ""), values=tuple(self.values),
            uid=f"{len(self.episodes) + 1}/{own['task']}/{text}",
        ))  # fmt: skip
        self.running = None


def read_log(path: Path, form: LogFormat = LIBERO) -> list[Recording]:
    """Read the evaluations of one log; it holds several if it was appended to."""
    evaluations, run, unread = _evaluations(path, form)
    kept = [one for one in evaluations if one.episodes]
    if not kept and form is LIBERO and any(one.episodes for one in _evaluations(path, ROBOTWIN)[0]):
        return read_log(path, ROBOTWIN)
    if not kept:
        raise UnknownFormat(f"{path}: {_nearest(form, evaluations[0], unread)}")
    match = RUN.search(path.name) or RUN.search(run)
    place = path.resolve()
    note = (match["note"] or "") if match else path.stem
    recordings = []
    for number, one in enumerate(kept, start=1):
        won = sum(bool(episode.success) for episode in one.episodes)
        if one.wins not in (None, won) and not any(episode.error for episode in one.episodes):
            raise IngestError(f"{path}: its own count says {one.wins} successes, its episodes {won}; lines are missing")
        notes, known = [], match is not None and len(kept) == 1
        if one.unfinished or one.running:
            notes.append(f"{path.name}: {one.unfinished + bool(one.running)} episodes were begun and not finished")
        recordings.append(
            Recording(
                str(path), "OpenVLA log" if match else form.name,
                tuple(replace(e, uid=f"~{match[0]}/{e.uid}" if match and known else "") for e in one.episodes),
                notes=tuple(notes), server=match["family"] if match else "", origin=f"{place}#{number}",
                words="/".join([*place.parent.parts, note]), resets="start" if "resets" in one.said else "",
            )
        )  # fmt: skip
    return recordings


def _evaluations(path: Path, form: LogFormat) -> tuple[list[_Evaluation], str, tuple[int, str]]:
    """Return the evaluations of a log, the EVAL file that it names, and the first episode line that fits no pattern."""
    evaluations, run, unread, fitted = [_Evaluation()], "", (0, ""), False
    env = "LIBERO" if form is LIBERO else ""
    counts_wins = not any("success" in pattern.groupindex for pattern in form.patterns)
    for line, coloured in lines_of(path):
        one, text = evaluations[-1], _COLOURS.sub("", coloured)
        match = next((fits for pattern in form.patterns if (fits := pattern.search(text))), None)
        found = {name: value for name, value in match.groupdict().items() if value is not None} if match else {}
        fitted = fitted or not found.keys().isdisjoint(("start", "suite", "task"))
        if not fitted and line > _HEAD:
            break
        if not found:
            if not unread[0] and re.search("succe|fail|episode", text, re.I):
                unread = line, text.strip()[:120]
            if not run and (named := RUN.search(text)):
                run = named[0]
            continue
        one.said.update({name: found[name] for name in _LASTING if name in found})
        if "start" in found:
            one.start(int(found["start"][:9]), form.first)
        if one.running is not None:
            one.running |= {name: found[name].strip() or name for name in ("error", "steps") if name in found}
        if "value" in found:
            one.values.append(float(found["value"]))
        wins = int(found["wins"][:9]) if "wins" in found else None
        if counts_wins and "start" in found and wins is not None:
            found["success"] = str(wins > (0 if found.get("count") == "1" else one.wins or 0))
        if "success" in found:
            one.end(f"{path}: line {line}", found["success"], env)
        if "count" in found and int(found["count"][:9]) == 1 and len(one.episodes) > 1:
            evaluations.append(_Evaluation(dict(one.said), one.block, one.last, seen=Counter({one.block[0]: 1})))
            evaluations[-1].episodes.append(replace(one.episodes.pop(), task=one.block[0]))
        evaluations[-1].wins = evaluations[-1].wins if wins is None else wins
    return evaluations, run, unread


def _nearest(form: LogFormat, one: _Evaluation, unread: tuple[int, str]) -> str:
    """Say what a log lacks to be of this format, with its first line that does not fit."""
    had = [name for name in ("suite", "task") if name in one.said] + ["start"] * bool(one.seen)
    near = f"nearest is {form.name}, of which it has {', '.join(had)} and no outcome" if had else f"not a {form.name}"
    line = f"; line {unread[0]} does not fit: {unread[1]!r}" if unread[0] else ""
    return f"{near}{line}; describe its lines with --pattern 'episode (?P<start>\\d+).*(?P<success>success|failure)'"


VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".gif")
_SIMPLER = re.compile(r"^(?P<won>success|failure)_obj_(?P<start>episode_\d+|[^_]+_[^_]+)(?:_.*)?$")
_MANISKILL3 = re.compile(r"^(?:cpu|gpu)_eval_(?P<start>-?\d+)_success=(?P<won>[^_]+)$")
_MODEL_ENV = re.compile(r"^(?P<model>.+)_(?P<env>[A-Za-z0-9]+-v\d+)$")


def names_outcome(path: Path) -> bool:
    """Whether the name of a video says how its episode of SimplerEnv ended."""
    return path.suffix.lower() in VIDEO_SUFFIXES and _named_by(path) is not None


def _named_by(path: Path) -> re.Match[str] | None:
    return (_SIMPLER.match(path.stem) if path.parent.name.startswith("rob_") else None) or _MANISKILL3.match(path.stem)


def read_videos(paths: Iterable[Path]) -> tuple[list[Recording], list[str]]:
    """Read the evaluations that the names of videos show; also return a line for each that was left out."""
    groups: dict[Path, list[Episode]] = defaultdict(list)
    models, left_out = {}, []
    for path in paths:
        folder, match = path.resolve().parent, _named_by(path)
        assert match is not None
        if match.re is _MANISKILL3:
            named = _MODEL_ENV.match(folder.name)
            root, start = folder, match["start"]
            models[root], task = (named["model"], named["env"]) if named else ("", folder.name)
        elif len(folder.parents) > 4:
            root, start = folder.parents[3], f"{folder.name}/{match['start']}"
            models[root], task = root.name, f"{folder.parts[-4]}/{folder.parts[-2]}"
        else:
            left_out.append(f"{path}: not in the folders that SimplerEnv makes (CHECKPOINT/SCENE/CONTROL/ENV/rob_…)")
            continue
        groups[root].append(Episode(task, start, outcome_at(f"{path}: its name", match["won"]), env="SimplerEnv"))
    recordings = []
    for root, episodes in sorted(groups.items()):
        again = [at for at, times in Counter((e.task, e.start) for e in episodes).items() if times > 1]
        if again:  # a second run keeps the first one's videos where outcomes changed
            left_out.append(
                f"{root}: {len(again)} starts have several videos (such as {again[0][1]} of {again[0][0]}): results "
                "of several runs lie in one folder, and which outcomes are of which is not known; keep each run apart"
            )
            continue
        ordered = tuple(sorted(episodes, key=lambda e: (e.task, e.start)))
        words = "/".join(root.parent.parts)
        recordings.append(
            Recording(str(root), "SimplerEnv videos", ordered, server=models[root], origin=str(root), words=words)
        )
    return recordings, left_out
