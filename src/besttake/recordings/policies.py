"""Find the policy of each recording: named by its file, by the user, or else by its folder.

Few harnesses record which checkpoint they ran. Recordings without one are never combined by guessing: folders with
distinct names (`pi0_libero`, `smolvla_libero`) are taken for policies of those names; otherwise the user must say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from besttake.recordings.episodes import IngestError, Recording

# Words that number a repetition or name a kind of file say nothing about the policy.
_COMMON = re.compile(
    r"\d+|(?:seed|run|rep|repeat|trial|take|shard|part|eval|evaluation|result|results|output|outputs|log|logs|record|"
    r"recording|recordings|outcome|outcomes|rollout|rollouts|episode|episodes|trajectory|trajectories|data|slurm|nohup|"
    r"stdout|stderr|out|err|copy|backup|v)\d*|[0-9a-f]{8,}|\d{4}-\d\d-\d\d.*"
)
_MOST_NAMED = 4


def name_policies(
    recordings: Sequence[Recording], given: str | Mapping[str, str] = ""
) -> tuple[list[Recording], list[str]]:
    """Return the recordings with a policy in every episode, and notes on how it was found.

    ``given`` is one name for all recordings, or a name for each file or folder.
    """
    named = [_given(recording, given) for recording in recordings]
    if not isinstance(given, str):
        _check_used(recordings, given)
    else:
        _check_one(recordings, given)
    open_ = [i for i, recording in enumerate(named) if any(not episode.policy for episode in recording.episodes)]
    taken = {episode.policy for recording in named for episode in recording.episodes if episode.policy}
    labels, notes = _labels([named[i] for i in open_], taken)
    for i, label in zip(open_, labels, strict=True):
        named[i] = _filled(named[i], label)
    return named, notes


def _given(recording: Recording, given: str | Mapping[str, str]) -> Recording:
    name = given if isinstance(given, str) else given_name(recording.path, given)
    if not name:
        return recording
    own = sorted({episode.policy for episode in recording.episodes if episode.policy})
    if len(own) > 1:
        raise IngestError(
            f"{recording.path} names the policies {_listed(own)}: `policy_name` {name} would make one of them"
        )
    return replace(recording, episodes=tuple(replace(episode, policy=name) for episode in recording.episodes))


def _filled(recording: Recording, name: str) -> Recording:
    episodes = tuple(replace(episode, policy=episode.policy or name) for episode in recording.episodes)
    return replace(recording, episodes=episodes)


def given_name(path: str, given: Mapping[str, str]) -> str:
    """The name that the user gave to the innermost file or folder containing ``path``."""
    place, parts = Path(path).resolve(), Path(path).resolve().parts
    fits = [key for key in given if place.is_relative_to(Path(key).resolve()) or key.strip("/") in parts]
    return given[max(fits, key=len)] if fits else ""


def _check_used(recordings: Sequence[Recording], given: Mapping[str, str]) -> None:
    for key, name in given.items():
        if not any(given_name(recording.path, {key: name}) for recording in recordings):
            raise IngestError(f"`policy_name` {key}={name}: no recording is called {key} or lies in it")


def _check_one(recordings: Sequence[Recording], given: str) -> None:
    own = sorted({episode.policy for recording in recordings for episode in recording.episodes if episode.policy})
    if given and len(own) > 1:
        raise IngestError(f"the files name the policies {_listed(own)}: `policy_name` {given} would make one of them")


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
            f"{_count(len(unclear))} not say of which policy ({_listed(sorted(unclear))}): name it with "
            "`policy_name`, NAME if all are of one policy, or PATH=NAME for each file or folder"
        )
    own = sorted({label for origin, label in labels.items() if label != first[origin].server})
    note = f"policies are named by their folders or files ({_listed(own)}); `--policy-name` names them otherwise"
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


def _count(number: int) -> str:
    return f"{number} recordings do" if number > 1 else "one recording does"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown
