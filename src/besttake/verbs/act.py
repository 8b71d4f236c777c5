"""Act on a verdict: play what a run recommends on new starts, and see whether its promise holds (`besttake act`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from besttake import registry
from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.core.stats import Estimate
from besttake.errors import PlanError, RunError
from besttake.files import write_text
from besttake.measure.looks import Unit
from besttake.measure.promise import Promise, is_broken, promise_of, success_so_far
from besttake.policies.base import Policy
from besttake.progress import Reporter, as_reporter
from besttake.reporting.table import Table, Tabular, right
from besttake.reporting.writers import write_csv
from besttake.scorers.score_run import score_takes
from besttake.takes.key import Row, TakeKey
from besttake.takes.manifest import Manifest, check_same_identity
from besttake.takes.pool import WorkerPool
from besttake.takes.scores import ScoreName, Scores
from besttake.takes.sizes import worker_count
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import EnvSpec
from besttake.verbs.diagnose.diagnosis import drop_failed_takes
from besttake.verbs.diagnose.playing import Playing
from besttake.verbs.diagnose.setup import (
    Setup,
    context_of,
    grids_of,
    load_policy,
    manifest_of,
    open_envs,
    planned_starts,
    set_up,
)
from besttake.verbs.export import Wanted, export
from besttake.verbs.runs import Run

STARTS = 20
"""New starts per task unless told."""
ACTED = "act.json"
_AT_ONCE = 16
"""Starts that are played side by side; a start that needs another take waits for the others' takes."""
_FAMILIES = {"policy": "policies", "env": "envs", "demos": "demos", "encoder": "encoders", "scorer": "scorers"}


@dataclass(frozen=True)
class KeptTake:
    """The take that was kept of a start: its seed, its score, and how many takes it was the best of."""

    env: str
    task: str
    start: int
    seed: int
    success: bool
    score: float | None
    takes: int


@dataclass(frozen=True)
class ActResult(Tabular):
    """What came of a promise. ``success`` of the kept takes has bounds that hold whenever one looks.

    ``takes`` is the mean number per start. ``broken``: these bounds lie below the whole promised interval. ``failed``
    takes ended in an error; a start of which no other was finished is not among those that were kept.
    """

    run: str
    out: str
    promise: Promise
    kept: tuple[KeptTake, ...]
    success: Estimate
    takes: float
    broken: bool
    failed: int

    def _table(self) -> Table:
        rows = [(take.task, take.start, take.seed, take.takes, take.score, take.success) for take in self.kept]
        return Table("Kept takes", ("task", *right("start", "seed", "takes", "score"), "success"), rows)


