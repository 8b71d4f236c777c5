"""Does the policy already do what the demonstrations do? The demonstration-fit probe (Eq. 3), with its floor.

All distances are L2 norms of the flattened difference of two chunks (horizon x action_dim), as in Eq. 3, so they grow
with the horizon and with the units of the action; the ratio of DFE to floor does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import product
from besttake.core.stats import Estimate

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_BLOCK = 64
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class TaskProbe:
    """One task: ``samples`` (M, K, horizon, action_dim), ``demonstrated`` (M, …), ``demo`` (M,), ``floor`` (M,).

    The M states are those where a demonstration has a whole chunk left. ``padded``: every demonstration is shorter
    than a chunk, so the chunks were filled up as the library says.
    """

    samples: NDArray[np.float32]
    demonstrated: NDArray[np.float32]
    demo: I64
    floor: F64
    padded: bool = False


@dataclass(frozen=True)
class PolicyProbe:
    """The answers of a policy by (env URI, task); or the ``reason`` why it could not be asked."""

    tasks: Mapping[tuple[str, str], TaskProbe] = field(default_factory=dict)
    reason: str = ""

    def notes(self, name: str) -> list[str]:
        """What the result should mention about the probe of policy ``name``."""
        if self.reason:
            return [f"demonstration fit of {name} was not measured: {self.reason}"]
        short = [task for (_, task), probe in self.tasks.items() if probe.padded]
        ends = {probe.samples.shape[2] - 1 for probe in self.tasks.values() if not probe.padded} - {0}
        single = [task for (_, task), probe in self.tasks.items() if np.isnan(probe.floor).all()]
        return [
            *(
                f"demonstration fit of {name} leaves out the last {end} steps of each demonstration,"
                " which no whole chunk follows"
                for end in ends
            ),
            *(f"demonstrations of {task} are shorter than a chunk of {name}: their ends were padded" for task in short),
            *(f"{task} has no floor for {name}: that needs two demonstrations" for task in single),
        ]


@dataclass(frozen=True)
class Probe:
    """The outcome of a probe of ``states`` library states with ``samples`` samples each.

    ``dfe``: Eq. 3. ``floor``: the same with other demonstrations in place of the policy (`leave_one_out`). ``ratio``:
    dfe / floor; about 1 for a policy that is as close to the demonstrations as they are to each other. ``mean_square``:
    the same closest sample's squared error per number of a chunk, which does not grow with the horizon. ``spread``:
    `sampling_spread`. ``correlation``: Pearson's r of the closest sampled first action (closest as an action, whichever
    sample's chunk is closest) and the demonstrated one, pooled over states and dimensions; pooling dimensions of
    different means raises it, so compare it only between policies on the same states. Floor and ratio have no value
    where none was measured; none of them has where there is a ``reason``.
    """

    dfe: Estimate
    floor: Estimate
    ratio: Estimate
    correlation: Estimate
    spread: Estimate
    mean_square: Estimate
    states: int
    samples: int
    reason: str = ""


def probe(samples: NDArray[Any], demonstrated: NDArray[Any], demo: I64, floor: NDArray[Any] | None = None) -> Probe:
    """All figures of the probe, with intervals from a bootstrap over demonstrations.

    ``samples`` (M, K, horizon, action_dim): what the policy samples at M library states; ``demonstrated`` (M, horizon,
    action_dim) what was done there; ``demo`` (M,) by which demonstration; ``floor`` (M,) from `leave_one_out`.
    """
    error, spread = fit_error(samples, demonstrated), sampling_spread(samples)
    first, truth = _closest_first(samples, demonstrated), np.asarray(demonstrated, np.float64)[:, 0]
    below = np.full(len(error), np.nan) if floor is None else np.asarray(floor, np.float64)
    moments = np.stack([first, truth, first * first, truth * truth, first * truth], axis=1).sum(axis=2)
    squares = error**2 / np.prod(demonstrated.shape[1:])
    columns = np.column_stack([np.ones(len(error)), error, below, spread, moments, squares])
    sums = np.zeros((len(np.unique(demo)), columns.shape[1]))
    np.add.at(sums, np.unique(demo, return_inverse=True)[1], columns)

    def correlate(s: F64) -> F64:
        n = s[..., 0] * first.shape[1]
        covariance = n * s[..., 8] - s[..., 4] * s[..., 5]
        variances = (n * s[..., 6] - s[..., 4] ** 2) * (n * s[..., 7] - s[..., 5] ** 2)
        return np.where(variances > 0, covariance / np.sqrt(np.where(variances > 0, variances, 1.0)), np.nan)

    def ratio(s: F64) -> F64:
        return np.where(s[..., 2] > 0, s[..., 1] / np.where(s[..., 2] > 0, s[..., 2], 1.0), np.nan)

    def estimate(of: Callable[[F64], F64]) -> Estimate:
        return cluster_bootstrap(sums, of)

    return Probe(
        dfe=estimate(lambda s: s[..., 1] / s[..., 0]),
        floor=estimate(lambda s: s[..., 2] / s[..., 0]),
        ratio=estimate(ratio),
        correlation=estimate(correlate),
        spread=estimate(lambda s: s[..., 3] / s[..., 0]),
        mean_square=estimate(lambda s: s[..., 9] / s[..., 0]),
        states=len(error),
        samples=samples.shape[1],
    )


def fit_error(samples: NDArray[Any], demonstrated: NDArray[Any]) -> F64:
    """``min_k |a_k - a*|`` at each state (M,); their mean is DFE (Eq. 3). Shapes as in `probe`."""
    errors: F64 = _distances(samples, demonstrated).min(axis=1)
    return errors


def leave_one_out(features: NDArray[Any], chunks: NDArray[Any], demo: I64, states: I64, k: int) -> F64:
    """The floor at each state (M,): DFE with demonstrations in place of the policy.

    ``features`` (F, f), ``chunks`` (F, horizon, action_dim) and ``demo`` (F,) describe library frames of one task, and
    ``states`` (M,) which of them are probed. Of every *other* demonstration the frame nearest in z-scored features
    stands for what it did at this state; the ``k`` nearest of these are the samples, and the closest of their chunks
    counts. So floor and DFE choose from the same number of samples. ValueError with fewer than two demonstrations.
    """
    owners, own = np.unique(demo, return_inverse=True)
    if len(owners) < 2:
        raise ValueError("a leave-one-out floor needs at least two demonstrations of the task")
    flat = np.asarray(features, np.float64).reshape(len(features), -1)
    spread = flat.std(axis=0)
    flat = ((flat - flat.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)).astype(np.float64)
    order = np.argsort(own, kind="stable")
    begins = np.searchsorted(own[order], np.arange(len(owners)))
    square = np.einsum("ij,ij->i", flat, flat)
    actions = np.asarray(chunks, np.float64).reshape(len(chunks), -1)
    result = np.empty(len(states))
    for first in range(0, len(states), _BLOCK):
        block = np.asarray(states[first : first + _BLOCK])
        away = square[block, None] + square[None, order] - 2 * product(flat[block], flat[order].T)
        for row, state in enumerate(block):
            nearest = np.array([b + int(np.argmin(part)) for b, part in _parts(away[row], begins)])
            others = np.flatnonzero(np.arange(len(owners)) != own[state])
            closest = others[np.argsort(away[row, nearest[others]], kind="stable")[:k]]
            gaps = actions[order[nearest[closest]]] - actions[state]
            result[first + row] = np.sqrt(np.einsum("ij,ij->i", gaps, gaps)).min()
    return result


def sampling_spread(samples: NDArray[Any]) -> F64:
    """How far samples at one state lie apart (M,): the root mean square L2 distance of a sample from their mean.

    With the K - 1 of an unbiased variance; NaN for K = 1.
    """
    flat = np.asarray(samples, np.float64).reshape(*samples.shape[:2], -1)
    if flat.shape[1] < 2:
        return np.full(len(flat), np.nan)
    gaps = flat - flat.mean(axis=1, keepdims=True)
    result: F64 = np.sqrt(np.einsum("mki,mki->m", gaps, gaps) / (flat.shape[1] - 1))
    return result


def spread_over(demo: NDArray[Any], count: int) -> I64:
    """``count`` rows, evenly from each demonstration and at other moments in each; all where there are no more.

    ``demo`` (M,) says whose each row is, the rows of one in the order of time. Every so-many-th row will not do:
    demonstrations of a task are about equally long, and it would hit the same moments in all of them.
    """
    groups = [np.flatnonzero(demo == one) for one in np.unique(demo)]
    if len(demo) <= count:
        return np.arange(len(demo), dtype=np.int64)
    quotas = np.diff(np.arange(len(groups) + 1) * count // max(len(groups), 1))
    asked = [(rows, quota) for rows, quota in zip(groups, quotas.tolist(), strict=True) if quota]
    picked = []
    for index, (rows, quota) in enumerate(asked):
        moments = np.arange(min(quota, len(rows))) + (index + 0.5) * _GOLDEN % 1.0
        picked.append(rows[(moments * len(rows) / min(quota, len(rows))).astype(np.int64)])
    return np.concatenate(picked)


def resampled(clusters: int, seed: int = 0) -> I64:
    """How often each cluster is drawn (2000, clusters) in each resample of a bootstrap."""
    rng = np.random.Generator(np.random.Philox(seed))
    return rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=2000)


def cluster_bootstrap(sums: F64, statistic: Callable[[F64], F64], counts: NDArray[Any] | None = None) -> Estimate:
    """A statistic of column sums, with its percentile interval under resampling of whole clusters.

    ``sums`` (C, S): each cluster's sums of S quantities; ``statistic`` maps totals (..., S) to (...,). No interval
    for fewer than two clusters. ``counts`` from `resampled`, for many statistics of the same clusters.
    """
    value = float(statistic(sums.sum(axis=0)))
    if np.isnan(value):
        return Estimate(reason="not measured")
    if len(sums) < 2:
        return Estimate(value)
    counts = resampled(len(sums)) if counts is None else counts
    low, high = np.nanpercentile(statistic(product(counts.astype(np.float64), sums)), [2.5, 97.5])
    return Estimate(value, float(low), float(high))


def _distances(samples: NDArray[Any], demonstrated: NDArray[Any]) -> F64:
    if samples.ndim != 4 or samples.shape[0] != len(demonstrated) or samples.shape[2:] != demonstrated.shape[1:]:
        raise ValueError(f"samples {samples.shape} do not fit demonstrated chunks {demonstrated.shape}")
    gaps = np.asarray(samples, np.float64) - np.asarray(demonstrated, np.float64)[:, None]
    result: F64 = np.sqrt(np.einsum("mkha,mkha->mk", gaps, gaps))
    return result


def _closest_first(samples: NDArray[Any], demonstrated: NDArray[Any]) -> F64:
    """The sampled first action (M, action_dim) that is closest to the demonstrated first action."""
    best = _distances(samples[:, :, :1], demonstrated[:, :1]).argmin(axis=1)
    closest: F64 = np.asarray(samples, np.float64)[np.arange(len(best)), best, 0]
    return closest


def _parts(row: F64, begins: I64) -> list[tuple[int, F64]]:
    return [(int(b), part) for b, part in zip(begins, np.split(row, begins[1:]), strict=True)]
