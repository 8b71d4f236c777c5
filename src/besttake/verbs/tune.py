"""Choosing the retrieval configuration: once, for all policies together, on starts and demonstrations kept apart (S1).

Two criteria, in this order. Offline, on held-out demonstrations: at each of their events, how far is the chunk that
would be retrieved from the others from the one the demonstration itself has there? This screens the variants. Then
rollouts on the env's tuning starts, with the same noise for every configuration: the success of the arm `retrieve`,
averaged over policies, decides, and the offline error breaks ties. The winner is frozen into the library.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from besttake import registry
from besttake.arms.sampler import arm_sampler
from besttake.compatibility import check_compatible
from besttake.core.retrieve import RetrievalConfig, Retriever, targets
from besttake.demos.checks import check_retrieval, check_tasks
from besttake.demos.library import Library
from besttake.errors import PlanError
from besttake.policies.base import Policy
from besttake.progress import Reporter, as_reporter
from besttake.reporting.notebook import Table, Tabular
from besttake.takes.jobs import Block, take_draw
from besttake.takes.manifest import Manifest
from besttake.takes.pool import LocalPool
from besttake.takes.runner import play
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import EnvSpec
from besttake.verbs.setup import spec_of

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "onset alignment": {"onset_alignment": True},
    "whitening": {"whitening": True},
    "re-ranking": {"rerank": 10},
    "gripper gating": {"gripper_gating": True},
    "reliability": {"reliability": 1.0},
    "lead 2": {"lead": 2},
}
RULES = ("next", "current", "frame")
ALPHAS = (0.15, 0.3, 0.5)
_HELD_OUT = 4
_BATCH = 16
_ALWAYS = ("plain", "onset alignment", "reliability")
"""Rolled out whatever the offline error says: it is blind to the onset, and circular for reliability."""


@dataclass(frozen=True)
class Trial:
    """A configuration that was tried: its error on held-out demonstrations and its success on the tuning starts."""

    name: str
    config: RetrievalConfig
    offline: float
    success: float
    takes: int


@dataclass(frozen=True)
class Tuned(Tabular):
    """The chosen configuration, and everything that was tried, best first."""

    config: RetrievalConfig
    trials: tuple[Trial, ...]

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self), indent=1)

    def _table(self) -> Table:
        rows = [(t.name, t.success, t.offline, t.takes) for t in self.trials]
        return Table(f"Chosen: {self.trials[0].name}", ("tried", "success", "error on held-out demos", "takes"), rows)


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
    """Choose rule, variant and alpha, and freeze them into ``library``. Evaluation starts are never touched."""
    library = library if isinstance(library, Library) else Library.open(library)
    spec = spec_of(env)
    if not 1 <= starts <= len(spec.tuning):
        kept = f"keeps {len(spec.tuning)} starts per task apart for tuning" if len(spec.tuning) else "keeps none apart"
        raise PlanError(f"`starts` {starts}: {env} {kept}, and tuning never uses starts that are evaluated on")
    check_retrieval(library, spec)
    check_tasks(library, spec.tasks, least=2)
    models = {uri: registry.policy(uri) for uri in policies}
    for model in models.values():
        check_compatible(model.spec, spec)
        if not model.spec.warm_start:
            raise PlanError(f"{model.spec.name} cannot be warm-started, so retrieval cannot be tuned for it")
    bench = _Bench(library, models, env, spec, tuple(spec.tuning[:starts]), seeds, seed)
    with one_thread():
        tuned = _search(bench, workers, as_reporter(progress))
    library.with_retrieval(
        tuned.config,
        {
            "env": env, "starts": list(bench.starts), "seeds": seeds, "policies": list(policies),
            "held_out_demos": [library.demos[d].id for d in held_out(library)],
            "trials": [{**asdict(t), "config": t.config.to_dict()} for t in tuned.trials],
        },
    )  # fmt: skip
    return tuned


def held_out(library: Library) -> list[int]:
    """Every fourth demonstration of each task: what the offline criterion asks about."""
    return [
        d for task in library.tasks for d in [i for i, x in enumerate(library.demos) if x.task == task][::_HELD_OUT]
    ]


def offline_error(library: Library, config: RetrievalConfig, horizon: int) -> float:
    """Mean L2 distance of the retrieved chunk and the held-out demonstration's own, in units of action spread.

    A held-out demonstration is never matched with itself. The query's chunk is what the demonstration does there, in
    place of the policy's prediction. By the rules `current` and `frame` that is also the answer: `reliability`, which
    asks for agreement with it, would win unseen, so it is not screened by this error but always rolled out.
    """
    apart = set(held_out(library))
    errors = []
    for task in library.tasks:
        view = library.view(task)
        candidates = view.candidates(config, horizon)
        if len(np.unique(candidates.demo)) < 2:
            continue
        retriever, target = Retriever(candidates, config), targets(candidates.demo, candidates.step, config)
        scale = np.where(view.action_spread > 0, view.action_spread, 1.0)
        for row in [r for r in range(len(candidates.demo)) if int(candidates.demo[r]) in apart]:
            match = retriever.query(
                candidates.embeddings[row][None], candidates.chunks[row][None],
                None if candidates.states is None else candidates.states[row][None],
                phases=None if candidates.open is None else [bool(candidates.open[row])],
                exclude=[int(candidates.demo[row])],
            )[0]  # fmt: skip
            errors.append(float(np.linalg.norm((match.chunk - candidates.chunks[target[row]]) / scale)))
    return float(np.mean(errors)) if errors else float("nan")


@dataclass
class _Bench:
    """Everything a trial needs."""

    library: Library
    models: dict[str, Policy]
    env_uri: str
    env: EnvSpec
    starts: tuple[int, ...]
    seeds: int
    run_seed: int

    @property
    def takes(self) -> int:
        return len(self.models) * len(self.env.tasks) * len(self.starts) * self.seeds

    def offline(self, config: RetrievalConfig) -> float:
        horizon = max(model.spec.horizon for model in self.models.values())
        return offline_error(self.library, config, horizon)

    def success(self, config: RetrievalConfig, pool: LocalPool) -> float:
        """Success of the arm `retrieve` on the tuning starts, each policy counting alike."""
        rates = []
        for uri, model in self.models.items():
            with tempfile.TemporaryDirectory() as scratch, Store.write(scratch, Manifest()) as store:
                sampler = arm_sampler(model, self.env.world, config, self.library, self.library.encoder())
                block = Block(uri, self.env_uri, self.env.tasks, self.starts, ("retrieve",), self.seeds)
                jobs = block.jobs(model.spec, self.env, stride=None, goes_on=False)
                draw = partial(take_draw, self.run_seed)
                play(jobs, sampler, draw, store, pool, batch=_BATCH, at_once=self.env.at_once)
                done = [row for row in store.rows() if row.status == "done"]
            rates.append(float(np.mean([bool(row.success) for row in done])) if done else 0.0)
        return float(np.mean(rates))


def _search(bench: _Bench, workers: int, reporter: Reporter) -> Tuned:
    """Rule and variant first, at alpha = 0.3; then alpha for the best of them."""
    trials: dict[RetrievalConfig, Trial] = {}
    screened = []
    for rule in RULES:
        offline = {name: bench.offline(RetrievalConfig(rule=rule, **options)) for name, options in VARIANTS.items()}  # type: ignore[arg-type]
        best = min((n for n in offline if n not in _ALWAYS), key=lambda n: (offline[n], n))
        screened += [(rule, name) for name in (best, *_ALWAYS)]
    total, takes = (len(screened) + len(ALPHAS) - 1) * bench.takes, bench.takes
    with closing(LocalPool(workers)) as pool, reporter.stage("tuning", total, "takes") as stage:

        def attempt(name: str, config: RetrievalConfig) -> None:
            if config not in trials:
                trials[config] = Trial(name, config, bench.offline(config), bench.success(config, pool), takes)
                stage.advance(takes)

        for rule, name in screened:
            attempt(f"{rule}, {name}", RetrievalConfig(rule=rule, **VARIANTS[name]))  # type: ignore[arg-type]
        leader = min(trials.values(), key=_rank)
        for alpha in ALPHAS:
            attempt(f"{leader.name}, alpha {alpha}", replace(leader.config, alpha=alpha))
    ranked = sorted(trials.values(), key=_rank)
    return Tuned(ranked[0].config, tuple(ranked))


def _rank(trial: Trial) -> tuple[float, float, str]:
    return -trial.success, trial.offline if np.isfinite(trial.offline) else np.inf, trial.name
