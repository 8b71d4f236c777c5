"""Play what a run recommends on new starts, and check whether the run's promise holds (`besttake act`)."""

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
from besttake.verbs.diagnose.playing import TakePlayer
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
from besttake.verbs.export import ExportOptions, export
from besttake.verbs.runs import Run

STARTS = 20
"""The default number of new starts per task."""
_RESULT = "act.json"
_AT_ONCE = 16
"""Starts that are played side by side; a start that needs another take waits for the others' takes."""
_FAMILIES = {"policy": "policies", "env": "envs", "demos": "demos", "encoder": "encoders", "scorer": "scorers"}


@dataclass(frozen=True)
class KeptTake:
    """The take that was kept for a start: its seed, its score, and the number of takes it was chosen from."""

    env: str
    task: str
    start: int
    seed: int
    success: bool
    score: float | None
    takes: int


@dataclass(frozen=True)
class ActResult(Tabular):
    """The takes that `act` kept, and whether their success keeps the run's promise.

    ``success`` is the success rate of the kept takes, with bounds that hold however often you look, and ``broken``
    says whether these lie below the whole promised interval. ``takes`` is the mean number of takes per start.
    ``failed`` takes ended in an error; no take is kept for a start whose takes all failed.
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
    """Play what a run recommends on new starts, and compare the success with what the run promised.

    At each start, takes are played until the score of one is high enough, at most as many as the option says, and the
    best is kept. All takes are stored in ``out`` like those of a run; the same call continues where it stopped.

    Args:
        run: A finished run.
        out: Directory for the takes (default: ``act`` in the run).
        policy: Name of the policy, if the run has several.
        option: Name of another option than the recommended one, as in the report: ``"cooled, best of 3"``.
        starts: Which starts, as in a plan (default: the next 20 of each task that the run has not seen).
        seen: Allow starts that the run has seen. This does not check the promise, which was made from these starts.
        progress: True shows a progress bar.
        command: The command line to record, if there was one.

    Raises:
        PlanError: The run has no such policy, option or starts.
        RunError: The run is not finished, or a component has changed since.

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
        play = TakePlayer(grids, uri, loaded, setup, store, workers, Reporter(False), lambda row: None)
        kept = []
        for take in _keep(closing.enter_context(play), store, setup, promise, units):
            kept.append(take)
            stage.advance()
        failed = sum(row.status == "error" for row in store.rows())
        result = _result(source, directory, promise, kept, failed)
        write_text(directory / _RESULT, result.to_json())
    return result


def write_kept(
    result: ActResult, *, lerobot: Path | None = None, films: Path | None = None, csv: Path | None = None
) -> list[Path]:
    """Write the kept takes as a LeRobot data set, as films or as a table, and return the paths."""
    policy, arm = result.promise.policy, result.promise.arm
    paths = [write_csv(result.table, csv)] if csv is not None else []
    if lerobot is not None or films is not None:
        keys = {TakeKey(policy, take.env, take.task, take.start, arm, take.seed) for take in result.kept}
        paths += export(result.out, ExportOptions(lerobot=lerobot, films=films, keys=frozenset(keys)))
    return paths


def _set_up(
    plan: Plan, envs: Mapping[str, EnvSpec], source: Run, promise: Promise, workers: WorkerPool, reporter: Reporter
) -> tuple[Setup, Policy]:
    """Set up the plan with the retrieval that the run used; RunError if a component has changed since the run."""
    setup, manifest = set_up(plan, envs, reporter, workers.map), Manifest.read(source.path)
    if config := manifest.identity.get(f"retrieval {promise.policy}"):
        setup = replace(setup, retrieval=RetrievalConfig.from_dict(config))
    loaded = load_policy(plan, plan.policy[0])
    new = manifest_of(setup, "").identity | {f"policy {promise.policy}": loaded.spec.fingerprint}
    for name in sorted(set(new) & set(manifest.identity)):
        if name.startswith(("policy ", "env ", "code of ", "library")):
            check_same_identity(source.path, name, manifest.identity[name], new[name])
    scored_with = None if source.result.library is None else source.result.library.get("fingerprint")
    if setup.library is not None and scored_with not in (None, setup.library.fingerprint):
        raise RunError(f"{source.path} was scored with other demonstrations than {setup.library.path} holds now")
    return setup, loaded


def _result(source: Run, directory: Path, promise: Promise, kept: Sequence[KeptTake], failed: int) -> ActResult:
    success = success_so_far([take.success for take in kept], promise.n)
    takes = sum(take.takes for take in kept) / len(kept) if kept else 0.0
    broken = is_broken(promise, success)
    return ActResult(str(source.path), str(directory), promise, tuple(kept), success, takes, broken, failed)


