"""What a verdict rests on: per-start values, gathered from the takes of each arm over the same starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.headroom import start_headroom, start_pass_at_k, tally
from besttake.core.select import start_gain, start_selected


@dataclass(frozen=True)
class Evidence:
    """Per-start values (S,), NaN where a start is missing; None where an arm or score was not run. See `verdict`.

    ``n``: takes per choice; ``takes``: takes per start where there are more, one number or one per start;
    ``leak_free``: ``gain`` was measured on a window that hides the length; ``deterministic``: the takes of a start
    are identical by construction; ``combine_content``: selection on retrieve takes - selection on cooled takes.
    """

    headroom: ArrayLike
    gain: ArrayLike | None = None
    shortest: ArrayLike | None = None
    retrieve: ArrayLike | None = None
    cooled: ArrayLike | None = None
    content: ArrayLike | None = None
    beyond_shuffled: ArrayLike | None = None
    combine: ArrayLike | None = None
    retrieve_selection: ArrayLike | None = None
    combine_content: ArrayLike | None = None
    n: int = 3
    takes: ArrayLike | None = None
    leak_free: bool = True
    deterministic: bool = False


@dataclass(frozen=True)
class Arm:
    """The takes of one arm: ``outcomes`` (S, N), ``scores`` (S, N) on the window that decides, ``lengths`` (S, N)."""

    outcomes: ArrayLike
    scores: ArrayLike | None = None
    lengths: ArrayLike | None = None


def gather(
    base: Arm,
    *,
    cooled: Arm | None = None,
    shuffled: Arm | None = None,
    retrieve: Arm | None = None,
    n: int | None = None,
    leak_free: bool = True,
    deterministic: bool = False,
) -> Evidence:
    """Evidence from arms whose rows are the same starts, n takes per choice (all takes unless given)."""
    takes = tally(base.outcomes)[0]
    rows = len(takes)
    for name, arm in (("cooled", cooled), ("shuffled", shuffled), ("retrieve", retrieve)):
        if arm is not None and len(np.asarray(arm.outcomes)) != rows:
            raise ValueError(f"arm {name} has {len(np.asarray(arm.outcomes))} starts, base has {rows}: they must match")
    size = int(np.asarray(base.outcomes).shape[1]) if n is None else n
    return Evidence(
        headroom=start_headroom(base.outcomes, size),
        gain=_gain(base, size),
        shortest=None if base.lengths is None else start_gain(base.outcomes, -np.asarray(base.lengths, float), size),
        retrieve=_difference(retrieve, base),
        cooled=_difference(cooled, base),
        content=_difference(retrieve, cooled),
        beyond_shuffled=_difference(retrieve, shuffled),
        combine=_choice_difference(retrieve, base, size),
        retrieve_selection=_gain(retrieve, size),
        combine_content=_choice_difference(retrieve, cooled, size),
        n=size,
        takes=takes,
        leak_free=leak_free,
        deterministic=deterministic,
    )


def _gain(arm: Arm | None, n: int) -> ArrayLike | None:
    return None if arm is None or arm.scores is None else start_gain(arm.outcomes, arm.scores, n)


def _difference(one: Arm | None, other: Arm | None) -> ArrayLike | None:
    if one is None or other is None:
        return None
    return start_pass_at_k(one.outcomes, 1) - start_pass_at_k(other.outcomes, 1)


def _choice_difference(one: Arm | None, other: Arm | None, n: int) -> ArrayLike | None:
    if one is None or other is None or one.scores is None or other.scores is None:
        return None
    return start_selected(one.outcomes, one.scores, n) - start_selected(other.outcomes, other.scores, n)