def act(
    run: str | Path,
    out: str | Path | None = None,
    *,
    policy: str = "",
    option: str = "",
    starts: str | int | None = None,
    seen: bool = False,
    progress: bool | Reporter = False,
    command: str = "",
) -> ActResult:
    """Play what a run recommends on new starts, and compare what comes of it with what the run promised.

    Of each start, takes are played until one is accepted by its score, at most as many as the option says, and the
    best is kept. What was played is kept in ``out`` like the takes of a run; the same call goes on where it stopped.

    Args:
        run: A finished run.
        out: Directory for the takes (default: ``act`` in the run).
        policy: Name of the policy, where the run has several.
        option: Name of another option than the recommended one, as in the report: ``"cooled, best of 3"``.
        starts: Which starts, as in a plan (default: the next 20 of each task that the run has not seen).
        seen: Allow starts that the run has seen: its promise was chosen on them, so this is no check of it.
        progress: True shows a progress bar.
        command: The command line to record, if there was one.

    Raises:
        PlanError: The run has no such policy, option or starts.
        RunError: The run is not finished, or a component is another one than the run's.

    Examples:
        >>> besttake.act("runs/half").success     # doctest: +SKIP
    """
    source, reporter = Run.open(run), as_reporter(progress)
    promise = promise_of(source.result.cell_of(policy), option)
    with one_thread(), ExitStack() as closing:
        plan = _plan(source, promise, starts)
        envs = open_envs(plan)
        if starts is None:
            plan = plan.model_copy(update={"starts": _next_starts(plan, envs)})
        units = planned_starts(plan, envs)
        if not seen:
            _check_new(units, source)
        workers = closing.enter_context(WorkerPool(worker_count(plan.workers, 1), plan.patience))
        setup, loaded = _set_up(plan, envs, source, promise, workers, reporter)
        directory = Path(out) if out is not None else source.path / "act"
        store = closing.enter_context(Store.write(directory, manifest_of(setup, command)))
        drop_failed_takes(store, reporter)
        stage = closing.enter_context(reporter.stage(f"acting: {promise.option}", len(units), "starts"))
        uri, grids = plan.policy[0], grids_of(plan, envs, promise.policy, (promise.arm,), promise.n)
        play = Playing(grids, uri, loaded, setup, store, workers, Reporter(False), lambda row: None)
        kept = []
        for take in _kept(closing.enter_context(play), store, setup, promise, units):
            kept.append(take)
            stage.advance()
        failed = sum(row.status == "error" for row in store.rows())
        acted = _result(source, directory, promise, kept, failed)
        write_text(directory / ACTED, acted.to_json())
    return acted


def write_kept(
    acted: ActResult, *, lerobot: Path | None = None, films: Path | None = None, csv: Path | None = None
) -> list[Path]:
    """Write the kept takes as a LeRobot data set, as films or as a table, and return what was written."""
    option = acted.promise
    made = [write_csv(acted.table, csv)] if csv is not None else []
    if lerobot is not None or films is not None:
        keys = {TakeKey(option.policy, one.env, one.task, one.start, option.arm, one.seed) for one in acted.kept}
        made += export(acted.out, Wanted(lerobot=lerobot, films=films, keys=frozenset(keys)))
    return made


def _set_up(
    plan: Plan, envs: Mapping[str, EnvSpec], source: Run, promise: Promise, workers: WorkerPool, reporter: Reporter
) -> tuple[Setup, Policy]:
    """What the plan names, with the retrieval that the run used; RunError where something is not the run's."""
    setup, manifest = set_up(plan, envs, reporter, workers.map), Manifest.read(source.path)
    if config := manifest.identity.get(f"retrieval {promise.policy}"):
        setup = replace(setup, retrieval=RetrievalConfig.from_dict(config))
    loaded = load_policy(plan, plan.policy[0])
    new = manifest_of(setup, "").identity | {f"policy {promise.policy}": loaded.spec.fingerprint}
    for name in sorted(set(new) & set(manifest.identity)):
        if name.startswith(("policy ", "env ", "code of ", "library")):
            check_same_identity(source.path, name, manifest.identity[name], new[name])
    known = None if source.result.library is None else source.result.library.get("fingerprint")
    if setup.library is not None and known not in (None, setup.library.fingerprint):
        raise RunError(f"{source.path} was scored with other demonstrations than {setup.library.path} holds now")
    return setup, loaded


def _result(source: Run, directory: Path, promise: Promise, kept: Sequence[KeptTake], failed: int) -> ActResult:
    success = success_so_far([take.success for take in kept], promise.n)
    takes = sum(take.takes for take in kept) / len(kept) if kept else 0.0
    broken = is_broken(promise, success)
    return ActResult(str(source.path), str(directory), promise, tuple(kept), success, takes, broken, failed)


