"""Choosing retrieval by rollouts: once, for all policies together, on starts that are kept apart for it (S1).

The check at held-out demonstrations (`besttake.verbs.check`) names the configurations worth rolling out. They are
played on the env's tuning starts beside `base` and `cooled`, all with the same noise. The highest success leads;
whatever is not shown to be worse than the leader (paired by start) is tied with it, and among those the weakest and
then the simplest is taken. The winner is frozen into the library.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake import registry
from besttake.arms.sampler import SmallActor, arm_sampler
from besttake.compatibility import check_compatible
from besttake.core.estimate import Estimate
from besttake.core.offline import Check, Checked, complexity
from besttake.core.retrieve import RetrievalConfig
from besttake.core.stats import difference_scale, mean_interval, unit_scale
from besttake.demos.checks import check_retrieval, check_tasks
from besttake.demos.library import Library
from besttake.errors import PlanError
from besttake.policies.base import Policy
from besttake.progress import Reporter, as_reporter
from besttake.reporting.checks import named
from besttake.reporting.notebook import Table, Tabular
from besttake.takes.jobs import Block, take_draw
from besttake.takes.manifest import Manifest
from besttake.takes.pool import LocalPool
from besttake.takes.runner import play
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import EnvSpec
from besttake.verbs.check import COOLING, Asked
from besttake.verbs.choice import checked
from besttake.verbs.setup import spec_of

_BATCH = 16
_MOST = 6

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """An arm on the tuning starts: its ``success``, and paired by start its ``gain`` over base and its ``content``.

    ``content`` is against cooling of the same strength; `base` and `cooled` have none, nor a ``config``. ``tied``: it
    is not shown to be worse than the leader among the configurations.
    """

    name: str
    config: RetrievalConfig | None
    success: Estimate
    gain: Estimate
    content: Estimate
    takes: int
    tied: bool = False


@dataclass(frozen=True)
class Tuned(Tabular):
    """The chosen configuration, and everything that was rolled out, the highest success first."""

    config: RetrievalConfig
    trials: tuple[Trial, ...]

    @property
    def winner(self) -> Trial:
        """The trial of the chosen configuration."""
        return next(trial for trial in self.trials if trial.config == self.config)

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self), indent=1)

    def _table(self) -> Table:
        rows = [(t.name, t.success.value, t.gain.value, t.content.value, t.takes) for t in self.trials]
        columns = ("tried", "success", "gain over base", "beyond cooled", "takes")
        return Table(f"Chosen: {self.winner.name}", columns, rows)


def tune(
    library: Library | str | Path,
    policies: Sequence[str],
    env: str,
    *,
    starts: int = 10,
    seeds: int = 1,
    workers: int = 2,
    seed: int = 0,
    progress: bool | Reporter = False,
) -> Tuned:
    """Choose rule, variant, way in and alpha, and freeze them into ``library``. Evaluation starts are never touched."""
    library = library if isinstance(library, Library) else Library.open(library)
    spec, reporter = spec_of(env), as_reporter(progress)
    if not 1 <= starts <= len(spec.tuning):
        kept = f"keeps {len(spec.tuning)} starts per task apart for tuning" if len(spec.tuning) else "keeps none apart"
        raise PlanError(f"`starts` {starts}: {env} {kept}, and tuning never uses starts that are evaluated on")
    check_retrieval(library, spec, RetrievalConfig(rule="frame"))
    check_tasks(library, spec.tasks, least=2)
    models = {uri: registry.policy(uri) for uri in policies}
    for model in models.values():
        check_compatible(model.spec, spec)
    bench = _Bench(library, models, env, spec, tuple(spec.tuning[:starts]), seeds, seed)
    with one_thread():
        checks = [checked(model, library, spec.tasks, Asked(seed=seed), reporter) for model in models.values()]
        configs = shortlist(checks)
        if not configs:
            raise PlanError(
                f"{library.path} cannot be tuned: {checks[0].reason or 'no configuration suits all policies'}"
            )
        tuned = judged(bench.outcomes(configs, workers, reporter), configs, seeds)
    trials = [{**asdict(t), "config": None if t.config is None else t.config.to_dict()} for t in tuned.trials]
    library.with_retrieval(
        tuned.config,
        {"env": env, "starts": list(bench.starts), "seeds": seeds, "policies": list(policies), "trials": trials},
    )
    return tuned


def shortlist(checks: Sequence[Check], most: int = _MOST) -> list[RetrievalConfig]:
    """The configurations worth rolling out, of those that the check tried for every policy.

    Each rule as it is, what was chosen for a policy, and then the lowest lasting errors on average.
    """
    tried = [{one.config: one for one in check.tried} for check in checks]
    common = [config for config in tried[0] if all(config in each for each in tried)] if tried else []
    chosen = [check.chosen for check in checks if check.chosen in common]
    plain = [config for config in common if config.way == "start" and not complexity(config)[0]]

    def change(config: RetrievalConfig) -> float:
        return float(np.mean([_change(each[config]) for each in tried]))

    ranked = [*plain[:3], *(config for config in chosen if config is not None), *sorted(common, key=change)]
    return list(dict.fromkeys(ranked))[:most]


def judged(outcomes: Mapping[str, Values], configs: Sequence[RetrievalConfig], seeds: int) -> Tuned:
    """The trials of ``outcomes``, the success (S,) of each arm at each start, and the winner among ``configs``."""
    base = outcomes["base"]

    def paired(one: Values, other: Values | None) -> Estimate:
        if other is None:
            return Estimate(reason="no control")
        return mean_interval(one - other, difference_scale(seeds))

    arms = {arm_of(config): config for config in configs}
    leader = max(arms, key=lambda uri: float(np.nanmean(outcomes[uri])))
    trials = []
    for uri, values in outcomes.items():
        config = arms.get(uri)
        content = Estimate() if config is None else paired(values, outcomes.get(f"cooled?alpha={config.alpha:g}"))
        behind = paired(values, outcomes[leader])
        tied = config is not None and (uri == leader or behind.high is None or behind.high >= 0)
        name = uri.replace("?alpha=", " ") if config is None else named(config)
        success, gain = mean_interval(values, unit_scale()), paired(values, base)
        trials.append(Trial(name, config, success, gain, content, seeds * len(values), tied))
    close = [trial.config for trial in trials if trial.tied and trial.config is not None]
    winner = min(close, key=lambda config: (config.alpha, complexity(config)))
    return Tuned(winner, tuple(sorted(trials, key=lambda trial: -(trial.success.value or 0.0))))


def arm_of(config: RetrievalConfig) -> str:
    """The arm that runs ``config`` whatever the plan says, as a URI."""
    values = {**config.to_dict(), "cooling": config.cooled_by}
    return "retrieve?" + "&".join(f"{name}={json.dumps(value)}".replace('"', "") for name, value in values.items())


def _change(one: Checked) -> float:
    return np.inf if one.change.value is None else one.change.value


@dataclass
class _Bench:
    """Everything that the rollouts need."""

    library: Library
    models: dict[str, Policy]
    env_uri: str
    env: EnvSpec
    starts: tuple[int, ...]
    seeds: int
    run_seed: int

    def outcomes(self, configs: Sequence[RetrievalConfig], workers: int, reporter: Reporter) -> dict[str, Values]:
        """Success of `base`, `cooled` and each configuration at every start, each policy counting alike."""
        strengths = sorted({*COOLING[:3], *(config.alpha for config in configs)})
        arms = ("base", *(f"cooled?alpha={alpha:g}" for alpha in strengths), *map(arm_of, configs))
        total = len(arms) * len(self.models) * len(self.env.tasks) * len(self.starts) * self.seeds
        with closing(LocalPool(workers)) as pool, reporter.stage("tuning", total, "takes") as stage:
            parts = [self._play(uri, arms, pool, stage.advance) for uri in self.models]
        return {arm: np.mean([part[arm] for part in parts], axis=0) for arm in arms}

    def _play(self, uri: str, arms: tuple[str, ...], pool: LocalPool, done: Any) -> dict[str, Values]:
        model, config = self.models[uri], RetrievalConfig()
        units = [(task.name, start) for task in self.env.tasks for start in self.starts]
        with tempfile.TemporaryDirectory() as scratch, Store.write(scratch, Manifest()) as store:
            encoder = self.library.encoder()
            sampler = arm_sampler(model, self.env.world, config, self.library, encoder)
            block = Block(uri, self.env_uri, self.env.tasks, self.starts, arms, self.seeds)
            small = model.spec.small and encoder.spec.cheap
            actor = SmallActor(uri, config, str(self.library.path)) if small else None
            jobs = block.jobs(model.spec, self.env, stride=None, goes_on=False, actor=actor)
            draw = partial(take_draw, self.run_seed)
            play(
                jobs, sampler, draw, store, pool, batch=_BATCH, at_once=self.env.at_once, on_take=lambda _: done(),
            )  # fmt: skip
            rows = [row for row in store.rows() if row.status == "done"]
        success: dict[tuple[str, str, int], list[bool]] = {}
        for row in rows:
            success.setdefault((row.key.arm, row.key.task, row.key.start), []).append(bool(row.success))
        return {
            arm: np.array([np.mean(success.get((arm, *unit), [np.nan])) for unit in units], np.float64) for arm in arms
        }
