"""Choose retrieval settings by rollouts on tuning starts, once for all policies, and store them in the library (S1).

The check at held-out demonstrations (`verbs/diagnose/check.py`) names the configurations worth rolling out, which are
played beside `base` and `cooled`. The highest success is taken; of equals the weakest and then the simplest. What is
not shown to be worse (paired by start) is marked as tied with it. A few starts seldom show a difference, and whoever
prefers the weakest of those that are tied loses more by it than by the luck of the leader (docs/zoo.md).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from besttake import registry
from besttake.arms.cooled import cooled_at
from besttake.arms.sampler import SmallActor, arm_sampler
from besttake.conventions import check_compatible
from besttake.core.offline import Check, complexity, lowest
from besttake.core.retrieve import RetrievalConfig
from besttake.core.stats import Estimate, difference_scale, mean_interval, unit_scale
from besttake.demos.library import Library, check_retrieval, check_tasks
from besttake.errors import PlanError
from besttake.policies.base import Policy
from besttake.progress import Reporter, as_reporter
from besttake.reporting.checks import named
from besttake.reporting.table import Entry, Head, Table, Tabular, in_percent, in_points, right
from besttake.takes.engine import play
from besttake.takes.jobs import Block, take_draw
from besttake.takes.manifest import Manifest
from besttake.takes.pool import WorkerPool
from besttake.takes.sizes import takes_per_worker
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import F64, EnvSpec
from besttake.verbs.diagnose.check import FIRST, Asked
from besttake.verbs.diagnose.choice import checked
from besttake.verbs.diagnose.setup import spec_of

_BATCH = 16
_MOST = 6


@dataclass(frozen=True)
class Trial:
    """An arm on the tuning starts: its ``success``, and paired by start its ``gain`` over base and its ``content``.

    ``content`` is against cooling at the same noise; `base` and `cooled` have none, nor a ``config``. ``tied``: it
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
        rows = []
        for one in self.trials:
            name = Entry(one.name, "best" if one.config == self.config else "")
            tied = "tied" if one.tied else ""
            rows.append((name, in_percent(one.success), in_points(one.content), tied, in_points(one.gain), one.takes))
        columns: Head = ["tried", *right("success", "beyond cooled"), "", *right("over base", "takes", extra=True)]
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
    """Choose the retrieval settings of a library by rollouts on tuning starts, and store them in the library.

    Held-out demonstrations decide which settings are worth a rollout; the tuning starts of the environment decide among
    those, for all policies together. Evaluation starts are never used.

    Args:
        library: The library, or its directory.
        policies: URIs of the policies.
        env: URI of the environment.
        starts: Number of tuning starts per task.
        seeds: Takes per start.
        workers: Number of simulator processes.
        seed: Seed of the rollouts; the same seed gives the same takes.
        progress: True shows a progress bar.

    Returns:
        The chosen ``config``, and in ``trials`` everything that was rolled out, highest success first.

    Raises:
        PlanError: The environment has too few tuning starts, or no settings suit all policies.
    """
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
    rollouts = Rollouts(library, models, env, spec, tuple(spec.tuning[:starts]), seeds, seed)
    with one_thread():
        checks = [checked(model, library, spec.tasks, Asked(seed=seed), reporter) for model in models.values()]
        configs = shortlist(checks)
        if not configs:
            raise PlanError(
                f"{library.path} cannot be tuned: {checks[0].reason or 'no configuration suits all policies'}"
            )
        tuned = judged(rollouts.outcomes(configs, workers, reporter), configs, seeds)
    trials = [{**asdict(t), "config": None if t.config is None else t.config.to_dict()} for t in tuned.trials]
    library.with_retrieval(
        tuned.config,
        {"env": env, "starts": list(rollouts.starts), "seeds": seeds, "policies": list(policies), "trials": trials},
    )
    return tuned


