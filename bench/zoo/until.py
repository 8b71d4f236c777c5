"""A run until decided, and a fixed sample, on takes that were made before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from besttake.core import verdict
from besttake.core.verdict import Decided
from besttake.measure.questions import ScoredTakes, answer, questions_of
from besttake.measure.until import ROUND, Stopped, Watch, needs_of


@dataclass(frozen=True)
class UntilDecided:
    """How a cell went: the verdict, the takes spent in all and by arm, the starts seen, and why it stopped.

    ``unsettled``: the parts of the verdict that were asked for and are open.
    """

    decided: Decided
    takes: int
    takes_by_arm: Mapping[str, int]
    starts: int
    stopped: Stopped
    unsettled: tuple[str, ...]


def run_until_decided(
    arms: Mapping[str, ScoredTakes],
    n: int,
    *,
    worth: float = 0.03,
    budget: int | None = None,
    order: Sequence[int] | None = None,
    seed: int = 0,
    parts: Sequence[str] = ("reuse", "retrieve"),
) -> UntilDecided:
    """Run a cell until it is decided, with takes that are there: ``arms`` hold all (S, N) of them.

    ``order`` of the starts (a shuffle by ``seed`` unless given); ``budget``: at most this many takes; ``parts`` of the
    verdict that have to be settled. An arm is played only while an open part needs it; ``shuffled`` is not.
    """
    outcomes = {name: np.asarray(arm.outcomes, dtype=np.float64) for name, arm in arms.items() if name != "shuffled"}
    own = {name: arms[name] for name in outcomes}
    starts = len(outcomes["base"])
    sequence = np.random.default_rng(seed).permutation(starts) if order is None else np.asarray(order, dtype=np.int64)
    watch, seen = Watch.of(own, sequence, n, worth), dict.fromkeys(own, 0)
    needed, position, spent, stopped = frozenset(own), 0, dict.fromkeys(own, 0), "decided"
    while needed and stopped == "decided":
        each = sum(outcomes[name].shape[1] for name in needed)
        affordable = ROUND if budget is None else (budget - sum(spent.values())) // each
        size = min(ROUND, affordable, len(sequence) - position)
        if size < 1:
            stopped = "budget" if position < len(sequence) else "starts"
            break
        rows = sequence[position : position + size]
        position += size
        for name in needed:
            spent[name] += int(np.isfinite(outcomes[name][rows]).sum())
            seen[name] = position
        open_parts = needs_of(watch.verdict(seen), own)
        needed = frozenset[str]().union(*(arms for part, arms in open_parts.items() if part in parts))
    decided = watch.verdict(seen)
    unsettled = tuple(part for part in needs_of(decided, own) if part in parts)
    return UntilDecided(decided, sum(spent.values()), spent, position, stopped, unsettled)  # type: ignore[arg-type]


def fixed_sample(arms: Mapping[str, ScoredTakes], n: int, *, worth: float = 0.03, draws: int = 2_000) -> Decided:
    """The verdict of a fixed sample on the same arrays."""
    return verdict.decide(answer(questions_of(arms, n), worth, draws=draws), n)
