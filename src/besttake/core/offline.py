"""Which retrieval configuration helps, if any: the check at held-out demonstration states, without a take.

At a state of a demonstration, with that demonstration left out of the search, what the demonstration did is known. A
sample's error has two parts. One differs from draw to draw, and much of it averages out over an episode; calmer noise
makes it smaller. The other is the error of the mean over draws, the *lasting* error: it comes back at every replan, and
content can only help by making it smaller. In rollouts content was above zero where the lasting error fell in every
dimension of the action, and below zero where it rose in one, whatever the error over all dimensions did
(docs/retrieval.md has the numbers). So a configuration passes where its lasting error is shown to be below that of its
control and no dimension is left in which it may have grown by more than `MARGIN`.

All errors are root mean squares over the executed steps, in units of the standard deviation of the task's actions, with
dimensions that are constant in a task left out. Intervals resample demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.estimate import Estimate
from besttake.core.probe import cluster_bootstrap, resampled
from besttake.core.retrieve import RULES, RetrievalConfig

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_NONE = Estimate()
MARGIN = 0.02
"""Differences of error up to this size, in action standard deviations, count as none."""


@dataclass(frozen=True)
class States:
    """The M states of a check: what was ``demonstrated`` there (M, steps, action_dim) and by which ``demo`` (M,).

    ``mean`` and ``spread`` (M, action_dim) are those of the actions of the state's task.
    """

    demonstrated: NDArray[Any]
    demo: I64
    mean: NDArray[Any]
    spread: NDArray[Any]


@dataclass(frozen=True)
class Checked:
    """One configuration at the states of a check.

    ``error``: of one sample. ``lasting``: of the mean over draws. ``chunk``: of the retrieved chunk itself. ``change``:
    lasting error minus that of the control, which has as much noise; ``worst``: the same in the dimension where it is
    largest. ``beyond``: error minus that of cooling at its best strength. ``cosine``: of what the chunk changes in the
    sample with what would have to change to do as demonstrated. ``passes``: see this module.
    """

    config: RetrievalConfig
    error: Estimate
    lasting: Estimate
    chunk: Estimate
    change: Estimate
    worst: Estimate
    beyond: Estimate
    cosine: Estimate
    passes: bool


@dataclass(frozen=True)
class Check:
    """What a check says of a policy, or the ``reason`` why it could not be made.

    ``cooled``: error by strength. ``cooling``: the weakest strength within `MARGIN` of the lowest error. ``chosen``:
    None where nothing beats cooling.
    """

    states: int = 0
    draws: int = 0
    base: Estimate = _NONE
    mean_action: Estimate = _NONE
    cooled: Mapping[float, Estimate] = field(default_factory=dict)
    cooling: float | None = None
    tried: tuple[Checked, ...] = ()
    chosen: RetrievalConfig | None = None
    reason: str = ""


@dataclass(frozen=True)
class _Squares:
    """Sums over the states of each demonstration, (C, action_dim): squared errors, and how many went in."""

    error: F64
    lasting: F64
    count: F64


class Comparison:
    """Compares samples at the same states from the same draws."""

    def __init__(self, states: States, seed: int = 0) -> None:
        self._states = states
        spread = np.asarray(states.spread, np.float64)
        self._keep = spread > 1e-3 * np.maximum(spread.max(axis=1, keepdims=True), 1e-9)
        self._scale = np.where(self._keep, 1 / np.where(self._keep, spread, 1.0), 0.0)
        self._truth = np.asarray(states.demonstrated, np.float64)
        self._demo = np.unique(states.demo, return_inverse=True)[1]
        self._counts = resampled(int(self._demo.max(initial=0)) + 1, seed).astype(np.float64)

    def error(self, samples: NDArray[Any]) -> Estimate:
        """The error of one of ``samples`` (M, K, steps, action_dim)."""
        squares = self._squares(samples)
        return self._over([squares.error, squares.count], lambda x, n: _root(x.sum(-1), n.sum(-1)))

    def lasting(self, samples: NDArray[Any]) -> Estimate:
        """The error of the mean over draws; unbiased squares, so that few draws do not raise it."""
        squares = self._squares(samples)
        return self._over([squares.lasting, squares.count], lambda x, n: _root(x.sum(-1), n.sum(-1)))

    def mean_action(self) -> Estimate:
        """The error of the task's mean action."""
        return self.error(
            np.broadcast_to(self._states.mean[:, None, None], (len(self._truth), 1, *self._truth.shape[1:]))
        )

    def difference(self, samples: NDArray[Any], control: NDArray[Any]) -> Estimate:
        """The error of ``samples`` minus that of ``control``."""
        own, other = self._squares(samples), self._squares(control)
        return self._over(
            [own.error, other.error, own.count],
            lambda a, b, n: _root(a.sum(-1), n.sum(-1)) - _root(b.sum(-1), n.sum(-1)),
        )

    def change(self, samples: NDArray[Any], control: NDArray[Any]) -> Estimate:
        """The lasting error of ``samples`` minus that of ``control``."""
        own, other = self._squares(samples), self._squares(control)
        return self._over(
            [own.lasting, other.lasting, own.count],
            lambda a, b, n: _root(a.sum(-1), n.sum(-1)) - _root(b.sum(-1), n.sum(-1)),
        )

    def worst(self, samples: NDArray[Any], control: NDArray[Any]) -> Estimate:
        """`change` in the dimension of the action whose upper bound is highest."""
        own, other = self._squares(samples), self._squares(control)
        changes = [
            self._over(
                [own.lasting[:, [d]], other.lasting[:, [d]], own.count[:, [d]]],
                lambda a, b, n: _root(a.sum(-1), n.sum(-1)) - _root(b.sum(-1), n.sum(-1)),
            )
            for d in np.flatnonzero(self._keep.any(axis=0))
        ]
        return max(changes, key=lambda e: -np.inf if e.value is None else e.value if e.high is None else e.high)

    def cosine(self, samples: NDArray[Any], control: NDArray[Any]) -> Estimate:
        """Of (samples - control) with (demonstrated - control), pooled over states, draws, steps and dimensions."""
        moved = (np.asarray(samples, np.float64) - control) * self._scale[:, None, None]
        needed = (self._truth[:, None] - np.asarray(control, np.float64)) * self._scale[:, None, None]
        axes = (1, 2, 3)
        sums = np.stack([(moved * needed).sum(axes), (moved**2).sum(axes), (needed**2).sum(axes)], axis=1)

        def cosine(s: F64) -> F64:
            size = np.sqrt(s[..., 1] * s[..., 2])
            return np.where(size > 0, s[..., 0] / np.where(size > 0, size, 1.0), np.nan)

        return cluster_bootstrap(self._by_demo(sums), cosine, counts=self._counts)

    def _squares(self, samples: NDArray[Any]) -> _Squares:
        values = np.asarray(samples, np.float64)
        gaps = (values - self._truth[:, None]) * self._scale[:, None, None]
        mean, draws = gaps.mean(axis=1), gaps.shape[1]
        noise = gaps.var(axis=1, ddof=1) / draws if draws > 1 else np.zeros_like(mean)
        return _Squares(
            self._by_demo((gaps**2).mean(axis=(1, 2))), self._by_demo((mean**2 - noise).mean(axis=1)),
            self._by_demo(self._keep.astype(np.float64)),
        )  # fmt: skip

    def _by_demo(self, rows: F64) -> F64:
        sums = np.zeros((int(self._demo.max(initial=-1)) + 1, rows.shape[1]))
        np.add.at(sums, self._demo, rows)
        return sums

    def _over(self, parts: Sequence[F64], statistic: Callable[..., F64]) -> Estimate:
        """A statistic of the column sums of ``parts``, each (C, dims), with its interval over demonstrations."""
        width = parts[0].shape[1]

        def whole(sums: F64) -> F64:
            return statistic(*(sums[..., i * width : (i + 1) * width] for i in range(len(parts))))

        return cluster_bootstrap(np.concatenate(parts, axis=1), whole, counts=self._counts)


