"""Combine recordings: name the policy of each, and count every episode once.

A policy is named by its file, by the user, or else by its folder. Few harnesses record which checkpoint they ran.
Recordings without one are never combined by guessing: folders with distinct names (`pi0-libero`, `xvla-libero`) are
taken for policies of those names; recordings of one folder that differ in tasks, starts or seeds alone are of one
policy; otherwise the user must say.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from besttake.errors import listed
from besttake.recordings import tabular
from besttake.recordings.episodes import (
    NUMBERED,
    Episode,
    IngestError,
    Recording,
    is_copy,
    seed_in,
    starts_in,
    suite_in,
)

_PART = re.compile(r"(?:rank|worker|slot|gpu|port|shard|part|results?|logs?|eval|seed|\d*seeds)\d*")
"""Folders of these names hold parts of one evaluation."""
# Words that number a repetition or name a kind of file do not name a policy.
_COMMON = re.compile(
    rf"{_PART.pattern}|\d+|(?:run|rep|repeat|trial|take|evaluation|outputs?|records?|recordings?|outcomes?|rollouts?|"
    r"episodes?|trajectory|trajectories|data|slurm|nohup|stdout|stderr|out|err|copy|backup|v|merged|summary)\d*|"
    r"(?=.*\d)[0-9a-f]{7,}|\d{4}-\d\d-\d\d.*"
)
_MOST_NAMED = 4
_MOST_NOTES = 3
"""How many notes of one kind are shown; the rest are only counted."""


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
    named = [
        _with_policy(recording, name) if name else recording for recording, name in zip(recordings, names, strict=True)
    ]
    unnamed = [i for i, recording in enumerate(named) if any(not episode.policy for episode in recording.episodes)]
    taken = {episode.policy for recording in named for episode in recording.episodes if episode.policy}
    labels, notes = _labels([named[i] for i in unnamed], taken)
    for i, label in zip(unnamed, labels, strict=True):
        named[i] = _with_policy(named[i], label, keep=True)
    return named, notes


def _with_policy(recording: Recording, name: str, keep: bool = False) -> Recording:
    """Give all episodes the policy ``name``; with ``keep``, only those that have none."""
    episodes = (e if keep and e.policy else replace(e, policy=name) for e in recording.episodes)
    return replace(recording, episodes=tuple(episodes))


def given_name(path: str, given: Mapping[str, str]) -> str:
    """Return the name that the user gave to ``path`` or to the innermost folder around it; "" if there is none."""
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
    about = {text for one in first.values() for e in one.episodes for text in (e.env, e.task)}
    suites = {word for text in about for word in _words(text) if not word.isdigit()} | {"libero", "plus"}
    homes = {origin: (*_home(one, suites), one.server) for origin, one in first.items()}
    several = list(dict.fromkeys(homes.values()))
    shared = next((n for n, parts in enumerate(zip(*several, strict=False)) if len(set(parts)) > 1), 0)
    servers = Counter(home[-1] for home in several)
    names = {home: home[-1] if servers[home[-1]] == 1 and home[-1] else _name(home[shared:-1]) for home in several}
    if len(several) == 1:
        own = _name(several[0][:-1]).rpartition("/")[2] if _are_one_policy(list(first.values())) else ""
        names = {several[0]: (several[0][-1] or own) if own else ""}
    counts = Counter(names.values())
    labels = {origin: names[home] for origin, home in homes.items()}
    unclear = [first[o].path for o, label in labels.items() if not label or counts[label] > 1 or label in taken]
    if unclear:
        raise _unnamed(unclear)
    guessed = sorted({label for origin, label in labels.items() if label != first[origin].server})
    note = f"policies are named by their folders or files ({listed(guessed, _MOST_NAMED)}); `--policy-name` names them \
otherwise"
    return [labels[recording.origin] for recording in recordings], [note] if guessed else []


def _home(recording: Recording, suites: Collection[str]) -> list[str]:
    """Return the parts of a path that may name its policy: no seed, task, start, suite or part of an evaluation.

    A number in a folder's name may be that of a checkpoint; in a file's name it is not.
    """
    *folders, stem = recording.words.split("/")
    kept = [
        part for part in (NUMBERED.sub("", part.replace(suite_in(part), "")) for part in folders)
        if not all(word in suites or _PART.fullmatch(word) for word in _words(part))
    ]  # fmt: skip
    stem = NUMBERED.sub("", stem)
    return [*kept, stem] if not all(word in suites or _COMMON.fullmatch(word) for word in _words(stem)) else kept


def _name(parts: Sequence[str]) -> str:
    """Return the words of a path without numbers and names of repetitions."""
    kept = ["".join(w for w in re.split(r"([-_. ]+)", part) if not _COMMON.fullmatch(w.lower())) for part in parts]
    return "/".join(filter(None, (re.sub(r"([-_. ])[-_. ]+", r"\1", part).strip("-_. ") for part in kept)))


def _are_one_policy(recordings: Sequence[Recording]) -> bool:
    """Whether recordings of one folder differ in suites, tasks, starts or seeds alone, and come from one harness."""
    kinds = {"table" if f".{one.format}" in tabular.SUFFIXES else one.format.split()[0] for one in recordings}
    seeds: dict[tuple[str, ...], list[object]] = defaultdict(list)
    for one in recordings:
        seed = seed_in(one.path) or frozenset(episode.seed for episode in one.episodes)
        starts = starts_in(one.path)
        if any(episode.seed for episode in one.episodes) and len({episode.start for episode in one.episodes}) > 1:
            starts.pop("episode/", None)  # the table says its own starts and seeds: this may number a checkpoint
        for task in {(episode.env, episode.task, *starts.values()) for episode in one.episodes}:
            seeds[task].append(seed)
    several_suites = len({env for env, *_ in seeds}) > 1
    return len(kinds) == 1 and (several_suites or all(len(set(own)) == len(own) for own in seeds.values()))


def check_numbered(
    recordings: Sequence[Recording], unnamed: Collection[tuple[str, str]], given: Collection[str]
) -> None:
    """Raise IngestError if numbers in paths that count no starts or seeds may be those of checkpoints.

    They may be if recordings of a policy differ in them and hold takes of the same start and seed, and the name of the
    policy is a guess: recordings with this (path, origin) were ``unnamed``, and the user has ``given`` other names.
    """
    guessed = {e.policy for one in recordings if (one.path, one.origin) in unnamed for e in one.episodes} - {*given}
    seen: dict[tuple[object, ...], tuple[str, list[tuple[str, str]]]] = {}
    for one in recordings:
        if len({(episode.env, episode.task, episode.start) for episode in one.episodes}) < 2:
            continue  # in a file of one start, other numbers count its takes
        numbers = [(name, n) for name, n in NUMBERED.findall(one.words) if name.lower() not in ("seed", "start")]
        seed = seed_in(one.path) or frozenset(episode.seed for episode in one.episodes)
        for key in {(e.policy, e.env, e.task, e.start, seed) for e in one.episodes if e.policy in guessed}:
            path, others = seen.setdefault(key, (one.path, numbers))
            if others != numbers:
                raise _unnamed((path, one.path))


def _unnamed(paths: Collection[str]) -> IngestError:
    return IngestError(
        f"{len(paths)} recordings do not say of which policy ({listed(sorted(paths), _MOST_NAMED)}): name it "
        "with `policy_name`, NAME if all are of one policy, or PATH=NAME for each file or folder"
    )


def _words(part: str) -> list[str]:
    return [word for word in re.split(r"[-_. /=,]+", part.lower()) if word]


def seeded(recordings: Sequence[Recording]) -> list[Recording]:
    """Give episodes without a seed the one in their path, if paths differ in it."""
    if len({seed_in(recording.path) for recording in recordings}) < 2:
        return list(recordings)
    return [
        replace(one, episodes=tuple(e if e.seed else replace(e, seed=seed_in(one.path)) for e in one.episodes))
        for one in recordings
    ]


def once(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Keep an episode that several recordings hold in the largest of them alone, and return notes on the others."""
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


