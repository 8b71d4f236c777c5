"""Read outcomes from the names of videos, without opening the videos.

Layouts: ``save_rollout_video`` in ``experiments/robot/libero/libero_utils.py`` of openvla/openvla
(``DATE--episode=3--success=True--task=....mp4``, episodes counted over all tasks);
``simpler_env/evaluation/maniskill2_evaluator.py`` of simpler-env/SimplerEnv
(``CHECKPOINT/SCENE/CONTROL/ENV/rob_..._rgb_overlay_.../success_obj_episode_3_....mp4``), and its branch for ManiSkill 3
(``real2sim_eval/MODEL_ENV/gpu_eval_3_success=True.mp4``).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from besttake.recordings.episodes import Episode, IngestError, Recording, outcome_at
from besttake.recordings.libero_log import DATE, uid_of

SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".gif")
_OPENVLA = re.compile(r"^(?P<run>.+?)--episode=(?P<number>\d{1,9})--success=(?P<won>[^-]+?)--task=(?P<task>.*)$")
_SIMPLER = re.compile(r"^(?P<won>success|failure)_obj_(?P<start>episode_\d+|[^_]+_[^_]+)(?:_.*)?$")
_MANISKILL3 = re.compile(r"^(?:cpu|gpu)_eval_(?P<start>-?\d+)_success=(?P<won>[^_]+)$")
_MODEL_ENV = re.compile(r"^(?P<model>.+)_(?P<env>[A-Za-z0-9]+-v\d+)$")


def names_outcome(path: Path) -> bool:
    """Whether the name of a video says how its episode ended."""
    if path.suffix.lower() not in SUFFIXES:
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
    for (kind, folder, run), videos in sorted(
        groups.items(), key=lambda item: (item[0][0], str(item[0][1]), item[0][2])
    ):
        try:
            if kind == "openvla":
                recordings.append(_openvla(folder, run, videos))
            elif kind == "simpler":
                recordings.append(_simpler(folder, videos))
            else:
                recordings.append(_maniskill3(folder, videos))
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
    return uid_of(video["run"], int(video["number"]), video["task"].partition("--")[0], video["won"])


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


def _simpler(checkpoint: Path, videos: Sequence[Path]) -> Recording:
    episodes = []
    for video in videos:
        match = _SIMPLER.match(video.stem)
        assert match is not None
        parts = video.resolve().parent.parts[-4:]
        if len(parts) < 4:
            raise IngestError(f"{video}: not in the folders that SimplerEnv makes (CHECKPOINT/SCENE/CONTROL/ENV/rob_…)")
        scene, _, env, pose = parts
        won = outcome_at(f"{video}: its name", match["won"])
        episodes.append(Episode(f"{scene}/{env}", f"{pose}/{match['start']}", won, env="SimplerEnv"))
    _one_run(checkpoint, episodes)
    return _named(checkpoint, "SimplerEnv results", episodes, checkpoint.name)


def _maniskill3(folder: Path, videos: Sequence[Path]) -> Recording:
    named = _MODEL_ENV.match(folder.name)
    env = named["env"] if named else folder.name
    episodes = []
    for video in videos:
        match = _MANISKILL3.match(video.stem)
        assert match is not None
        episodes.append(Episode(env, match["start"], outcome_at(f"{video}: its name", match["won"]), env="SimplerEnv"))
    _one_run(folder, episodes)
    return _named(folder, "SimplerEnv videos", episodes, named["model"] if named else "")


def _named(folder: Path, kind: str, episodes: list[Episode], model: str) -> Recording:
    ordered = tuple(sorted(episodes, key=lambda e: (e.task, e.start)))
    words = "/".join(folder.parent.parts)
    return Recording(str(folder), kind, ordered, server=model, origin=str(folder), words=words)


def _one_run(folder: Path, episodes: Sequence[Episode]) -> None:
    """Check for two outcomes of one episode: a second run keeps the first one's videos where outcomes changed."""
    counts = Counter((episode.task, episode.start) for episode in episodes)
    again = [start for start, number in counts.items() if number > 1]
    if again:
        raise IngestError(
            f"{folder}: {len(again)} starts have several videos (such as {again[0][1]} of {again[0][0]}): the results "
            "of several runs lie in one folder, and which outcomes are of which is not known; keep each run apart"
        )