def _plan(source: Run, promise: Promise, starts: str | int | None) -> Plan:
    """The run's plan with this policy, this arm and other starts. What it names must be harmless or trusted."""
    given: Mapping[str, Any] = source.result.plan
    policy = dict(zip(given.get("name") or given["policy"], given["policy"], strict=True))[promise.policy]
    for key, family in _FAMILIES.items():
        values = policy if key == "policy" else given.get(key)
        for uri in values if isinstance(values, list) else [values]:
            if isinstance(uri, str):
                registry.check_harmless(family, registry.FromFile(uri, source.path / "result.json"))
    if given.get("trust_remote_code"):
        registry.check_trusted(source.path / "result.json", "trust_remote_code: true")
    changes = {
        "policy": [policy], "name": [promise.policy], "arms": [promise.arm],
        "scorer": _scorer_uri(given.get("scorer"), promise.scorer),
        "seeds": promise.n, "best_of": None, "until": None, "budget": None, "check_states": 0, "probe_states": 0,
        "window": promise.window, "replicas": 1, "on": "local", "starts": given["starts"] if starts is None else starts,
    }  # fmt: skip
    return Plan.model_validate({**given, **changes})


def _scorer_uri(named: Any, name: str) -> str:
    """The URI in the plan of the scorer called ``name``."""
    uris = [uri for uri in (named if isinstance(named, list) else [named]) if isinstance(uri, str)]
    return next((uri for uri in uris if registry.scorer(uri).spec.name == name), name)


def _next_starts(plan: Plan, envs: Mapping[str, EnvSpec]) -> str:
    """The first starts after those of the plan, as a range."""
    used = int(plan.starts.rpartition(":")[2]) if isinstance(plan.starts, str) else plan.starts
    most = min(len(plan.offered(env)) for env in envs.values())
    if used >= most:
        raise PlanError(f"`starts`: the run has seen all {most} starts of its env; `seen` uses them again")
    return f"{used}:{min(used + STARTS, most)}"


def _check_new(units: Sequence[Unit], source: Run) -> None:
    """PlanError where the run has takes from one of the starts: its option was chosen on them."""
    both = {(key.env, key.task, key.start) for key in source.takes} & set(units)
    if both:
        env, task, start = min(both)
        raise PlanError(
            f"`starts`: {source.path} has seen start {start} of {task} in {env}, so its promise cannot be checked"
            " there; take others, or give `seen`"
        )


def _kept(play: Playing, store: Store, setup: Setup, promise: Promise, units: Sequence[Unit]) -> Iterator[KeptTake]:
    """Play takes of each start until one is accepted, and keep the best; starts in their order, some side by side."""
    scorers = [each for each in setup.panel if each.spec.name == promise.scorer] if promise.n > 1 else []
    context = context_of(setup.envs.values())
    for first in range(0, len(units), _AT_ONCE):
        group = left = units[first : first + _AT_ONCE]
        best: dict[Unit, KeptTake] = {}
        for seed in range(promise.n):
            play([TakeKey(promise.policy, *unit, promise.arm, seed) for unit in left])
            scores = score_takes(store, setup.library, setup.encoder, scorers, context=context)
            rows = {row.key: row for row in store.rows() if row.status == "done"}
            best |= {unit: one for unit in left if (one := _best(rows, scores, promise, unit)) is not None}
            left = [unit for unit in left if unit not in best or not promise.accepts(best[unit].score)]
        yield from (best[unit] for unit in group if unit in best)


def _best(rows: Mapping[TakeKey, Row], scores: Scores, promise: Promise, unit: Unit) -> KeptTake | None:
    """The take of a start with the highest score, the lowest seed among equals; None where none was finished."""
    name, keys = ScoreName(promise.scorer, promise.window), []
    for seed in range(promise.n):
        if (key := TakeKey(promise.policy, *unit, promise.arm, seed)) in rows:
            keys.append(key)
    if not keys:
        return None
    given = {key: scores[key].scores.get(name, math.nan) if key in scores else math.nan for key in keys}
    key = max(keys, key=lambda each: -math.inf if math.isnan(given[each]) else given[each])
    score = None if math.isnan(given[key]) else given[key]
    return KeptTake(*unit, key.seed, bool(rows[key].success), score, len(keys))