def _plan(source: Run, promise: Promise, starts: str | int | None) -> Plan:
    """The run's plan with the promised policy and arm, and new starts; its components must be harmless or trusted."""
    keys: Mapping[str, Any] = source.result.plan
    policy = dict(zip(keys.get("name") or keys["policy"], keys["policy"], strict=True))[promise.policy]
    for key, family in _FAMILIES.items():
        values = policy if key == "policy" else keys.get(key)
        for uri in values if isinstance(values, list) else [values]:
            if isinstance(uri, str):
                registry.check_harmless(family, registry.FromFile(uri, source.path / "result.json"))
    if keys.get("trust_remote_code"):
        registry.check_trusted(source.path / "result.json", "trust_remote_code: true")
    changes = {
        "policy": [policy], "name": [promise.policy], "arms": [promise.arm],
        "scorer": _scorer_uri(keys.get("scorer"), promise.scorer),
        "seeds": promise.n, "best_of": None, "until": None, "budget": None, "check_states": 0, "probe_states": 0,
        "window": promise.window, "replicas": 1, "on": "local", "starts": keys["starts"] if starts is None else starts,
    }  # fmt: skip
    return Plan.model_validate({**keys, **changes})


def _scorer_uri(scorers: Any, name: str) -> str:
    """The URI among a plan's ``scorers`` of the one called ``name``; ``name`` itself if there is none."""
    uris = [uri for uri in (scorers if isinstance(scorers, list) else [scorers]) if isinstance(uri, str)]
    return next((uri for uri in uris if registry.scorer(uri).spec.name == name), name)


def _next_starts(plan: Plan, envs: Mapping[str, EnvSpec]) -> str:
    """The next starts after those of the plan, at most `STARTS`, as a range."""
    used = int(plan.starts.rpartition(":")[2]) if isinstance(plan.starts, str) else plan.starts
    count = min(len(plan.offered(env)) for env in envs.values())
    if used >= count:
        raise PlanError(f"`starts`: the run has seen all {count} starts of its env; `seen` uses them again")
    return f"{used}:{min(used + STARTS, count)}"


def _check_new(units: Sequence[Unit], source: Run) -> None:
    """PlanError if the run has takes from one of the starts, since its option was chosen on them."""
    both = {(key.env, key.task, key.start) for key in source.takes} & set(units)
    if both:
        env, task, start = min(both)
        raise PlanError(
            f"`starts`: {source.path} has seen start {start} of {task} in {env}, so its promise cannot be checked"
            " there; take others, or give `seen`"
        )


def _keep(play: TakePlayer, store: Store, setup: Setup, promise: Promise, units: Sequence[Unit]) -> Iterator[KeptTake]:
    """Play takes at each start until one is accepted, and yield the best take of each start, in the order of starts."""
    scorers = [scorer for scorer in setup.panel if scorer.spec.name == promise.scorer] if promise.n > 1 else []
    context = context_of(setup.envs.values())
    for first in range(0, len(units), _AT_ONCE):
        group = pending = units[first : first + _AT_ONCE]
        best: dict[Unit, KeptTake] = {}
        for seed in range(promise.n):
            play([TakeKey(promise.policy, *unit, promise.arm, seed) for unit in pending])
            scores = score_takes(store, setup.library, setup.encoder, scorers, context=context)
            rows = {row.key: row for row in store.rows() if row.status == "done"}
            best |= {unit: take for unit in pending if (take := _best(rows, scores, promise, unit)) is not None}
            pending = [unit for unit in pending if unit not in best or not promise.accepts(best[unit].score)]
        yield from (best[unit] for unit in group if unit in best)


def _best(rows: Mapping[TakeKey, Row], scores: Scores, promise: Promise, unit: Unit) -> KeptTake | None:
    """The take of a start with the highest score, and the lowest seed among equals; None if none was finished."""
    name, keys = ScoreName(promise.scorer, promise.window), []
    for seed in range(promise.n):
        if (key := TakeKey(promise.policy, *unit, promise.arm, seed)) in rows:
            keys.append(key)
    if not keys:
        return None
    values = {key: scores[key].scores.get(name, math.nan) if key in scores else math.nan for key in keys}
    key = max(keys, key=lambda key: -math.inf if math.isnan(values[key]) else values[key])
    score = None if math.isnan(values[key]) else values[key]
    return KeptTake(*unit, key.seed, bool(rows[key].success), score, len(keys))
