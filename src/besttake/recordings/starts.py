"""Choose what names the start where several columns or folders may: that by which takes of one start agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np

from besttake.core.agreement import Sources, sources
from besttake.recordings.episodes import Episode, IngestError, Recording, start_in
from besttake.types import F64

FOLDER = "folder"
"""The candidate that stands for a number in the path of a recording: ``start_3/``, ``episode_3.json``."""


def choose_starts(recordings: Sequence[Recording], given: str = "") -> tuple[list[Recording], list[str]]:
    """Return the recordings with the start of each episode, and notes on how it was found.

    Candidates are the columns that count episodes and, where paths differ in it, the start that a path names; they are
    compared over all recordings together. One is chosen if it alone lets takes repeat a start and agree there beyond
    chance; IngestError, with the flag to give, if that is not clear. ``given`` is the candidate that the user named.
    """
    if given not in ("", FOLDER):
        return list(recordings), []
    if len({start_in(one.path) for one in recordings}) > 1:
        recordings = [_with_folder(one) for one in recordings]
    if given:
        return [_started_by(FOLDER, one) for one in recordings], []
    asked = [episode for recording in recordings for episode in recording.episodes if episode.others]
    names = list(dict.fromkeys(name for episode in asked for name in episode.others))
    implied = {name: _implied(asked, name) for name in names}
    # Columns that divide the episodes alike are one; where no take repeats a start there is nothing to choose.
    parts = {by: name for name, (by, found) in reversed(implied.items()) if found is not None}
    known = {name: found for name in parts.values() if (found := implied[name][1]) is not None}
    if not known:
        return list(recordings), []
    said = ", ".join(f"by {name!r} {_said(found)}" for name, found in known.items())
    fits = [name for name, found in known.items() if (found.start.low or 0.0) > 0] if len(known) > 1 else list(known)
    if len(fits) != 1:
        raise IngestError(
            f"which column names the start? Agreement of takes beyond chance: {said}. Name it with `columns`, "
            f"start={max(known, key=lambda name: known[name].start.value or 0.0)}"
        )
    chosen = fits[0]
    kept = [_started_by(chosen, one) for one in recordings]
    return kept, [f"the start is {chosen!r}; agreement of takes beyond chance: {said}"] if len(known) > 1 else []


def _with_folder(recording: Recording) -> Recording:
    """Add the start in the path of a recording to what may name the start of its episodes."""
    number = start_in(recording.path)
    episodes = (replace(e, others={**(e.others or {"start": e.start}), FOLDER: number}) for e in recording.episodes)
    return replace(recording, episodes=tuple(episodes)) if number else recording


def _started_by(name: str, recording: Recording) -> Recording:
    episodes = (replace(e, start=e.others.get(name, e.start)) for e in recording.episodes)
    return replace(recording, episodes=tuple(episodes))


def _implied(episodes: Sequence[Episode], name: str) -> tuple[tuple[int, ...], Sources | None]:
    """How a column divides the episodes, and the agreement that this implies; None where no start is repeated."""
    starts: dict[tuple[str, ...], list[Episode]] = defaultdict(list)
    first: dict[tuple[str, ...], int] = {}
    divided = []
    for i, one in enumerate(episodes):
        key = one.policy, one.env, one.task, one.others.get(name, one.start)
        starts[key].append(one)
        divided.append(first.setdefault(key, i))
    outcomes = column(starts.values(), won)
    repeated = bool((np.isfinite(outcomes).sum(axis=1) > 1).any())
    return tuple(divided), sources(outcomes, [key[:3] for key in starts]) if repeated else None


def column(starts: Collection[Sequence[Episode]], value: Callable[[Episode], float | None]) -> F64:
    """A number of each take (S, N), NaN where there is none; the k-th episode of a start is its k-th take."""
    table = np.full((len(starts), max(map(len, starts))), np.nan)
    for row, episodes in zip(table, starts, strict=True):
        row[: len(episodes)] = [np.nan if (number := value(episode)) is None else number for episode in episodes]
    return table


def won(one: Episode) -> float | None:
    """Its outcome as a number."""
    return None if one.success is None else float(one.success)


def _said(found: Sources) -> str:
    one = found.start
    if one.value is None or one.low is None or one.high is None:
        return f"unknown ({one.reason})"
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"
