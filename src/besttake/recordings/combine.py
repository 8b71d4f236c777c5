"""Put recordings together: count every episode once, and find the policy of each recording.

A policy is named by its file, by the user, or else by its folder. Few harnesses record which checkpoint they ran.
Recordings without one are never combined by guessing: folders with distinct names (`pi0-libero`, `xvla-libero`) are
taken for policies of those names; what lies in one folder and differs in tasks or seeds alone is one policy; otherwise
the user must say.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from besttake.recordings import tabular
from besttake.recordings.episodes import Episode, IngestError, Recording, listed

# Words that number a repetition or name a kind of file say nothing about the policy.
_COMMON = re.compile(
    r"\d+|(?:seed|run|rep|repeat|trial|take|shard|part|eval|evaluation|result|results|output|outputs|log|logs|record|"
    r"recording|recordings|outcome|outcomes|rollout|rollouts|episode|episodes|trajectory|trajectories|data|slurm|nohup|"
    r"stdout|stderr|out|err|copy|backup|v|rank|worker|merged|summary|\d*seeds)\d*|(?=.*\d)[0-9a-f]{7,}|\d{4}-\d\d-\d\d.*"
)
_PART = re.compile(r"(?:rank|worker|shard|part|results?|logs?|eval|seed|\d*seeds)\d*")
"""Folders of these names hold parts of one evaluation."""
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
    named = ((one, (name or one.policy) if over else (one.policy or name)) for one in recording.episodes)
    episodes = tuple(one if one.policy == policy else replace(one, policy=policy) for one, policy in named)
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
    sharing: dict[str, list[Recording]] = defaultdict(list)
    for origin, label in labels.items():
        sharing[label].append(first[origin])
    unclear = [
        recording.path for label, own in sharing.items() for recording in own
        if label in taken or not _one_policy(own, named=bool(label and len(sharing) > 1), alone=len(sharing) == 1)
    ]  # fmt: skip
    if unclear:
        raise IngestError(
            f"{len(unclear)} recordings do not say of which policy ({listed(sorted(unclear), _MOST_NAMED)}): name it "
            "with `policy_name`, NAME if all are of one policy, or PATH=NAME for each file or folder"
        )
    if len(sharing) == 1:
        name = next(iter(servers)) or next(iter(labels.values())) or _folder_of(list(first.values())) or "policy"
        why = "they differ in their tasks or seeds alone; `--policy-name` names them otherwise"
        return [name] * len(recordings), [f"{len(first)} recordings are taken for one policy, {name}: {why}"]
    own = sorted({label for origin, label in labels.items() if label != first[origin].server})
    names = listed(own, _MOST_NAMED)
    note = f"policies are named by their folders or files ({names}); `--policy-name` names them otherwise"
    return [labels[recording.origin] for recording in recordings], [note] if own else []


def _one_policy(recordings: Sequence[Recording], *, named: bool, alone: bool) -> bool:
    """Whether recordings of one label belong together: they are alone, or lie in one folder of a name of its own, or
    there differ in their seeds or tasks alone."""
    if len(recordings) == 1:
        return named
    if len({_home(recording) for recording in recordings}) > 1:
        return False
    tasks = [{(e.env, e.task) for e in recording.episodes} for recording in recordings]
    seeds = [seed_in(recording.path) or {e.seed for e in recording.episodes} for recording in recordings]
    envs = {e.env for recording in recordings for e in recording.episodes}
    apart = all(
        tasks[i].isdisjoint(tasks[j]) or (seeds[i] and seeds[j] and seeds[i] != seeds[j])
        for i in range(len(tasks)) for j in range(i)
    )  # fmt: skip
    return named or (alone and (apart or len(envs) > 1))


_SEED = re.compile(r"(?:^|[-_./])seed[-_=]?(\d+)(?=[-_./]|$)", re.IGNORECASE)


def seed_in(path: str) -> str:
    """The seed that a file, or the innermost folder that says so, is of."""
    found = _SEED.findall(path)
    return found[-1] if found else ""


def seeded(recordings: Sequence[Recording]) -> list[Recording]:
    """The recordings with the seed in their paths, if these differ in it and the episodes do not say theirs."""
    seeds = {seed_in(recording.path) for recording in recordings}
    if len(seeds) < 2:
        return list(recordings)
    return [
        replace(one, episodes=tuple(e if e.seed else replace(e, seed=seed_in(one.path)) for e in one.episodes))
        for one in recordings
    ]


def _home(recording: Recording) -> tuple[str, ...]:
    """The folder of a recording without the levels that name a seed, a suite or a part of an evaluation."""
    envs = _words_of_envs([recording])
    return tuple(
        part for part in Path(recording.origin.partition("#")[0]).parent.parts
        if not _SEED.search(part) and any(word not in envs and not _PART.fullmatch(word) for word in _words(part))
    )  # fmt: skip


def _folder_of(recordings: Sequence[Recording]) -> str:
    """The innermost folder above all recordings that has a name of its own."""
    envs, home = _words_of_envs(recordings), Path(os.path.commonpath([r.path for r in recordings])).resolve()
    parts = home.parts[1:] if home.is_dir() else home.parent.parts[1:]
    return next((p for p in reversed(parts) if any(w not in envs and not _COMMON.fullmatch(w) for w in _words(p))), "")


def _words(part: str) -> list[str]:
    return [word for word in re.split(r"[-_. ]+", part.lower()) if word]


def _words_of_envs(recordings: Sequence[Recording]) -> set[str]:
    """The words of the benchmark, which say nothing about the policy."""
    names = {e.env for recording in recordings for e in recording.episodes}
    return {"libero", "plus", *(word for name in names for word in re.split(r"[-_. /]+", name.lower()))}


def _stems(recordings: Sequence[Recording]) -> list[str]:
    """The distinctive parts of each path: without what all share, numbers, suites and names of repetitions."""
    split, envs = [recording.words.split("/") for recording in recordings], _words_of_envs(recordings)
    shared = next((n for n, parts in enumerate(zip(*split, strict=False)) if len(set(parts)) > 1), min(map(len, split)))
    stems = []
    for parts in split:
        kept = []
        for part in parts[shared:]:
            own = [word for word in re.split(r"([-_. ]+)", part) if not _COMMON.fullmatch(word.lower())]
            if any(word.strip("-_. ") and word.lower() not in envs for word in own):
                kept.append(re.sub(r"([-_. ])[-_. ]+", r"\1", "".join(own)).strip("-_. "))
        stems.append("/".join(kept))
    return stems


def once(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Drop episodes that another recording also holds, and return notes on them.

    The larger recording keeps them.
    """
    notes = []
    order = sorted(range(len(recordings)), key=lambda i: (-len(recordings[i].episodes), recordings[i].path))
    seen: dict[str, str] = {}
    wholes: list[tuple[str, Counter[str]]] = []
    kept: dict[int, Recording] = {}
    for i in order:
        recording, name = recordings[i], Path(recordings[i].path).name
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