def shortlist(checks: Sequence[Check]) -> list[RetrievalConfig]:
    """The configurations worth rolling out, of those that the check tried for every policy.

    What was chosen for a policy, at every prior; each rule as it is; and then the lowest errors on average.
    """
    tried = [{one.config: one for one in check.tried} for check in checks]
    common = [config for config in tried[0] if all(config in each for each in tried)] if tried else []
    chosen = [check.chosen for check in checks if check.chosen is not None and check.chosen in common]
    others = [c for own in chosen for c in common if replace(c, prior=own.prior) == own]
    plain = [config for config in common if config.prior == FIRST and not complexity(config)[0]]

    def added(config: RetrievalConfig) -> float:
        return float(np.mean([lowest(each[config].added) for each in tried]))

    ranked = [*chosen, *others, *plain, *sorted(common, key=added)]
    return list(dict.fromkeys(ranked))[:_MOST]


def judged(outcomes: Mapping[str, F64], configs: Sequence[RetrievalConfig], seeds: int) -> Tuned:
    """The trials of ``outcomes``, the success (S,) of each arm at each start, and the winner among ``configs``."""
    base = outcomes["base"]

    def paired(one: F64, other: F64 | None) -> Estimate:
        if other is None:
            return Estimate(reason="no control")
        return mean_interval(one - other, difference_scale(seeds))

    arms = {arm_of(config): config for config in configs}
    leader = min(
        arms, key=lambda uri: (-float(np.nanmean(outcomes[uri])), arms[uri].prior, complexity(arms[uri]))
    )  # fmt: skip
    trials = []
    for uri, values in outcomes.items():
        config = arms.get(uri)
        content = Estimate() if config is None else paired(values, outcomes.get(cooled_at(config.noise)))
        behind = paired(values, outcomes[leader])
        tied = config is not None and (uri == leader or behind.high is None or behind.high >= 0)
        name = uri.replace("?noise=", ", noise ") if config is None else named(config)
        success, gain = mean_interval(values, unit_scale()), paired(values, base)
        trials.append(Trial(name, config, success, gain, content, seeds * len(values), tied))
    return Tuned(arms[leader], tuple(sorted(trials, key=lambda trial: -(trial.success.value or 0.0))))


def arm_of(config: RetrievalConfig) -> str:
    """The arm that runs ``config`` whatever the plan says, as a URI."""
    values = config.to_dict()
    return "retrieve?" + "&".join(f"{name}={json.dumps(value)}".replace('"', "") for name, value in values.items())


@dataclass
class Rollouts:
    """Plays arms of several policies on the same starts; ``run_seed`` decides the noise."""

    library: Library
    models: dict[str, Policy]
    env_uri: str
    env: EnvSpec
    starts: tuple[int, ...]
    seeds: int
    run_seed: int

    def outcomes(self, configs: Sequence[RetrievalConfig], workers: int, reporter: Reporter) -> dict[str, F64]:
        """Success of `base`, `cooled` and each configuration at every start, each policy counting alike."""
        controls = (cooled_at(noise) for noise in sorted({config.noise for config in configs}))
        arms = ("base", *controls, *map(arm_of, configs))
        total = len(arms) * len(self.models) * len(self.env.tasks) * len(self.starts) * self.seeds
        with closing(WorkerPool(workers)) as pool, reporter.stage("tuning", total, "takes") as stage:
            parts = [self.success(uri, arms, pool, stage.advance) for uri in self.models]
        return {arm: np.mean([part[arm] for part in parts], axis=0) for arm in arms}

    def success(self, uri: str, arms: tuple[str, ...], pool: WorkerPool, done: Callable[[], None]) -> dict[str, F64]:
        """By arm: success at every start (S,) of all tasks, one after the other, the mean over seeds."""
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
            slots = takes_per_worker(_BATCH, pool.size, 0, self.env.at_once, acting=small)
            play(jobs, sampler, draw, store, pool, slots=slots, on_take=lambda _: done())
            rows = [row for row in store.rows() if row.status == "done"]
        success: dict[tuple[str, str, int], list[bool]] = {}
        for row in rows:
            success.setdefault((row.key.arm, row.key.task, row.key.start), []).append(bool(row.success))
        return {
            arm: np.array([np.mean(success.get((arm, *unit), [np.nan])) for unit in units], np.float64) for arm in arms
        }
