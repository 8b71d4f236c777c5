"""The diagnosis from end to end: env + policy -> takes -> embeddings -> scores -> statistics -> verdict."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from besttake.arms.base import runnable
from besttake.config import Plan, as_plan, is_tuning
from besttake.errors import RunError
from besttake.files import clear, version
from besttake.measure.cell import count_cost, measure
from besttake.measure.cells import CellData
from besttake.measure.looks import load_history, with_outgrown
from besttake.measure.partial import ROUNDS
from besttake.measure.scores import Scores, run_digest
from besttake.progress import Reporter, as_reporter
from besttake.reporting.words import worded
from besttake.result import Cell, Result
from besttake.scorers.judge import uploads_allowed
from besttake.takes.heartbeat import Heartbeat
from besttake.takes.pool import WorkerPool
from besttake.takes.sizes import worker_count
from besttake.takes.store import Store
from besttake.threads import one_thread
from besttake.types import EnvSpec, PolicySpec
from besttake.verbs.diagnose.finished import finished_result
from besttake.verbs.diagnose.identity import manifest_of, versions
from besttake.verbs.diagnose.playing import check_replicas, replica_count
from besttake.verbs.diagnose.record import record
from besttake.verbs.diagnose.scored import say_what_was_mended
from besttake.verbs.diagnose.session import Session
from besttake.verbs.diagnose.setup import (
    Setup,
    load_policy,
    open_envs,
    scorer_notes,
    set_up,
    with_possible_arms,
)
from besttake.verbs.diagnose.until import budget_of

__all__ = ["diagnose", "versions"]
_log = logging.getLogger(__name__)


def diagnose(
    plan: Plan | str | Path, out: str | Path, *, progress: bool | Reporter = False, command: str = ""
) -> Result:
    """Measure what each policy of a plan needs at test time, and return the verdict with the numbers behind it.

    A run that was stopped continues. If ``out`` holds a finished run of the same plan, its result is returned at once.

    Args:
        plan: A `Plan`, or the path of a YAML file with the same keys.
        out: The run directory. Takes, scores and ``result.json`` are written there.
        progress: True shows a progress bar.
        command: The command line to record in the result, if there was one.

    Raises:
        BestTakeError: The plan, a component or the run directory cannot be used. The message says what to do.

    Examples:
        >>> plan = besttake.Plan(policy="testbed:half", env="testbed:pick", starts=20)  # doctest: +SKIP
        >>> besttake.diagnose(plan, out="runs/half").policies[0].verdict.headline       # doctest: +SKIP
    """
    plan, session = with_possible_arms(as_plan(plan)), Session(as_reporter(progress))
    if (known := finished_result(plan, out)) is not None:
        session.reporter.note(f"{out} is finished and answers this plan: nothing is run or computed again")
        return known
    check_replicas(plan)
    allowed = uploads_allowed(allowed=plan.allow_upload)
    with one_thread(), allowed, ExitStack() as closing:
        with session.timed("set-up"):
            envs = open_envs(plan)
            for uri, env in envs.items():
                plan.chosen_starts(plan.offered(env), uri)
            loaded = {plan.policy[0]: load_policy(plan, plan.policy[0])}
            count = worker_count(plan.workers, replica_count(plan, loaded[plan.policy[0]].spec))
            workers = closing.enter_context(WorkerPool(count, plan.patience))
            setup = set_up(plan, envs, session.reporter, workers.map)
        session.notes += setup.notes
        with Store.write(out, manifest_of(setup, command)) as store, Heartbeat(store.path, session.beat):
            _forget_the_bad(store, session.reporter)
            _log.info("run %s: %d takes are there", store.path, len(store.rows()))
            with session.reporter.whole(_to_make(setup, store)) as session.whole:
                recorded = record(setup, loaded, store, workers, session)
                with session.timed("statistics"):
                    each = partial(_counted, workers=workers, reporter=session.reporter)
                    history = load_history(_previous(store), recorded.settings)
                    earlier = with_outgrown(history, store.manifest.outgrown, setup.envs)
                    cells, policies, relation = measure(recorded, earlier, each)
            result = Result(
                besttake=version(), created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), command=command,
                digest=_digest(store), plan=plan.model_dump(mode="json"), versions=versions(),
                library=None if setup.library is None else setup.library.summary(), worth=plan.worth / 100,
                cells=[worded(c) for c in cells],
                policies=[worded(c) for c in policies], relation=relation,
                cost=count_cost(recorded, session.seconds, session.encoded, session.made),
                checks=session.checks,
                notes=_all_notes(setup, recorded.policies, session.notes),
            )  # fmt: skip
            store.keep("result.json", result.to_json().encode())
            clear(store.path / ROUNDS)
    return result


def _to_make(setup: Setup, store: Store) -> dict[str, int]:
    """About how many takes each policy has to make: all that are planned, or of a run until decided, its budget."""
    plan = setup.plan
    tasks = {uri: plan.chosen_tasks(env) for uri, env in setup.envs.items()}
    units = sum(len(tasks[uri]) * len(plan.chosen_starts(plan.offered(env), uri)) for uri, env in setup.envs.items())
    each = units * len(plan.arms) * plan.seeds
    if plan.until:
        cells = {(uri, task.group) for uri, own in tasks.items() for task in own}
        each = min(each, budget_of(plan, len(cells)) // len(plan.policy))
    there = Counter(row.key.policy for row in store.rows())
    return {uri: max(0, each - there[uri]) for uri in plan.policy}


def _counted(
    function: Callable[[CellData], Cell], cells: list[CellData], *, workers: WorkerPool, reporter: Reporter
) -> list[Cell]:
    """`map` by the workers if they run, with progress."""
    with reporter.stage("statistics", len(cells), "cells") as stage:
        if workers.pids:
            return workers.map(function, cells, lambda _: stage.advance())
        done = []
        for cell in cells:
            done.append(function(cell))
            stage.advance()
        return done


def _digest(store: Store) -> str:
    return run_digest(store.digest(), Scores.open(store.path))


def _previous(store: Store) -> Result | None:
    """The last result of a run, whose looks count, or its copy where the file is damaged; None if there is none."""
    try:
        return Result.load(store.path / "result.json")
    except RunError:
        copy = store.copy_of("result.json")
        return None if copy is None else Result.from_bytes(copy)


def _forget_the_bad(store: Store, reporter: Reporter) -> None:
    """Drop takes that are damaged or failed, so that they are made again."""
    damaged, failed = store.damaged(), [row for row in store.rows() if row.status == "error"]
    store.forget([*damaged, *failed])
    say_what_was_mended(store, reporter)
    if damaged:
        reporter.note(f"{len(damaged)} takes are damaged and will be made again")
    if failed:
        reporter.note(f"{len(failed)} takes failed before and will be tried again")


def _all_notes(setup: Setup, specs: Mapping[str, PolicySpec], noted: list[str]) -> list[str]:
    notes = list(noted)
    for spec in specs.values():
        notes += [*runnable(spec, setup.plan.arms)[1], *spec.notes]
    for env in setup.envs.values():
        notes += [*env.notes, *_window_notes(setup.plan.window, env)]
    for scorer in setup.scorers:
        notes += scorer_notes(scorer)
    if setup.library is None and not any("no demonstrations" in note for note in notes):
        notes.append("no demonstrations were named (`demos`), so no arm that needs them was run")
    if is_tuning(setup.plan.starts):
        notes.append("these starts are kept apart for choosing and learning: report no result on them")
    return list(dict.fromkeys(notes))


def _window_notes(window: str, env: EnvSpec) -> list[str]:
    if window == "episode":
        return ["the window `episode` leaks length: it is measured, and the verdict reads `common`"]
    if window == "full" and not env.goes_on:
        return [f"{env.name} cannot go on after success: the verdict reads the window `common`"]
    return []
