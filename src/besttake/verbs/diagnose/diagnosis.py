"""Run a diagnosis from end to end: env + policy -> takes -> embeddings -> scores -> statistics -> verdict."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from besttake.arms.base import runnable
from besttake.config import Plan, as_plan, is_tuning
from besttake.errors import BestTakeError, RunError
from besttake.files import clear, version
from besttake.measure.arrays import CellData
from besttake.measure.cell import count_cost, measure
from besttake.measure.looks import load_history, with_outgrown
from besttake.measure.partial import ROUNDS
from besttake.progress import Reporter, as_reporter
from besttake.registry import Uri
from besttake.reporting.words import with_headline
from besttake.result import Cell, Result
from besttake.takes.heartbeat import Heartbeat
from besttake.takes.manifest import SPEED
from besttake.takes.pool import WorkerPool
from besttake.takes.scores import Scores, run_digest
from besttake.takes.sizes import worker_count
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import EnvSpec, PolicySpec
from besttake.verbs.diagnose.playing import TakePlayer, TakePlayerFactory, check_replicas, replica_count
from besttake.verbs.diagnose.policies import Invocation, log_repairs, run_policies
from besttake.verbs.diagnose.setup import (
    Setup,
    check_starts_and_demos,
    load_policy,
    manifest_of,
    open_envs,
    scorer_notes,
    set_up,
    versions,
    with_defaults,
)
from besttake.verbs.diagnose.until import budget_of

_log = logging.getLogger(__name__)


def diagnose(
    plan: Plan | str | Path | None = None, out: str | Path = "runs/diagnosis", *, progress: bool | Reporter = False,
    command: str = "", **keys: Any,
) -> Result:  # fmt: skip
    """Measure what each policy of a plan needs at test time, and return the verdict with the numbers behind it.

    A run that was stopped continues. If ``out`` holds a finished run of the same plan, its result is returned at once.

    Args:
        plan: A `Plan`, or the path of a YAML file with the same keys; without one, ``keys`` are the plan.
        out: The run directory. Takes, scores and ``result.json`` are written there.
        progress: True shows a progress bar.
        command: The command line to record in the result, if there was one.
        keys: Keys of the plan, as in `Plan`; they override those of ``plan``.

    Raises:
        BestTakeError: The plan, a component or the run directory cannot be used. The message says what to do.

    Examples:
        >>> besttake.diagnose(policy="testbed:half", env="testbed:pick", starts=20, out="runs/half")  # doctest: +SKIP
    """
    plan, invocation = with_defaults(as_plan(plan, keys)), Invocation(as_reporter(progress))
    if (finished := finished_result(plan, out)) is not None:
        invocation.reporter.note(f"{out} is finished and answers this plan: nothing is run or computed again")
        return finished
    check_replicas(plan)
    return run_plan(plan, out, invocation, TakePlayerFactory(TakePlayer), command)


def run_plan(
    plan: Plan, out: str | Path, invocation: Invocation, players: TakePlayerFactory, command: str = ""
) -> Result:
    """Play the takes of ``plan`` that the run ``out`` lacks, and write its result."""
    with one_thread(), ExitStack() as closing:
        with invocation.timed("set-up"):
            envs = open_envs(plan)
            check_starts_and_demos(plan, envs)  # before a policy is loaded, which may take minutes
            loaded = {**players.loaded} or {plan.policy[0]: load_policy(plan, plan.policy[0])}
            count = worker_count(plan.workers, replica_count(plan, loaded[plan.policy[0]].spec))
            workers = closing.enter_context(WorkerPool(count, plan.patience))
            setup = set_up(plan, envs, invocation.reporter, workers.map)
        invocation.notes += setup.notes
        manifest = manifest_of(setup, command)
        manifest = manifest.model_copy(update={"identity": {**manifest.identity, **players.identity}})
        with Store.write(out, manifest) as store, Heartbeat(store.path, invocation.beat):
            drop_failed_takes(store, invocation.reporter)
            _log.info("run %s: %d takes are there", store.path, len(store.rows()))
            with invocation.reporter.run(_takes_to_play(setup, store)) as invocation.progress:
                data = run_policies(setup, loaded, store, workers, invocation, players)
                with invocation.timed("statistics"):
                    map_cells = partial(_map_cells, workers=workers, reporter=invocation.reporter)
                    history = load_history(_previous_result(store), data.settings)
                    history = with_outgrown(history, store.manifest.outgrown, setup.envs)
                    cells, policies, relation, pools = measure(data, history, map_cells)
            result = Result(
                run=store.manifest.run,
                besttake=version(), created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), command=command,
                digest=run_digest(store.digest(), Scores.open(store.path)), plan=plan.model_dump(mode="json"),
                versions=versions(), library=None if setup.library is None else setup.library.summary(),
                worth=plan.worth / 100, cells=list(map(with_headline, cells)),
                policies=list(map(with_headline, policies)), relation=relation,
                cost=count_cost(data, invocation.seconds, invocation.encoded, invocation.played),
                checks=invocation.checks, pools=pools, notes=_all_notes(setup, data.policies, invocation.notes),
            )  # fmt: skip
            store.write_bytes("result.json", result.to_json().encode())
            clear(store.path / ROUNDS)
    invocation.reporter.conclude(result)
    return result


def finished_result(plan: Plan, out: str | Path) -> Result | None:
    """Return the result of the run ``out`` if it answers ``plan``; None if the diagnosis has to run.

    It has to if a take or a scorer failed, a file is damaged, BestTake has another version, or the plan names what may
    have changed since: code (``python:``, ``gym:MODULE:ID``), files and folders of this machine.
    """
    directory = Path(out)
    try:
        result = Result.load(directory)
        new, old = plan.model_dump(mode="json"), result.plan
        same = all(new.get(name) == old.get(name) for name in {*new, *old} - SPEED)
        if not same or (result.besttake, result.versions) != (version(), versions()):
            return None
        uris = (*plan.policy, *plan.env, *plan.arms, *plan.scorer, plan.demos or "", plan.encoder or "")
        if any(_is_local(Uri.parse(uri)) for uri in uris):
            return None
        with Store.open(directory) as store:
            if store.damaged() or any(row.status != "done" for row in store.rows()):
                return None
            takes = store.digest()
        scores = Scores.open(directory)
        scored_by = {name.partition(":")[0] for name in scores.scorers} if scores is not None else set()
        scorers = {Uri.parse(uri).scheme for uri in plan.scorer} if scores is not None else set()
        return result if scorers <= scored_by and run_digest(takes, scores) == result.digest else None
    except (BestTakeError, OSError, ValueError):
        return None


def _is_local(uri: Uri) -> bool:
    """Whether a URI names code, a file or a folder of this machine."""
    paths = (uri.scheme, uri.rest, *uri.options.values())  # a plain path is all scheme
    code = uri.scheme == "python" or (uri.scheme == "gym" and ":" in uri.rest)
    return code or any(Path(text).expanduser().exists() for text in paths if text)


def drop_failed_takes(store: Store, reporter: Reporter) -> None:
    """Remove takes that are damaged or failed from a run, so that they are played again."""
    damaged, failed = store.damaged(), [row for row in store.rows() if row.status == "error"]
    store.forget([*damaged, *failed])
    log_repairs(store, reporter)
    if damaged:
        reporter.note(f"{len(damaged)} takes are damaged and will be played again")
    if failed:
        reporter.note(f"{len(failed)} takes failed before and will be tried again")


def _takes_to_play(setup: Setup, store: Store) -> dict[str, int]:
    """How many takes of each policy are still to be played: at most, in a run until decided, its part of the budget."""
    plan = setup.plan
    tasks = {uri: plan.chosen_tasks(env) for uri, env in setup.envs.items()}
    units = sum(len(tasks[uri]) * len(plan.chosen_starts(plan.offered(env), uri)) for uri, env in setup.envs.items())
    per_policy = units * len(plan.arms) * plan.seeds
    if plan.until:
        cells = {(uri, task.group) for uri, chosen in tasks.items() for task in chosen}
        per_policy = min(per_policy, budget_of(plan, len(cells)) // len(plan.policy))
    done = Counter(row.key.policy for row in store.rows())
    return {name: max(0, per_policy - done[name]) for name in plan.names.values()}


def _map_cells(
    function: Callable[[CellData], Cell], cells: list[CellData], *, workers: WorkerPool, reporter: Reporter
) -> list[Cell]:
    """Map ``function`` over ``cells`` with a progress bar, in the workers if they run."""
    with reporter.stage("statistics", len(cells), "cells") as stage:
        if workers.pids:
            return workers.map(function, cells, lambda _: stage.advance())
        done = []
        for cell in cells:
            done.append(function(cell))
            stage.advance()
        return done


def _previous_result(store: Store) -> Result | None:
    """The last result of a run; None if there is none or it cannot be read."""
    try:
        return Result.load(store.path / "result.json")
    except RunError:
        return None


def _all_notes(setup: Setup, specs: Mapping[str, PolicySpec], earlier: list[str]) -> list[str]:
    notes = list(earlier)
    for name, spec in specs.items():
        notes += [*runnable(replace(spec, name=name), setup.plan.arms)[1], *spec.notes]
    for env in setup.envs.values():
        notes += [*env.notes, *_window_notes(setup.plan.window, env)]
    for scorer in setup.scorers:
        notes += scorer_notes(scorer)
    if setup.library is None and not any("no demonstrations" in note for note in notes):
        notes.append("no demonstrations were named (`demos`), so no arm that needs them was run")
    if is_tuning(setup.plan.starts):
        notes.append("these starts are reserved for tuning and training: report no result on them")
    return list(dict.fromkeys(notes))


def _window_notes(window: str, env: EnvSpec) -> list[str]:
    if window == "episode":
        return ["the window `episode` leaks length: it is measured, but the verdict reads `common`"]
    if window == "full" and not env.goes_on:
        return [f"{env.name} cannot go on after success: the verdict reads the window `common`"]
    return []
