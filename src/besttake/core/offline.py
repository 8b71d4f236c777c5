"""Which retrieval configuration helps, if any: the check at held-out demonstration states, without a take.

At a state of a demonstration, with that demonstration left out of the search, what the demonstration did is known. A
sample's error has two parts. One differs from draw to draw, and much of it averages out over an episode; calmer noise
makes it smaller. The other is the error of the mean over draws, the *lasting* error: it comes back at every replan, and
content can only help by making it smaller. In rollouts content was above zero where the lasting error fell in every
dimension of the action, and below zero where it rose in one, whatever the error over all dimensions did
(docs/retrieval.md has the numbers). So a configuration passes where its lasting error is shown to be below that of its
control and no dimension is left in which it may have grown by more than `MARGIN`. Where the error of one sample, which
is what gets executed, is shown to have grown all the same, retrieval adds more spread than it takes lasting error away.

All errors are root mean squares over the executed steps, in units of the standard deviation of the task's actions, with
dimensions that are constant in a task left out. Intervals resample demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
REACH = 2 / 3
"""How far a chunk may move the mean sample, as a part of the policy's own spread, for a strength above the weakest."""


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
    sample with what would have to change to do as demonstrated. ``passes``: see this module. ``added``: error minus
    that of the control. ``reach``: how far the mean sample moves from the control's, as a part of the spread of base
    samples.
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
    added: Estimate = _NONE
    reach: float | None = None

    @property
    def sound(self) -> bool:
        """Whether it passes without the error of one sample being shown to have grown."""
        return self.passes and not (self.added.low is not None and self.added.low > 0)


@dataclass(frozen=True)
class Check:
    """What a check says of a policy, or the ``reason`` why it could not be made.

    ``cooled``: error by strength. ``cooling``: the strength with the lowest error. ``chosen``: None where nothing beats
    cooling.
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

    def reach(self, samples: NDArray[Any], control: NDArray[Any], base: NDArray[Any]) -> float | None:
        """How far the mean over draws moves from ``control`` to ``samples``, over the spread of ``base``."""
        scale = self._scale[:, None, None]
        moved = (np.asarray(samples, np.float64) - control) * scale
        draws = moved.shape[1]
        if draws < 2:
            return None
        mean = float((moved.mean(axis=1) ** 2 - moved.var(axis=1, ddof=1) / draws).mean())
        spread = float((np.asarray(base, np.float64) * scale).var(axis=1, ddof=1).mean())
        return float(np.sqrt(max(mean, 0.0) / spread)) if spread > 0 else None

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
    base: NDArray[Any],
) -> Checked:
    """What a configuration does: its samples, the chunks that it retrieved, and the samples of its control.

    ``calmest`` are the samples of cooling at its best strength, ``base`` those of the policy as it is. All are
    (M, K, steps, action_dim).
    """
    change, worst = compare.change(sampled, control), compare.worst(sampled, control)
    shown = change.high is not None and change.high < 0
    spared = worst.high is not None and worst.high <= MARGIN
    return Checked(
        config, compare.error(sampled), compare.lasting(sampled), compare.error(retrieved), change, worst,
        compare.difference(sampled, calmest), compare.cosine(sampled, control), shown and spared,
        compare.difference(sampled, control), compare.reach(sampled, control, base),
    )  # fmt: skip


def calmest_of(errors: Mapping[float, Estimate]) -> float | None:
    """The strength of cooling with the lowest error; the weakest of equals."""
    values = {strength: e.value for strength, e in sorted(errors.items()) if e.value is not None}
    return min(values, key=lambda strength: values[strength]) if values else None


def choose(tried: Sequence[Checked]) -> RetrievalConfig | None:
    """The configuration to run; None where nothing beats cooling.

    The paper's way in, `start`, comes first: the error at demonstrated states does not rank ways in against each other.
    Its weakest strength that is sound decides whether to retrieve and by which configuration; a stronger one of the
    same is taken where it passes too and reaches no further than `REACH`. Another way is taken only where no `start` is
    sound and the error is shown to be below that of cooling at its best strength, as weakly as it passes. Among
    configurations of the same way and strength the lowest lasting error wins, and the simplest of those within half a
    `MARGIN` of it, whether or not the simplest passes: many are tried, and one that is hardly better than the plain
    rule passes by luck.
    """
    own = [one for one in tried if one.sound and not any(_hides(plain, one) for plain in tried)]
    starts = [one for one in own if one.config.way == "start"]
    if starts:
        weak = _weakest(starts).config
        same = [one for one in tried if replace(one.config, alpha=weak.alpha) == weak and one.passes]
        near = [one.config.alpha for one in same if one.reach is not None and one.reach <= REACH]
        return replace(weak, alpha=max([weak.alpha, *near]))
    others = [one for one in own if one.config.way != "start" and _below(one.beyond)]
    if not others:
        return None
    lowest = min(others, key=lambda one: (_value(one.beyond), complexity(one.config)))
    return _weakest([one for one in others if one.config.way == lowest.config.way]).config


def _weakest(fit: Sequence[Checked]) -> Checked:
    """The best of the weakest strength."""
    alpha = min(one.config.alpha for one in fit)
    fit = [one for one in fit if one.config.alpha == alpha]
    best = min(_value(one.change) for one in fit)
    close = [one for one in fit if _value(one.change) <= best + MARGIN / 2]
    return min(close, key=lambda one: (complexity(one.config), _value(one.change)))


def _hides(plain: Checked, one: Checked) -> bool:
    """Whether ``plain`` is a simpler configuration of the same rule, way and strength that does about as well."""
    same = ("rule", "way", "alpha")
    if any(getattr(plain.config, name) != getattr(one.config, name) for name in same):
        return False
    simpler = complexity(plain.config) < complexity(one.config)
    return simpler and not plain.sound and _value(plain.change) <= _value(one.change) + MARGIN / 2


def complexity(config: RetrievalConfig) -> tuple[int, int]:
    """How far a configuration is from the plainest: variants switched on, then the rule (frame, current, next)."""
    plain = RetrievalConfig()
    names = ("weights", "onset_alignment", "whitening", "rerank", "gripper_gating", "reliability", "lead", "angle")
    return sum(getattr(config, name) != getattr(plain, name) for name in names), -RULES.index(config.rule)


def _root(squares: F64, count: F64) -> F64:
    return np.sqrt(np.maximum(squares / np.where(count > 0, count, np.nan), 0.0))


def _below(estimate: Estimate) -> bool:
    return estimate.high is not None and estimate.high < 0


def _value(estimate: Estimate) -> float:
    return np.inf if estimate.value is None else estimate.value
