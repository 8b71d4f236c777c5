"""Put recordings together: count every episode once, and find the policy of each recording.

A policy is named by its file, by the user, or else by its folder. Few harnesses record which checkpoint they ran.
Recordings without one are never combined by guessing: folders with distinct names (`pi0_libero`, `smolvla_libero`) are
taken for policies of those names; otherwise the user must say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from besttake.recordings import tabular
from besttake.recordings.episodes import Episode, IngestError, Recording, listed

# Words that number a repetition or name a kind of file say nothing about the policy.
_COMMON = re.compile(
    r"\d+|(?:seed|run|rep|repeat|trial|take|shard|part|eval|evaluation|result|results|output|outputs|log|logs|record|"
    r"recording|recordings|outcome|outcomes|rollout|rollouts|episode|episodes|trajectory|trajectories|data|slurm|nohup|"
    r"stdout|stderr|out|err|copy|backup|v)\d*|[0-9a-f]{8,}|\d{4}-\d\d-\d\d.*"
)
_MOST_NAMED = 4
_MOST_NOTES = 3
"""Notes of one kind that are shown; the rest are counted."""


def name_policies(
    recordings: Sequence[Recording], given: str | Mapping[str, str] = ""
) -> tuple[list[Recording], list[str]]:
    """Return the recordings with a policy in every episode, and notes on how it was found.

    ``given`` is one name for all recordings, or a name for each file or folder.
    """
    names = [given if isinstance(given, str) else given_name(recording.path, given) for recording in recordings]
    for name in filter(None, dict.fromkeys(names)):
        group = [recording for recording, own in zip(recordings, names, strict=True) if own == name]
        policies = sorted({episode.policy for recording in group for episode in recording.episodes if episode.policy})
        if len(policies) > 1:
            raise IngestError(
                f"the files name the policies {listed(policies, _MOST_NAMED)}: `policy_name` {name} would make one of"
                " them"
            )
    for key, name in {} if isinstance(given, str) else given.items():
        if not any(given_name(recording.path, {key: name}) for recording in recordings):
            raise IngestError(f"`policy_name` {key}={name}: no recording is called {key} or lies in it")
    named = [_filled(recording, name, over=True) for recording, name in zip(recordings, names, strict=True)]
    open_ = [i for i, recording in enumerate(named) if any(not episode.policy for episode in recording.episodes)]
    taken = {episode.policy for recording in named for episode in recording.episodes if episode.policy}
    labels, notes = _labels([named[i] for i in open_], taken)
    for i, label in zip(open_, labels, strict=True):
        named[i] = _filled(named[i], label)
    return named, notes


def _filled(recording: Recording, name: str, over: bool = False) -> Recording:
    """The recording with the policy ``name`` in episodes without one, or ``over`` that of all its episodes."""
    names = (name or episode.policy if over else episode.policy or name for episode in recording.episodes)
    episodes = tuple(replace(one, policy=policy) for one, policy in zip(recording.episodes, names, strict=True))
    return replace(recording, episodes=episodes)


def given_name(path: str, given: Mapping[str, str]) -> str:
    """The name that the user gave to the innermost file or folder containing ``path``."""
    place, parts = Path(path).resolve(), Path(path).resolve().parts
    fits = [key for key in given if place.is_relative_to(Path(key).resolve()) or key.strip("/") in parts]
    return given[max(fits, key=len)] if fits else ""


def _labels(recordings: Sequence[Recording], taken: Collection[str]) -> tuple[list[str], list[str]]:
    """Choose a policy name for each recording without one; IngestError if it is unclear which belong together.

    ``taken`` are the policy names of the other recordings.
    """
    first = {recording.origin: recording for recording in reversed(recordings)}
    if len(first) < 2 and not (first and taken):
        return [recording.server or "policy" for recording in recordings], []
    servers = Counter(recording.server for recording in first.values())
    stems = _stems(list(first.values()))
    labels = {
        origin: recording.server if recording.server and servers[recording.server] == 1 else stem
        for (origin, recording), stem in zip(first.items(), stems, strict=True)
    }
    counts = Counter(labels.values())
    unclear = [
        first[origin].path for origin, label in labels.items() if not label or counts[label] > 1 or label in taken
    ]
    if unclear:
        raise IngestError(
            f"{len(unclear)} recordings do not say of which policy ({listed(sorted(unclear), _MOST_NAMED)}): name it "
            "with `policy_name`, NAME if all are of one policy, or PATH=NAME for each file or folder"
        )
    own = sorted({label for origin, label in labels.items() if label != first[origin].server})
    names = listed(own, _MOST_NAMED)
    note = f"policies are named by their folders or files ({names}); `--policy-name` names them otherwise"
    return [labels[recording.origin] for recording in recordings], [note] if own else []


def _stems(recordings: Sequence[Recording]) -> list[str]:
    """The distinctive words of each recording: without shared parts, numbers and names of repetitions."""
    split = [recording.words.split("/") for recording in recordings]
    shared = next((n for n, parts in enumerate(zip(*split, strict=False)) if len(set(parts)) > 1), min(map(len, split)))
    stems = []
    for parts in split:
        words = [[w for w in re.split(r"[-_. ]+", part) if w and not _COMMON.fullmatch(w.lower())]
                 for part in parts[shared:]]  # fmt: skip
        stems.append("/".join("_".join(part) for part in words if part))
    return stems


def once(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Drop episodes that another recording also holds, and return notes on them.

    The larger recording keeps them. ``eval_info.json`` replaces the recordings beside it, which lack some episodes.
    """
    notes = []
    infos = {recording.origin for recording in recordings if recording.format == "lerobot-eval"}
    order = sorted(range(len(recordings)), key=lambda i: (-len(recordings[i].episodes), recordings[i].path))
    seen: dict[str, str] = {}
    wholes: list[tuple[str, Counter[str]]] = []
    kept: dict[int, Recording] = {}
    for i in order:
        recording, name = recordings[i], Path(recordings[i].path).name
        if recording.format == "LeRobot data set" and recording.origin in infos:
            evaluation = Path(recording.origin).parent.name
            notes.append(f"{evaluation}/recordings: eval_info.json beside it has the same episodes, which count once")
            continue
        almost = Counter(episode.uid for episode in recording.episodes if episode.uid.startswith("~"))
        if almost and almost.total() == len(recording.episodes):
            whole = next((other for other, held in wholes if almost <= held), None)
            if whole is not None:
                notes.append(f"{name} repeats {whole} and was counted once")
                continue
            wholes.append((name, almost))
        fresh = tuple(episode for episode in recording.episodes if not _surely(episode) or episode.uid not in seen)
        if len(fresh) < len(recording.episodes):
            other = next(seen[episode.uid] for episode in recording.episodes if episode.uid in seen)
            part = f"has {len(recording.episodes) - len(fresh)} episodes of {other}, which count once"
            notes.append(f"{name} {part if fresh else f'repeats {other} and was counted once'}")
        seen.update((episode.uid, name) for episode in fresh if _surely(episode))
        if fresh or not recording.episodes:
            kept[i] = replace(recording, episodes=fresh)
    return [kept[i] for i in sorted(kept, key=lambda i: (kept[i].path, i))], few(
        notes, "more repeats were counted once"
    )


