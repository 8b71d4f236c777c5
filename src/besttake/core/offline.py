"""The check: how much noise, and which retrieval if any, judged at held-out demonstration states without a take.

At a state of a demonstration, what the demonstration did next is known; the search leaves that demonstration out. The
check first chooses the noise at which one sample is closest to what was done, then compares retrieval with cooling at
that same noise: ``added`` is the error of one sample minus that of the control. A configuration helps if the error is
shown to fall by `GAIN` or more, and the chunk moves the sample no further than `REACH` (docs/retrieval.md has the
evidence).

Errors are root mean squares over the executed steps, in units of the standard deviation of the task's actions; action
dimensions that are constant in a task are left out. Intervals resample demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.arithmetic import F64, I64, Bools
from besttake.core.retrieve import RULES, RetrievalConfig
from besttake.core.stats import Estimate, cluster_bootstrap, resample_counts

_NONE = Estimate()
GAIN = 0.02
"""By how much the error of one sample must fall for retrieval to be worth running, in action standard deviations."""
CLOSE = GAIN / 2
"""Of configurations whose errors are this close to the lowest, the simplest and then the weakest is chosen."""
RERANK = 10
"""How many candidates are compared in full by default: better than comparing all of them, and faster."""
REACH = 1 / 2
"""How far a chunk may move the mean sample, as a fraction of the policy's own spread."""


@dataclass(frozen=True)
class States:
    """The M states of a check: what was ``demonstrated`` there (M, steps, action_dim).

    ``demo`` (M,) is the demonstration of each state. ``mean`` and ``spread`` (M, action_dim) are those of all actions
    of the state's task.
    """

    demonstrated: NDArray[Any]
    demo: I64
    mean: NDArray[Any]
    spread: NDArray[Any]

    def at(self, rows: Bools) -> States:
        """The states selected by ``rows`` (M,)."""
        return States(self.demonstrated[rows], self.demo[rows], self.mean[rows], self.spread[rows])


@dataclass(frozen=True)
class ConfigCheck:
    """How one configuration did at the states of a check.

    ``error``: the error of one sample. ``added``: that minus the error of the control, which has the same noise.
    ``chunk``: the error of the retrieved chunk itself. ``reach``: how far the mean sample moves from the control's, as
    a fraction of the spread of base samples.
    """

    config: RetrievalConfig
    error: Estimate
    added: Estimate
    chunk: Estimate
    reach: float | None = None

    @property
    def helps(self) -> bool:
        """Whether the error is shown to fall, by `GAIN` or more, without moving the sample too far."""
        shown = self.added.high is not None and self.added.high < 0
        return shown and value_or_inf(self.added) <= -GAIN and (self.reach or 0.0) <= REACH


@dataclass(frozen=True)
class GroupCheck:
    """What a check says about one task group: its ``prior``, 0 where none helps, and the error that it adds.

    ``added`` is the error added by the prior or, if that is 0, by the prior that would have been chosen.
    """

    states: int
    prior: float
    added: Estimate


@dataclass(frozen=True)
class RetrievalCheck:
    """What a check says about a policy, or the ``reason`` why it could not be made.

    ``cooled``: the error of one sample by noise. ``noise``: the noise with the lowest error, at which all
    configurations were ``tried``. ``chosen``: the configuration to run, None where no prior helps over all tasks
    together. ``groups``: the task groups that have their own prior, if there are several.
    """

    states: int = 0
    draws: int = 0
    base: Estimate = _NONE
    mean_action: Estimate = _NONE
    cooled: Mapping[float, Estimate] = field(default_factory=dict)
    noise: float | None = None
    tried: tuple[ConfigCheck, ...] = ()
    chosen: RetrievalConfig | None = None
    groups: Mapping[str, GroupCheck] = field(default_factory=dict)
    reason: str = ""

    @property
    def best(self) -> ConfigCheck | None:
        """How the chosen configuration did."""
        return next((checked for checked in self.tried if checked.config == self.chosen), None)

    @property
    def helps(self) -> bool:
        """Whether retrieval helps anywhere."""
        return self.chosen is not None or any(group.prior for group in self.groups.values())


