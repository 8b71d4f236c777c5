"""How much takes of one start agree, and what their disagreement comes from.

Two takes disagree if one succeeds and the other fails. The more they share, the less often they do, and each further
thing that they share explains a part of the disagreement d_0 between takes of different starts of one task:

| two takes share | disagreement | the part that is explained |
| --- | --- | --- |
| the task | d_0 | |
| the start as well | d_1 | ``start``: (d_0 - d_1) / d_0 |
| the env seed as well | d_2 | ``env seed``: (d_1 - d_2) / d_0 |
| the policy's seed as well | d_3 | ``policy seed``: (d_2 - d_3) / d_0 |

The first part is called ``start`` even if takes of one start always share more than the start. What remains after the
last thing that was recorded is ``rest``; after the policy's seed it is ``numerics``: the same take, played again. The
parts are shares of the variance of an outcome within a task and sum to 1. ``start`` is Fleiss' kappa with chance
counted within each task, so that differences in difficulty between tasks do not count as agreement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from besttake.core.arithmetic import F64
from besttake.core.stats import Estimate, cluster_bootstrap

LEVELS = ("start", "env seed", "policy seed")


@dataclass(frozen=True)
class Sources:
    """The ``parts`` of the disagreement within a task, and the ``disagreement`` of takes by what they share.

    ``pairs`` is the number of pairs of takes behind each disagreement. ``reason`` says why there are no parts.
    """

    parts: Mapping[str, Estimate] = field(default_factory=dict)
    disagreement: Mapping[str, float] = field(default_factory=dict)
    pairs: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def start(self) -> Estimate:
        """The part that the start explains: agreement beyond chance within the task."""
        return self.parts.get("start", Estimate(reason=self.reason))


def sources(
    outcomes: ArrayLike, tasks: Sequence[object], env_seeds: ArrayLike | None = None, seeds: ArrayLike | None = None
) -> Sources:
    """Estimate how much of the disagreement of takes (S, N) comes from start, env seed and policy seed.

    ``env_seeds`` and ``seeds`` (S, N) are numbers, NaN where they were not recorded. Takes with the same number share
    that seed; without recorded numbers takes of a start share only the start.
    """
    y = np.asarray(outcomes, dtype=np.float64)
    numbers = [np.full(y.shape, np.nan) if s is None else np.asarray(s, np.float64) for s in (env_seeds, seeds)]
    columns, counts = _by_shared(y, *numbers)
    columns = {"task": _between(y, tasks), **columns}
    if not np.isfinite(columns["task"]).any():
        return Sources(reason="each task has one start, so a shared start looks like a shared task")
    names = ["task", *(name for name in LEVELS if np.isfinite(columns[name]).sum() > 1)]
    if len(names) < 2:
        return Sources(reason="one outcome per start")
    table = np.stack([columns[name] for name in names], axis=1)
    table = table[np.isfinite(table).all(axis=1)]
    if len(table) < 2:
        return Sources(reason="fewer than two starts")
    shares = ("start", *names[2:], "numerics" if names[-1] == LEVELS[-1] else "rest")
    estimates = [replace(estimate, n=len(table)) for estimate in cluster_bootstrap(table, _shares)]
    rates = dict(zip(names, table.mean(axis=0).tolist(), strict=True))
    return Sources(dict(zip(shares, estimates, strict=True)), rates, {name: counts[name] for name in names[1:]})


def _shares(disagreement: F64) -> F64:
    """(d_i - d_i+1) / d_0 of each d_i (..., i); nothing follows the last one."""
    following = np.zeros_like(disagreement)
    following[..., :-1] = disagreement[..., 1:]
    return (disagreement - following) / np.where(disagreement[..., :1] > 1e-12, disagreement[..., :1], np.nan)


def _by_shared(y: F64, envs: F64, seeds: F64) -> tuple[dict[str, F64], dict[str, int]]:
    """How often takes of each start disagree (S,), and the number of pairs, by the last of `LEVELS` that they share."""
    unlike, pairs = {name: np.zeros(len(y)) for name in LEVELS}, {name: np.zeros(len(y)) for name in LEVELS}
    for i in range(y.shape[1]):
        for j in range(i):
            known = np.isfinite(y[:, i]) & np.isfinite(y[:, j])
            same_env, same_seed = envs[:, i] == envs[:, j], seeds[:, i] == seeds[:, j]
            other_env = np.isfinite(envs[:, i]) & np.isfinite(envs[:, j]) & ~same_env
            deepest = np.where(same_seed & ~other_env, 2, np.where(same_env, 1, 0))
            for level, name in enumerate(LEVELS):
                chosen = known & (deepest == level)
                pairs[name] += chosen
                unlike[name] += chosen & (y[:, i] != y[:, j])
    rates = {name: np.where(pairs[name] > 0, unlike[name] / np.maximum(pairs[name], 1), np.nan) for name in LEVELS}
    return rates, {name: int(pairs[name].sum()) for name in LEVELS}


def _between(y: F64, tasks: Sequence[object]) -> F64:
    """How often a take of each start disagrees with one of another start of its task, (S,); NaN without another."""
    takes = np.isfinite(y).sum(axis=1)
    rate = np.nansum(y, axis=1) / np.maximum(takes, 1)
    place = {task: i for i, task in enumerate(dict.fromkeys(tasks))}
    group = np.array([place[task] for task in tasks], dtype=np.int64)
    counted = takes > 0
    size = np.bincount(group[counted], minlength=len(place))[group] - 1
    others = (np.bincount(group[counted], rate[counted], minlength=len(place))[group] - rate) / np.maximum(size, 1)
    return np.where(counted & (size > 0), rate * (1 - others) + others * (1 - rate), np.nan)