def once_by_seed(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Count a take once if two recordings hold it (same policy, start and seed) with the same outcome.

    If two recordings differ in any such take, policy, start and seed do not identify takes, and all of them count.
    Of tables with equal rows, such as a table saved in two formats, one counts.
    """
    kept, notes = [], []
    tables: dict[tuple[str, ...], str] = {}
    for recording in recordings:
        rows, name = tuple(sorted(map(repr, recording.episodes))), Path(recording.path).name
        if f".{recording.format}" in tabular.SUFFIXES and tables.setdefault(rows, recording.path) != recording.path:
            notes.append(f"{name} has the same rows as {Path(tables[rows]).name} and was counted once")
        else:
            kept.append(recording)
    seen: dict[tuple[str, ...], tuple[str, bool | None]] = {}
    for i in sorted(range(len(kept)), key=lambda i: (-len(kept[i].episodes), kept[i].path)):
        name = Path(kept[i].path).name
        takes = {_take(episode): episode for episode in kept[i].episodes if episode.seed}
        shared = {key for key in takes if key in seen}
        distinct = len(takes) == sum(bool(episode.seed) for episode in kept[i].episodes)
        if shared and distinct and all(seen[key][1] == takes[key].success for key in shared):
            other = min(seen[key][0] for key in shared)
            notes.append(f"{name} has {len(shared)} takes of {other} (same start, seed and outcome), which count once")
            kept[i] = replace(kept[i], episodes=tuple(e for e in kept[i].episodes if _take(e) not in shared))
        for key, episode in takes.items():
            seen.setdefault(key, (name, episode.success))
    return [recording for recording in kept if recording.episodes], few(notes, "more repeats were counted once")


def _take(episode: Episode) -> tuple[str, ...]:
    return episode.policy, episode.env, episode.task, episode.start, episode.seed


def _surely(episode: Episode) -> bool:
    return bool(episode.uid) and not episode.uid.startswith("~")


def few(lines: Iterable[str], more: str) -> list[str]:
    """The first different ``lines``, and how many ``more`` there are."""
    notes = list(dict.fromkeys(lines))
    rest = len(notes) - _MOST_NOTES
    return notes[:_MOST_NOTES] + ([f"{rest} {more}"] if rest > 0 else [])