class Comparison:
    """Compares samples that were drawn at the same states from the same draws."""

    def __init__(self, states: States, seed: int = 0) -> None:
        self._states = states
        spread = np.asarray(states.spread, np.float64)
        self._keep = spread > 1e-3 * np.maximum(spread.max(axis=1, keepdims=True), 1e-9)
        self._scale = np.where(self._keep, 1 / np.where(self._keep, spread, 1.0), 0.0)
        self._truth = np.asarray(states.demonstrated, np.float64)
        self._demo = np.unique(states.demo, return_inverse=True)[1]
        self._counts = list(resample_counts(int(self._demo.max(initial=0)) + 1, seed))

    def error(self, samples: NDArray[Any]) -> Estimate:
        """The error of one sample, over ``samples`` (M, K, steps, action_dim)."""
        return self._over([self._squares(samples), self._keep.sum(axis=1)], _root)

    def difference(self, samples: NDArray[Any], control: NDArray[Any]) -> Estimate:
        """The error of ``samples`` minus that of ``control``."""
        columns = [self._squares(samples), self._squares(control), self._keep.sum(axis=1)]
        return self._over(columns, lambda own, other, count: _root(own, count) - _root(other, count))

    def mean_action(self) -> Estimate:
        """The error of the task's mean action."""
        return self.error(
            np.broadcast_to(self._states.mean[:, None, None], (len(self._truth), 1, *self._truth.shape[1:]))
        )

    def reach(self, samples: NDArray[Any], control: NDArray[Any], base: NDArray[Any]) -> float | None:
        """How far the mean over draws moves from ``control`` to ``samples``, divided by the spread of ``base``."""
        scale = self._scale[:, None, None]
        moved = (np.asarray(samples, np.float64) - control) * scale
        draws = moved.shape[1]
        if draws < 2:
            return None
        mean = float((moved.mean(axis=1) ** 2 - moved.var(axis=1, ddof=1) / draws).mean())
        spread = float((np.asarray(base, np.float64) * scale).var(axis=1, ddof=1).mean())
        return float(np.sqrt(max(mean, 0.0) / spread)) if spread > 0 else None

    def _squares(self, samples: NDArray[Any]) -> F64:
        """The squared error at each state (M,): the mean over draws and steps, summed over action dimensions."""
        gaps = (np.asarray(samples, np.float64) - self._truth[:, None]) * self._scale[:, None, None]
        squares: F64 = (gaps**2).mean(axis=(1, 2)).sum(axis=1)
        return squares

    def _over(self, columns: Sequence[NDArray[Any]], statistic: Callable[..., F64]) -> Estimate:
        """A statistic of the sums of ``columns``, each (M,), with its interval over demonstrations."""
        sums = np.zeros((int(self._demo.max(initial=-1)) + 1, len(columns)))
        np.add.at(sums, self._demo, np.stack(columns, axis=1))
        return cluster_bootstrap(sums, lambda s: statistic(*np.moveaxis(s, -1, 0))[..., None], self._counts)[0]


def judge(
    compare: Comparison,
    config: RetrievalConfig,
    sampled: NDArray[Any],
    retrieved: NDArray[Any],
    control: NDArray[Any],
    base: NDArray[Any],
) -> ConfigCheck:
    """Judge a configuration by its samples and the chunks that it ``retrieved``, beside the samples of its control.

    ``base`` are the samples of the policy as it is. All are (M, K, steps, action_dim).
    """
    return ConfigCheck(
        config, compare.error(sampled), compare.difference(sampled, control), compare.error(retrieved),
        compare.reach(sampled, control, base),
    )  # fmt: skip


def best_noise(errors: Mapping[float, Estimate]) -> float | None:
    """The noise with the lowest error; in a tie the highest one."""
    values = {noise: e.value for noise, e in sorted(errors.items(), reverse=True) if e.value is not None}
    return min(values, key=lambda noise: values[noise]) if values else None


def simplest(tried: Sequence[ConfigCheck]) -> ConfigCheck:
    """The simplest configuration whose ``added`` error is within `CLOSE` of the lowest, with the smallest prior."""
    least = min(value_or_inf(each.added) for each in tried)
    close = [each for each in tried if value_or_inf(each.added) <= least + CLOSE] or list(tried)
    return min(close, key=lambda each: (complexity(each.config), each.config.prior, value_or_inf(each.added)))


def choose_config(tried: Sequence[ConfigCheck]) -> RetrievalConfig | None:
    """The configuration to run; None where none helps."""
    helping = [each for each in tried if each.helps]
    return simplest(helping).config if helping else None


def of_group(tried: Sequence[ConfigCheck], chosen: RetrievalConfig | None, states: int) -> GroupCheck:
    """The prior of one task group, from one configuration ``tried`` at its states with several priors.

    A prior that helps in the group is chosen. Otherwise the group has the prior ``chosen`` over all groups, unless the
    group rules out that it gains `GAIN`.
    """
    best = choose_config(tried)
    match = next((each for each in tried if each.config == (best or chosen)), None)
    if match is None:
        return GroupCheck(states, 0.0, simplest(tried).added)
    ruled_out = best is None and (match.added.low is None or match.added.low > -GAIN)
    return GroupCheck(states, 0.0 if ruled_out else match.config.prior, match.added)


def complexity(config: RetrievalConfig) -> tuple[int, int]:
    """How complex a configuration is: how many settings differ from the plain search, then its rule (frame first)."""
    plain = RetrievalConfig(rerank=RERANK)
    names = ("weights", "onset_alignment", "rerank", "gripper_gating", "reliability", "lead", "angle")
    return sum(getattr(config, name) != getattr(plain, name) for name in names), -RULES.index(config.rule)


def value_or_inf(estimate: Estimate) -> float:
    """The value of an estimate, or infinity where there is none."""
    return np.inf if estimate.value is None else estimate.value


def _root(squares: F64, count: F64) -> F64:
    return np.sqrt(np.maximum(squares / np.where(count > 0, count, np.nan), 0.0))
