"""Play the takes of a diagnosis, probe its policies and score the takes, one policy at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import ceil

from besttake.arms.base import runnable, specs_of
from besttake.conventions import check_compatible
from besttake.core.offline import RetrievalCheck
from besttake.core.probe import PolicyProbe
from besttake.encoders.base import Encoder
from besttake.encoders.cache import CachedEncoder
from besttake.errors import BestTakeError, PlanError
from besttake.measure.arrays import CellData, RunData, Settings, Stop, cells_of, merge_cells, truncate
from besttake.measure.partial import ROUNDS, PartialCell, partial_cell, round_json
from besttake.measure.until import first_arms
from besttake.policies.base import Policy
from besttake.progress import Reporter, RunProgress
from besttake.scorers.score_run import score_takes, unscored
from besttake.takes.heartbeat import Beat
from besttake.takes.jobs import TakeGrid
from besttake.takes.key import Row, TakeKey
from besttake.takes.pool import WorkerPool
from besttake.takes.scores import Scores
from besttake.takes.store import Store
from besttake.types import PolicySpec
from besttake.verbs.diagnose.check import probe_notes, probe_policy
from besttake.verbs.diagnose.choice import Choice, choose_retrieval
from besttake.verbs.diagnose.playing import TakePlayerFactory
from besttake.verbs.diagnose.setup import (
    Setup,
    context_of,
    encoder_without_demos,
    grids_of,
    length_note,
    load_policy,
    needs_rehearsal,
    order_of,
    rehearse,
)
from besttake.verbs.diagnose.until import PolicyRun, budget_of, play_until_decided

_log = logging.getLogger(__name__)
_SLOW, _BEARABLE = 20.0, 5.0
"""If rendering the pictures of a take needs more than ``_SLOW`` seconds, a note says how to need ``_BEARABLE``."""
_Play = Callable[[Collection[TakeKey]], None]


@dataclass
class Invocation:
    """The records of one call of `diagnose`: seconds per stage, notes, checks of retrieval, number of encoded frames.

    ``played``: takes that it played, failed ones among them. ``rounds``: the cells of a run until decided after its
    last round, by policy, for the live page.
    """

    reporter: Reporter
    progress: RunProgress = field(default_factory=lambda: RunProgress({}))
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    checks: dict[str, RetrievalCheck] = field(default_factory=dict)
    encoded: int = 0
    played: int = 0
    rounds: dict[str, list[PartialCell]] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the time that the block takes to ``stage``."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            _log.debug("%s: %.2f s", stage, seconds)

    def beat(self) -> Beat:
        """What the run is doing now, and how far it is, for those who watch."""
        return Beat(self.progress.doing(), self.progress.done, self.progress.total, self.progress.left())

    def count_take(self, row: Row) -> None:
        """Count a stored take."""
        self.played += 1
        self.progress.saw(row.key.policy, row.key.arm, row.success)

    def note(self, text: str) -> None:
        """Show a note now, and keep it for the result."""
        self.reporter.note(text)
        self.notes.append(text)


def run_policies(
    setup: Setup, loaded: dict[str, Policy], store: Store, workers: WorkerPool, invocation: Invocation,
    players: TakePlayerFactory,
) -> RunData:  # fmt: skip
    """Play the takes that are missing, probe the policies, and score all takes.

    Policies are large, so only one is held at a time: ``loaded`` is emptied.
    """
    plan, specs, probes = setup.plan, {}, {}
    settings, scoring = _settings(setup), _Scoring(setup, store, invocation)
    planned: list[TakeKey] = []
    stops: dict[str, Stop] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    with invocation.timed("set-up"):
        _check_policies(setup, loaded, store, invocation.reporter)
    for remaining, (uri, name) in zip(range(len(plan.policy), 0, -1), plan.names.items(), strict=True):
        with invocation.timed("set-up"):
            policy = loaded.pop(uri, None) or load_policy(plan, uri)
        with invocation.timed("check"):
            choice = _choose(name, policy, setup, invocation)
        chosen = replace(setup, retrieval=choice.config)
        left_out[name] = choice.left_out
        grids = _bind(name, policy.spec, chosen, store, choice.left_out)
        with players.make(
            grids, uri, policy, chosen, store, workers, invocation.reporter, invocation.count_take
        ) as play:
            if settings.places is None:
                keys = [key for grid in grids for key in grid.take_keys()]
                invocation.progress.planned[name] = len({*keys} - {row.key for row in store.rows()})
                with invocation.timed("takes"):
                    play(keys)
            else:
                run = _policy_run(grids, policy.spec, chosen, settings, play, scoring)
                before = invocation.progress.done
                budget = budget_of(plan, len({*run.cell_of.values()}))
                share = _budget_share((budget - len(planned)) // remaining, run, store)
                keys, new_stops = play_until_decided(run, share)
                stops |= new_stops
                invocation.progress.planned[name] = invocation.progress.done - before
            invocation.notes += play.remarks()
        planned += keys
        with invocation.timed("probe"):
            probes[name] = _probe(name, policy, setup, invocation)
        specs[name] = policy.spec
        del policy, play
    with invocation.timed("scoring"):
        scores = scoring.finish()
        log_repairs(store, invocation.reporter)
    return RunData(
        settings, envs=setup.envs, policies=specs, rows=store.rows(), scores=scores, probes=probes,
        goes_on={uri: setup.goes_on(env) for uri, env in setup.envs.items()}, planned=set(planned), stops=stops,
        left_out=left_out,
    )  # fmt: skip


def _settings(setup: Setup) -> Settings:
    """The settings of all measurements; for a run until decided also the place of each start in its order."""
    plan = setup.plan
    controls = {uri: spec.control for uri, spec in specs_of(plan.arms).items() if spec.control}
    places = {unit: i for i, unit in enumerate(order_of(setup))} if plan.until is not None else None
    return Settings(
        plan.seeds, plan.n, plan.worth / 100, setup.scorers[0].name, tuple(plan.arms), plan.probe_samples, controls,
        places,
    )  # fmt: skip


def _check_policies(setup: Setup, loaded: dict[str, Policy], store: Store, reporter: Reporter) -> None:
    """Raise ComponentError if any policy does not fit an env or does not repeat, before the first take of the run.

    A policy that has takes in the run was checked when they were played, and is not loaded for this. Where several are
    checked, each is dropped before the next one is loaded.
    """
    rehearsed = {row.key.policy for row in store.rows()}
    names = {uri: name for uri, name in setup.plan.names.items() if uri in loaded or name not in rehearsed}
    for uri, name in names.items():
        policy = loaded.get(uri) or load_policy(setup.plan, uri)
        for env_uri, env in setup.envs.items():
            check_compatible(replace(policy.spec, name=name), env)
            if name not in rehearsed and needs_rehearsal(uri, env_uri):
                seconds = rehearse(policy, uri, env_uri, setup.plan.patience)
                per_take = seconds * max(task.horizon for task in env.tasks) / setup.plan.stride
                if per_take > _SLOW:
                    reporter.note(
                        f"{env_uri}: a picture takes {seconds:.1f} s to draw, and those of a take {per_take:.0f} s;"
                        f" score fewer with --stride {setup.plan.stride * ceil(per_take / _BEARABLE)}"
                    )
        if len(names) > 1:
            loaded.pop(uri, None)
        del policy


def _choose(name: str, policy: Policy, setup: Setup, invocation: Invocation) -> Choice:
    """Choose the retrieval settings of a policy before its first take, and show the notes on them."""
    choice = choose_retrieval(name, policy, setup.plan, setup.envs, setup.library, setup.retrieval, invocation.reporter)
    for note in choice.notes:
        invocation.note(note)
    named = setup.plan.arms if "arms" in setup.plan.model_fields_set else ()
    for note in runnable(replace(policy.spec, name=name), named)[1]:
        invocation.reporter.note(note)
    if choice.check is not None:
        invocation.checks[name] = choice.check
    return choice


def _bind(policy: str, spec: PolicySpec, setup: Setup, store: Store, left_out: tuple[str, ...]) -> list[TakeGrid]:
    """Bind the run to a policy and its retrieval, and record the arms that it cannot run or that are ``left_out``.

    Returns its planned takes, a grid per environment.
    """
    plan = setup.plan
    store.claim(f"policy {policy}", spec.fingerprint)
    arms = tuple(arm for arm in runnable(spec, plan.arms)[0] if arm not in left_out)
    if any({"noise", "retrieval"} & {*arm.settings} for arm in specs_of(arms).values()):
        store.claim(f"retrieval {policy}", setup.retrieval.to_dict())
    store.skip(policy, [arm for arm in plan.arms if arm not in arms])
    return grids_of(plan, setup.envs, policy, arms, plan.seeds)


def _policy_run(
    grids: list[TakeGrid], spec: PolicySpec, setup: Setup, settings: Settings, player: _Play, scoring: _Scoring
) -> PolicyRun:
    """What `play_until_decided` needs to play and score the takes of one policy."""
    policy, invocation, store = grids[0].policy, scoring.invocation, scoring.store
    groups = {(uri, task.name): task.group for uri, env in setup.envs.items() for task in env.tasks}
    order = sorted(settings.places or {}, key=(settings.places or {}).__getitem__)

    def play(keys: Collection[TakeKey]) -> None:
        with invocation.timed("takes"):
            player(keys)

    def observe(planned: Collection[TakeKey]) -> list[CellData]:
        with invocation.timed("scoring"):
            scores = scoring.so_far()
        cells = cells_of(
            RunData(
                settings, envs=setup.envs, policies={policy: spec}, rows=store.rows(), scores=scores, probes={},
                goes_on={uri: setup.goes_on(env) for uri, env in setup.envs.items()}, planned=set(planned),
            )
        )  # fmt: skip
        whole = [truncate(merge_cells(policy, cells), {*planned}, settings.places or {})] if cells[1:] else []
        invocation.rounds[policy] = [partial_cell(cell, settings, None) for cell in (*whole, *cells) if cell.units]
        with suppress(BestTakeError, OSError):  # only the live page needs it
            store.write_bytes(ROUNDS, round_json([cell for part in invocation.rounds.values() for cell in part]))
        return cells

    cells = {(env, task, start): (env, groups[env, task]) for env, task, start in order}
    return PolicyRun(policy, order, cells, grids[0].arms, settings, play, observe)


def _budget_share(share: int, run: PolicyRun, store: Store) -> int:
    """The budget of one policy: its ``share`` of what is left, but at least the takes that the run has.

    It may have more if the budget was reduced or more policies share it. These takes count all the same.
    """
    done = sum(row.key.policy == run.policy for row in store.rows())
    least = len(first_arms(run.arms)) * run.settings.seeds
    if max(share, done) < least:
        raise PlanError(f"`budget`: {run.policy} gets {max(share, 0)} takes of it, but one start needs {least}")
    return max(share, done)


def _probe(name: str, policy: Policy, setup: Setup, invocation: Invocation) -> PolicyProbe | None:
    if setup.library is None or not setup.plan.probe_states:
        return None
    result = probe_policy(policy, setup.library, setup.envs, setup.plan, invocation.reporter)
    invocation.notes += probe_notes(name, result)
    return result


class _Scoring:
    """Scores the takes of a diagnosis, at the end or, in a run until decided, after each round."""

    def __init__(self, setup: Setup, store: Store, invocation: Invocation) -> None:
        self.setup, self.store, self.invocation = setup, store, invocation
        # Without demonstrations, scorers that need none may still see embeddings.
        self.encoder: Encoder = setup.encoder or encoder_without_demos(setup.plan.encoder, setup.plan.patience)
        self._new = 0

    def so_far(self, progress: bool | Reporter = False) -> Scores:
        """The scores of all takes so far; only those that the run does not have yet are computed."""
        scores = score_takes(
            self.store, self.setup.library, self.encoder, self.setup.panel,
            context=context_of(self.setup.envs.values()), progress=progress,
        )  # fmt: skip
        self._new += scores.new
        return scores

    def finish(self) -> Scores | None:
        """The scores of all takes, or None if there are none; what a user should know of them is noted."""
        scores, encoder, invocation = self.so_far(self.invocation.reporter), self.encoder, self.invocation
        declared = {spec.name for spec in self.setup.scorers if spec.length}
        invocation.notes += [length_note(name) for name in sorted(scores.length - declared)]
        counts = {name: unscored(scores, name) for name in {s.name for s in self.setup.scorers} & {*scores.scorers}}
        some = [f"scorer {name}: {n} of {len(scores)} takes have no score" for name, n in sorted(counts.items()) if n]
        for note in (*scores.lost.values(), *some):
            invocation.note(note)
        invocation.encoded = self._new
        if isinstance(encoder, CachedEncoder):
            _log.info("embeddings: %d encoded, %d from the cache", encoder.encoded, encoder.reused)
            invocation.encoded = encoder.encoded
        return scores if scores.scorers else None


def log_repairs(store: Store, reporter: Reporter) -> None:
    """Show which parts of a run were damaged and have been repaired."""
    while store.mended:
        reporter.note(store.mended.pop(0))