FOLDER = "folder/"
"""What the user gives for a task or seed that the folders of tables name in words (``open_the_drawer/``)."""


def tasks_by_folder(recordings: Sequence[Recording]) -> list[Recording]:
    """Name the task of each episode by the folders that tell its recording from others."""
    named = zip(recordings, _folders(recordings), strict=True)
    return [
        replace(one, episodes=tuple(replace(e, task=f"{at}/{e.task}".removesuffix("/task")) for e in one.episodes))
        if at else one for one, at in named
    ]  # fmt: skip


def _folders(recordings: Sequence[Recording]) -> list[str]:
    """Return the folders of each recording that not all of its policy are in, without seeds, starts, runs and dates."""
    parts = [[part for part in one.words.split("/")[:-1]
              if not all(_COMMON.fullmatch(word) for word in _words(NUMBERED.sub("", part)))]
             for one in recordings]  # fmt: skip
    policies = [one.episodes[0].policy if one.episodes else "" for one in recordings]
    shared = {name: set.intersection(*(set(own) for own, other in zip(parts, policies, strict=True) if other == name))
              for name in set(policies)}  # fmt: skip
    return ["/".join(part for part in own if part not in shared[name])
            for own, name in zip(parts, policies, strict=True)]  # fmt: skip


def once_by_seed(recordings: Sequence[Recording], repeats: bool = False) -> tuple[list[Recording], list[str]]:
    """Count a take once if two recordings hold it: the same policy, start, seed and outcome.

    If any outcome of a policy differs, its starts and seeds do not identify takes, and all of them count: leaving out
    only those that agree would make its takes disagree more than they do. A table that was saved in two formats counts
    once. IngestError asks what folders are that differ in such outcomes, unless the user said they are ``repeats``.
    """
    kept, notes = [], []
    again: dict[str, list[int]] = {}
    tables: dict[tuple[str, ...], str] = {}
    for recording in recordings:
        rows, name = tuple(sorted(map(repr, recording.episodes))), Path(recording.path).name
        is_table = f".{recording.format}" in tabular.SUFFIXES
        first = tables.setdefault(rows, recording.path) if is_table else recording.path
        if first != recording.path and is_copy(recording.path, first, [recording]):
            notes.append(f"{name} has the same rows as {Path(tables[rows]).name} and was counted once")
        else:
            kept.append(recording)
    takes = [{_take(episode): episode for episode in one.episodes if episode.seed} for one in kept]
    whole = [len(own) == sum(bool(e.seed) for e in one.episodes) for own, one in zip(takes, kept, strict=True)]
    folders = _folders(kept)
    seen: dict[tuple[str, ...], tuple[int, bool | None]] = {}
    order = sorted(range(len(kept)), key=lambda i: (-len(kept[i].episodes), kept[i].path))
    for i in order:
        for key, episode in takes[i].items():
            earlier, success = seen.setdefault(key, (i, episode.success))
            if success != episode.success and whole[i]:
                if folders[earlier] != folders[i] and not repeats:
                    one, other = (folders[j] or kept[j].path for j in (earlier, i))
                    raise IngestError(
                        f"{one} and {other} have other outcomes of the same starts and seeds: name "
                        f"what they are with `columns`, task={FOLDER}, or seed={FOLDER} if they are repeats"
                    )
                again.setdefault(episode.policy, []).append(i)
    for i in order:
        shared = {key for key in takes[i] if seen[key][0] != i and key[0] not in again}
        if shared and whole[i]:
            other = min(Path(kept[seen[key][0]].path).name for key in shared)
            notes.append(f"{Path(kept[i].path).name} has {len(shared)} takes of {other} (same start, seed and outcome),"
                         " which count once")  # fmt: skip
            kept[i] = replace(kept[i], episodes=tuple(e for e in kept[i].episodes if _take(e) not in shared))
    notes = few(notes, "more repeats were counted once")
    if again:
        files = sorted({kept[i].path for own in again.values() for i in own})
        notes.append(f"{len(files)} files ({listed(files, 1)}) repeat starts and seeds of others with other "
                     "outcomes, and all count; if their policies or envs differ, read them apart")  # fmt: skip
    return [recording for recording in kept if recording.episodes], notes


def _take(episode: Episode) -> tuple[str, ...]:
    return episode.policy, episode.env, episode.task, episode.start, episode.seed


def _surely(episode: Episode) -> bool:
    return bool(episode.uid) and not episode.uid.startswith("~")


def few(lines: Iterable[str], more: str) -> list[str]:
    """The first different ``lines``, and how many ``more`` there are."""
    notes = list(dict.fromkeys(lines))
    rest = len(notes) - _MOST_NOTES
    return notes[:_MOST_NOTES] + ([f"{rest} {more}"] if rest > 0 else [])
