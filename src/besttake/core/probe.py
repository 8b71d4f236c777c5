"""Does the policy already do what the demonstrations do? The demonstration-fit probe (Eq. 3), with its floor.

As in Eq. 3, distances are L2 norms of the flattened difference of two chunks (horizon x action_dim). They grow with the
horizon and with the units of the action; the ratio of DFE to floor does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import F32, F64, I64, product
from besttake.core.stats import Estimate, cluster_bootstrap

_BLOCK = 64
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class TaskProbe:
    """The M probed states of one task: ``samples`` (M, K, horizon, action_dim), and what was ``demonstrated`` (M, …).

    ``demo`` (M,) is the demonstration of each state, ``floor`` (M,) its `leave_one_out`. A demonstration is probed
    where a whole chunk of it follows. ``padded``: every demonstration is shorter than a chunk, so chunks were filled
    up.
    """

    samples: F32
    demonstrated: F32
    demo: I64
    floor: F64
    padded: bool = False


@dataclass(frozen=True)
class PolicyProbe:
    """The probed states of a policy by (env URI, task), or the ``reason`` why there are none."""

    tasks: Mapping[tuple[str, str], TaskProbe] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Probe:
    """The outcome of a probe of ``states`` library states with ``samples`` samples each.

    ``dfe``: Eq. 3. ``floor``: the same with other demonstrations in place of the policy (`leave_one_out`). ``ratio``:
    dfe / floor; about 1 for a policy that is as close to the demonstrations as they are to each other. ``mean_square``:
    the squared error of the closest sample per number of a chunk, which does not grow with the horizon. ``spread``:
    `sampling_spread`. ``correlation``: Pearson's r between the demonstrated first action and the closest sampled first
    action, pooled over states and dimensions; dimensions with different means raise it, so compare it only between
    policies on the same states. Floor and ratio have no value where no floor was measured, and nothing has one where
    there is a ``reason``.
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

    ``samples`` (M, K, horizon, action_dim) are the policy's at M library states, ``demonstrated`` (M, horizon,
    action_dim) are the chunks of the demonstrations ``demo`` (M,) there, and ``floor`` (M,) is from `leave_one_out`.
    """
    error, spread = fit_error(samples, demonstrated), sampling_spread(samples)
    first, truth = _closest_first(samples, demonstrated), np.asarray(demonstrated, np.float64)[:, 0]
    below = np.full(len(error), np.nan) if floor is None else np.asarray(floor, np.float64)
    moments = np.stack([first, truth, first * first, truth * truth, first * truth], axis=1).sum(axis=2)
    squares = error**2 / np.prod(demonstrated.shape[1:])
    columns = np.column_stack([np.ones(len(error)), error, below, spread, moments, squares])
    sums = np.zeros((len(np.unique(demo)), columns.shape[1]))
    np.add.at(sums, np.unique(demo, return_inverse=True)[1], columns)

    def figures(s: F64) -> F64:
        states, n = s[..., 0], s[..., 0] * first.shape[1]  # n: states times action dimensions
        covariance = n * s[..., 8] - s[..., 4] * s[..., 5]
        variances = (n * s[..., 6] - s[..., 4] ** 2) * (n * s[..., 7] - s[..., 5] ** 2)
        r = np.where(variances > 0, covariance / np.sqrt(np.where(variances > 0, variances, 1.0)), np.nan)
        ratio = np.where(s[..., 2] > 0, s[..., 1] / np.where(s[..., 2] > 0, s[..., 2], 1.0), np.nan)
        return np.stack(
            [s[..., 1] / states, s[..., 2] / states, ratio, r, s[..., 3] / states, s[..., 9] / states], axis=-1
        )

    dfe, floors, ratio, correlation, spreads, mean_square = cluster_bootstrap(sums, figures)
    return Probe(dfe, floors, ratio, correlation, spreads, mean_square, len(error), samples.shape[1])


def fit_error(samples: NDArray[Any], demonstrated: NDArray[Any]) -> F64:
    """``min_k |a_k - a*|`` at each state (M,); their mean is DFE (Eq. 3). Shapes as in `probe`."""
    errors: F64 = _distances(samples, demonstrated).min(axis=1)
    return errors


def leave_one_out(features: NDArray[Any], chunks: NDArray[Any], demo: I64, states: I64, k: int) -> F64:
    """The floor at each state (M,): DFE with demonstrations in place of the policy.

    ``features`` (F, f), ``chunks`` (F, horizon, action_dim) and ``demo`` (F,) describe library frames of one task, and
    ``states`` (M,) are the rows that are probed. The frame of every *other* demonstration that is nearest in z-scored
    features tells what that demonstration did at this state. The ``k`` nearest of these frames are the samples, so that
    floor and DFE choose from the same number, and the closest of their chunks counts. ValueError with fewer than two
    demonstrations.
    """
    owners, owner = np.unique(demo, return_inverse=True)
    if len(owners) < 2:
        raise ValueError("a leave-one-out floor needs at least two demonstrations of the task")
    flat = np.asarray(features, np.float64).reshape(len(features), -1)
    spread = flat.std(axis=0)
    flat = ((flat - flat.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)).astype(np.float64)
    order = np.argsort(owner, kind="stable")
    begins = np.searchsorted(owner[order], np.arange(len(owners)))
    square = np.einsum("ij,ij->i", flat, flat)
    actions = np.asarray(chunks, np.float64).reshape(len(chunks), -1)
    result = np.empty(len(states))
    for first in range(0, len(states), _BLOCK):
        block = np.asarray(states[first : first + _BLOCK])
        away = square[block, None] + square[None, order] - 2 * product(flat[block], flat[order].T)
        for row, state in enumerate(block):
            by_demo = zip(begins, np.split(away[row], begins[1:]), strict=True)
            nearest = np.array([begin + np.argmin(part) for begin, part in by_demo])
            others = np.flatnonzero(np.arange(len(owners)) != owner[state])
            closest = others[np.argsort(away[row, nearest[others]], kind="stable")[:k]]
            gaps = actions[order[nearest[closest]]] - actions[state]
            result[first + row] = np.sqrt(np.einsum("ij,ij->i", gaps, gaps)).min()
    return result


def sampling_spread(samples: NDArray[Any]) -> F64:
    """How far samples at one state lie apart (M,): the root mean square L2 distance of a sample from their mean.

    As in an unbiased variance, the divisor is K - 1; NaN for K = 1.
    """
    flat = np.asarray(samples, np.float64).reshape(*samples.shape[:2], -1)
    if flat.shape[1] < 2:
        return np.full(len(flat), np.nan)
    gaps = flat - flat.mean(axis=1, keepdims=True)
    result: F64 = np.sqrt(np.einsum("mki,mki->m", gaps, gaps) / (flat.shape[1] - 1))
    return result


def spread_over(demo: NDArray[Any], count: int) -> I64:
    """``count`` rows, evenly from each demonstration and at other moments in each; all rows if there are no more.

    ``demo`` (M,) is the demonstration of each row, whose rows are in the order of time. Taking every n-th row would hit
    the same moments in all demonstrations of a task, because they are about equally long.
    """
    if len(demo) <= count:
        return np.arange(len(demo), dtype=np.int64)
    groups = [np.flatnonzero(demo == number) for number in np.unique(demo)]
    quotas = np.diff(np.arange(len(groups) + 1) * count // len(groups)).tolist()
    picked = []
    for index, (rows, quota) in enumerate(pair for pair in zip(groups, quotas, strict=True) if pair[1]):
        moments = np.arange(min(quota, len(rows))) + (index + 0.5) * _GOLDEN % 1.0
        picked.append(rows[(moments * len(rows) / min(quota, len(rows))).astype(np.int64)])
    return np.concatenate(picked)


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
