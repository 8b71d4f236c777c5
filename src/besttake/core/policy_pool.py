"""The success of one take of each of several policies, compared with as many takes of the best of them.

Takes are independent given their start. The chance that one take of each policy fails is therefore the product of the
policies' failure rates at the start, averaged over starts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np

from besttake.core import stats
from besttake.core.arithmetic import F64
from besttake.core.headroom import mean, start_pass_at_k, tally
from besttake.core.stats import Estimate

_MOST = 12
"""With more policies than this, only those with the highest success are paired."""


@dataclass(frozen=True)
class Pool:
    """A perfect pick from one take of each of ``policies`` (``each``), compared with as many takes of one (``alone``).

    That one is ``best``: of all policies with takes of these starts, the one with the highest success. ``gain`` is the
    difference, paired over the ``starts`` that all policies share. ``picked``: the gain of picking from one take of
    each by the run's score over one take of the best; None without scores.
    """

    policies: tuple[str, ...]
    starts: int
    best: str
    each: Estimate
    alone: Estimate
    gain: Estimate
    picked: Estimate | None = None


def pools(
    starts: Mapping[str, Sequence[Hashable]], outcomes: Mapping[str, F64], scores: Mapping[str, F64 | None]
) -> list[Pool]:
    """All pairs of policies, the highest gain first, then all policies together.

    ``outcomes`` and ``scores`` of a policy are (S, N), with a row for each of its ``starts``.
    """
    if len(outcomes) < 2:
        return []
    place = {start: i for i, start in enumerate(dict.fromkeys(chain.from_iterable(starts.values())))}

    def placed(policy: str, values: F64) -> F64:
        table = np.full((len(place), values.shape[1]), np.nan)
        table[[place[start] for start in starts[policy]]] = values
        return table

    tables = {policy: placed(policy, values) for policy, values in outcomes.items()}
    scored = {policy: placed(policy, values) for policy, values in scores.items() if values is not None}
    order = sorted(tables, key=lambda name: -mean(start_pass_at_k(tables[name], 1)))[:_MOST]
    pairs = [pool for pair in combinations(order, 2) if (pool := _pool(pair, tables, scored)) is not None]
    pairs.sort(key=lambda pool: -(pool.gain.value if pool.gain.value is not None else -2.0))
    every = _pool(tuple(order), tables, scored) if len(order) > 2 else None
    return [*pairs, *([every] if every else [])]


def _pool(names: tuple[str, ...], outcomes: Mapping[str, F64], scores: Mapping[str, F64]) -> Pool | None:
    shared = np.logical_and.reduce([tally(outcomes[name])[0] > 0 for name in names])
    if not shared.any():
        return None
    rivals = {name: rows for name, array in outcomes.items() if tally(rows := array[shared])[0].all()}
    best = max(rivals, key=lambda name: mean(start_pass_at_k(rivals[name], 1)))
    each = 1 - np.prod([1 - start_pass_at_k(rivals[name], 1) for name in names], axis=0)
    enough = tally(rivals[best])[0] >= len(names)
    alone = np.where(enough, start_pass_at_k(rivals[best], len(names)), np.nan)
    unit, gain = stats.unit_scale(), stats.pick_scale()
    missing = Estimate(reason=f"{best} has fewer than {len(names)} takes of a start")
    known = {name: scores[name][shared] for name in names if name in scores}
    picked = None
    if len(names) == 2 and len(known) == 2:
        success = _picked([rivals[name] for name in names], [known[name] for name in names])
        picked = stats.mean_interval(success - start_pass_at_k(rivals[best], 1), gain)
    return Pool(
        names, int(shared.sum()), best, stats.mean_interval(each, unit),
        stats.mean_interval(alone, unit) if enough.any() else missing,
        stats.mean_interval(each - alone, gain) if enough.any() else missing, picked,
    )  # fmt: skip


def _picked(outcomes: list[F64], scores: list[F64]) -> F64:
    """The mean success (S,) of the higher-scored take over all pairs of one take of each policy; a tie counts half."""
    (y, z), (a, b) = outcomes, scores
    known = np.isfinite(y + a)[:, :, None] & np.isfinite(z + b)[:, None, :]
    first = 0.5 * (1 + np.sign(np.where(known, a[:, :, None] - b[:, None, :], 0.0)))
    chosen = np.where(known, first * np.nan_to_num(y)[:, :, None] + (1 - first) * np.nan_to_num(z)[:, None, :], 0.0)
    pairs = known.sum(axis=(1, 2))
    return np.where(pairs > 0, chosen.sum(axis=(1, 2)) / np.maximum(pairs, 1), np.nan)