def judge(
    compare: Comparison,
    config: RetrievalConfig,
    sampled: NDArray[Any],
    retrieved: NDArray[Any],
    control: NDArray[Any],
    calmest: NDArray[Any],
) -> Checked:
    """What a configuration does: its samples, the chunks that it retrieved, and the samples of its control.

    ``calmest`` are the samples of cooling at its best strength. All are (M, K, steps, action_dim).
    """
    change, worst = compare.change(sampled, control), compare.worst(sampled, control)
    shown = change.high is not None and change.high < 0
    spared = worst.high is not None and worst.high <= MARGIN
    return Checked(
        config, compare.error(sampled), compare.lasting(sampled), compare.error(retrieved), change, worst,
        compare.difference(sampled, calmest), compare.cosine(sampled, control), shown and spared,
    )  # fmt: skip


def weakest(errors: Mapping[float, Estimate]) -> float | None:
    """The weakest strength whose error is within `MARGIN` of the lowest."""
    values = {strength: e.value for strength, e in sorted(errors.items()) if e.value is not None}
    return next((a for a, value in values.items() if value <= min(values.values()) + MARGIN), None)


def choose(tried: Sequence[Checked]) -> RetrievalConfig | None:
    """The configuration to run; None where nothing beats cooling.

    The paper's way in, `start`, comes first, as weakly as it passes: the error at demonstrated states does not rank
    ways in against each other. Another way is taken only where `start` does not pass and the error is shown to be below
    that of cooling at its best strength. Among configurations of the same way and strength the lowest lasting error
    wins, and the simplest of those within half a `MARGIN` of it, whether or not the simplest passes: many are tried,
    and one that is hardly better than the plain rule passes by luck.
    """
    passing = [one for one in tried if one.passes and not any(_hides(plain, one) for plain in tried)]
    for ways in (("start",), ("path", "blend")):
        fit = [one for one in passing if one.config.way in ways and (ways == ("start",) or _below(one.beyond))]
        if not fit:
            continue
        if ways != ("start",):
            lowest = min(fit, key=lambda one: (_value(one.beyond), complexity(one.config)))
            fit = [one for one in fit if one.config.way == lowest.config.way]
        alpha = min(one.config.alpha for one in fit)
        fit = [one for one in fit if one.config.alpha == alpha]
        best = min(_value(one.change) for one in fit)
        close = [one for one in fit if _value(one.change) <= best + MARGIN / 2]
        return min(close, key=lambda one: (complexity(one.config), _value(one.change))).config
    return None


def _hides(plain: Checked, one: Checked) -> bool:
    """Whether ``plain`` is a simpler configuration of the same rule, way and strength that does about as well."""
    same = ("rule", "way", "alpha")
    if any(getattr(plain.config, name) != getattr(one.config, name) for name in same):
        return False
    simpler = complexity(plain.config) < complexity(one.config)
    return simpler and not plain.passes and _value(plain.change) <= _value(one.change) + MARGIN / 2


def complexity(config: RetrievalConfig) -> tuple[int, int]:
    """How far a configuration is from the plainest: variants switched on, then the rule (frame, current, next)."""
    plain = RetrievalConfig()
    names = ("weights", "onset_alignment", "whitening", "rerank", "gripper_gating", "reliability", "lead")
    return sum(getattr(config, name) != getattr(plain, name) for name in names), -RULES.index(config.rule)


def _root(squares: F64, count: F64) -> F64:
    return np.sqrt(np.maximum(squares / np.where(count > 0, count, np.nan), 0.0))


def _below(estimate: Estimate) -> bool:
    return estimate.high is not None and estimate.high < 0


def _value(estimate: Estimate) -> float:
    return np.inf if estimate.value is None else estimate.value
