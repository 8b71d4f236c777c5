"""Choose what names the start, where several columns or folders may: that by which takes of a start agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations

import numpy as np

from besttake.core.agreement import Sources, sources
from besttake.recordings.episodes import Episode, IngestError, Recording, starts_in
from besttake.types import F64


def choose_starts(recordings: Sequence[Recording], given: str = "") -> tuple[list[Recording], list[str]]:
    """Return the recordings with the start of each episode, and notes on how it was chosen.

    The candidates are the columns that count episodes and, where paths differ in them, the folders and files that
    number starts (``start/`` for ``start_3/``), alone and together (``start/episode``: the column within the folder).
    One is chosen if takes agree beyond chance by it, and are shown to agree less by every other, over all recordings
    together. If that is not clear, IngestError names the flag to give. ``given`` is the candidate that the user named.
    """
    if given and "/" not in given:
        return list(recordings), []
    if given:
        folders, _, column = given.rpartition("/")
        paths = [starts_in(recording.path, folders) for recording in recordings]
        if not all(paths):
            lacks = next(recording.path for recording, path in zip(recordings, paths, strict=True) if not path)
            raise IngestError(f"`columns` start={given}: {lacks} has no number of that name in its path")
        return [_within(one, path, bool(column)) for one, path in zip(recordings, paths, strict=True)], []
    paths = [starts_in(recording.path) for recording in recordings]
    levels = [name for name in dict.fromkeys(chain(*paths)) if len({path.get(name) for path in paths}) > 1]
    recordings = [_with_folders(recording, levels) for recording in recordings]
    episodes = [episode for recording in recordings for episode in recording.episodes if episode.others]
    names = list(dict.fromkeys(name for episode in episodes for name in episode.others))
    agreement: dict[str, Sources] = {}
    partitions = set()
    for name in names:
        partition, agrees = _partition(episodes, name)
        # Columns that divide the episodes alike are one candidate; so is none by which no take repeats a start.
        if agrees is not None and partition not in partitions:
            partitions.add(partition)
            agreement[name] = agrees
    if not agreement:
        return list(recordings), []
    listed = ", ".join(f"by {name!r} {_text(agrees)}" for name, agrees in agreement.items())
    shown = [name for name in agreement if _is_clear(name, agreement)]
    if not shown:
        raise IngestError(
            f"which column names the start? Agreement of takes beyond chance: {listed}. Name it with `columns`, "
            f"start={max(agreement, key=lambda name: agreement[name].start.value or 0.0)}"
        )
    notes = [f"the start is {shown[0]!r}; agreement of takes beyond chance: {listed}"] if len(agreement) > 1 else []
    return [_with_start(recording, shown[0]) for recording in recordings], notes


def _is_clear(name: str, agreement: Mapping[str, Sources]) -> bool:
    """Whether takes agree beyond chance by this candidate, and are shown to agree less by every other.

    Of two candidates of which one is a part of the other (``start/`` and ``start/episode``), the intervals must not
    overlap: both are right where the part alone names the start.
    """
    low, value = agreement[name].start.low or 0.0, agreement[name].start.value or 0.0
    parts = set(filter(None, name.split("/")))
    highest = {other: agrees.start.high for other, agrees in agreement.items() if other != name}
    least = {other: low if parts <= {*other.split("/")} or parts >= {*other.split("/")} - {""} else value
             for other in highest}  # fmt: skip
    return not highest or (low > 0 and all(high is not None and high < least[o] for o, high in highest.items()))


def _with_folders(recording: Recording, levels: Sequence[str]) -> Recording:
    """Make the numbers in a recording's path candidates for the start of its episodes, alone and with its columns."""
    numbers = {name: number for name, number in starts_in(recording.path).items() if name in levels}
    if not numbers:
        return recording
    sets = [kept for n in range(1, len(numbers) + 1) for kept in combinations(numbers, n)]
    found = {"".join(kept): "/".join(numbers[name] for name in kept) for kept in sets}

    def candidates(one: Episode) -> dict[str, str]:
        columns = one.others or {"start": one.start}
        within = {f"{name}{column}": f"{number}/{value}" for name, number in found.items()
                  for column, value in columns.items()}  # fmt: skip
        return {**found, **columns, **within}

    return replace(recording, episodes=tuple(replace(e, others=candidates(e)) for e in recording.episodes))


def _within(recording: Recording, path: Mapping[str, str], keep: bool) -> Recording:
    """Name the start of each episode by the numbers in the path; with ``keep``, by its own start within them."""
    number = "/".join(path.values())
    episodes = (replace(e, start=f"{number}/{e.start}" if keep else number) for e in recording.episodes)
    return replace(recording, episodes=tuple(episodes))


def _with_start(recording: Recording, candidate: str) -> Recording:
    episodes = (replace(e, start=e.others.get(candidate, e.start)) for e in recording.episodes)
    return replace(recording, episodes=tuple(episodes))


def _partition(episodes: Sequence[Episode], candidate: str) -> tuple[tuple[int, ...], Sources | None]:
    """For each episode, the first one of its start, and how much takes agree; None where no start is repeated."""
    starts: dict[tuple[str, ...], list[Episode]] = defaultdict(list)
    first: dict[tuple[str, ...], int] = {}
    partition = []
    for i, episode in enumerate(episodes):
        key = episode.policy, episode.env, episode.task, episode.others.get(candidate, episode.start)
        starts[key].append(episode)
        partition.append(first.setdefault(key, i))
    outcomes = values_by_take(starts.values(), success_value)
    repeated = bool((np.isfinite(outcomes).sum(axis=1) > 1).any())
    return tuple(partition), sources(outcomes, [key[:3] for key in starts]) if repeated else None


def values_by_take(starts: Collection[Sequence[Episode]], value: Callable[[Episode], float | None]) -> F64:
    """Return one value per take (S, N), NaN where there is none; the k-th episode of a start is its k-th take."""
    table = np.full((len(starts), max(map(len, starts))), np.nan)
    for row, episodes in zip(table, starts, strict=True):
        row[: len(episodes)] = [np.nan if (number := value(episode)) is None else number for episode in episodes]
    return table


def success_value(episode: Episode) -> float | None:
    """Return 1 for a success, 0 for a failure, and None where the outcome is missing."""
    return None if episode.success is None else float(episode.success)


def _text(agrees: Sources) -> str:
    kappa = agrees.start
    if kappa.value is None or kappa.low is None or kappa.high is None:
        return f"unknown ({kappa.reason})"
    return f"{kappa.value:.2f} [{kappa.low:.2f}, {kappa.high:.2f}]"
