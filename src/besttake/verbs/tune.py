"""Choosing retrieval by rollouts once, for all policies together, and freezing it into the library (S1).

The check at held-out demonstrations (`verbs/diagnose/check.py`) names the configurations worth rolling out; the env's
tuning starts decide among them (`besttake.verbs.rollouts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from besttake import registry
from besttake.conventions import check_compatible
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.library import Library, check_retrieval, check_tasks
from besttake.errors import PlanError
from besttake.progress import Reporter, as_reporter
from besttake.threads import one_thread
from besttake.verbs.diagnose.check import Asked
from besttake.verbs.diagnose.choice import checked
from besttake.verbs.diagnose.setup import spec_of
from besttake.verbs.rollouts import Bench, Tuned, judged, shortlist


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
    bench = Bench(library, models, env, spec, tuple(spec.tuning[:starts]), seeds, seed)
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
