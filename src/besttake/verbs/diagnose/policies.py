"""The takes, probes and scores of a diagnosis: made policy by policy, as far as the run lacks them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
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
from besttake.measure.arrays import CellData, Recorded, Settings, Stop, cells_of, leading, merge_cells
from besttake.measure.partial import ROUNDS, PartialCell, partial_cell, round_json
from besttake.measure.until import begin_with
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
from besttake.verbs.diagnose.playing import Player
from besttake.verbs.diagnose.setup import (
    Setup,
    context_of,
    encoder_without_demos,
    grids_of,
    length_note,
    load_policy,
    order_of,
    rehearse,
    rehearsed,
)
from besttake.verbs.diagnose.until import Course, budget_of, play_until_decided

_log = logging.getLogger(__name__)
_SLOW, _BEARABLE = 20.0, 5.0
"""Where drawing the pictures of a take needs more seconds than ``_SLOW``, one is told how it needs ``_BEARABLE``."""
_Play = Callable[[Collection[TakeKey]], None]


@dataclass
class Invocation:
    """What one invocation keeps count of: seconds per stage, remarks, checks of retrieval, frames that it encoded.

    ``made``: takes that it tried to make. ``rounds``: what a run until decided shows to those who watch, by policy.
    """

    reporter: Reporter
    progress: RunProgress = field(default_factory=lambda: RunProgress({}))
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    checks: dict[str, RetrievalCheck] = field(default_factory=dict)
    encoded: int = 0
    made: int = 0
    rounds: dict[str, list[PartialCell]] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the time within as ``stage``'s."""
        began = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.seconds[stage] = self.seconds.get(stage, 0.0) + took
            _log.debug("%s: %.2f s", stage, took)

    def beat(self) -> Beat:
        """What is going on, for those who watch."""
        return Beat(self.progress.doing(), self.progress.done, self.progress.total, self.progress.left())

    def count_take(self, row: Row) -> None:
        """Count a take that was stored."""
        self.made += 1
        self.progress.saw(row.key.policy, row.key.arm, row.success)

    def note(self, text: str) -> None:
        """Say something now, and keep it for the result."""
        self.reporter.note(text)
        self.notes.append(text)


def run_policies(
    setup: Setup, loaded: dict[str, Policy], store: Store, workers: WorkerPool, invocation: Invocation, player: Player
) -> Recorded:
    """Make the takes, probes and scores that are missing.

    Policies are large, so only one is held at a time: ``loaded`` is emptied.
    """
    plan, specs, probes = setup.plan, {}, {}
    settings, scoring = _settings(setup), _Scoring(setup, store, invocation)
    planned: list[TakeKey] = []
    stops: dict[str, Stop] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    with invocation.timed("set-up"):
        _check_policies(setup, loaded, store, invocation.reporter)
    for left, (uri, name) in zip(range(len(plan.policy), 0, -1), plan.names.items(), strict=True):
        with invocation.timed("set-up"):
            policy = loaded.pop(uri, None) or load_policy(plan, uri)
        with invocation.timed("check"):
            choice = _choose(name, policy, setup, invocation)
        own = replace(setup, retrieval=choice.config)
        left_out[name] = choice.left_out
        grids = _admit(name, policy.spec, own, store, choice.left_out)
        with player.playing(
            grids, uri, policy, own, store, workers, invocation.reporter, invocation.count_take
        ) as play:
            if settings.places is None:
                keys = [key for grid in grids for key in grid.take_keys()]
                invocation.progress.planned[name] = len({*keys} - {row.key for row in store.rows()})
                with invocation.timed("takes"):
                    play(keys)
            else:
                course = _course(grids, policy.spec, own, settings, play, scoring)
                made = invocation.progress.done
                budget = budget_of(plan, len({*course.cell_of.values()}))
                share = _budget_share((budget - len(planned)) // left, course, store)
                keys, stopped = play_until_decided(course, share)
                stops |= stopped
                invocation.progress.planned[name] = invocation.progress.done - made
            invocation.notes += play.remarks()
        planned += keys
        with invocation.timed("probe"):
            probes[name] = _probe(name, policy, setup, invocation)
        specs[name] = policy.spec
        del policy, play
    with invocation.timed("scoring"):
        scores = scoring.finish()
        log_repairs(store, invocation.reporter)
    return Recorded(
        settings, envs=setup.envs, policies=specs, rows=store.rows(), scores=scores, probes=probes,
        goes_on={uri: setup.goes_on(env) for uri, env in setup.envs.items()}, planned=set(planned), stops=stops,
        left_out=left_out,
    )  # fmt: skip


def _settings(setup: Setup) -> Settings:
    """How to measure; for a run until decided also the place of each start in its order."""
    plan = setup.plan
    controls = {uri: spec.control for uri, spec in specs_of(plan.arms).items() if spec.control}
    places = {unit: i for i, unit in enumerate(order_of(setup))} if plan.until is not None else None
    return Settings(
        plan.seeds, plan.n, plan.worth / 100, setup.scorers[0].name, tuple(plan.arms), plan.probe_samples, controls,
        places,
    )  # fmt: skip


def _check_policies(setup: Setup, loaded: Mapping[str, Policy], store: Store, reporter: Reporter) -> None:
    """ComponentError when a policy does not fit an env or does not repeat: before the first take of any, not its own.

    A policy that has takes in the run was checked before them, and is not loaded for this.
    """
    seen = {row.key.policy for row in store.rows()}
    for uri, name in setup.plan.names.items():
        if uri in loaded or name not in seen:
            policy = loaded.get(uri) or load_policy(setup.plan, uri)
            for env_uri, env in setup.envs.items():
                check_compatible(replace(policy.spec, name=name), env)
                if name not in seen and rehearsed(uri, env_uri):
                    each = rehearse(policy, uri, env_uri, setup.plan.patience)
                    of_a_take = each * max(task.horizon for task in env.tasks) / setup.plan.stride
                    if of_a_take > _SLOW:
                        reporter.note(
                            f"{env_uri}: a picture takes {each:.1f} s to draw, and those of a take {of_a_take:.0f} s;"
                            f" score fewer with --stride {setup.plan.stride * ceil(of_a_take / _BEARABLE)}"
                        )


def _choose(name: str, policy: Policy, setup: Setup, invocation: Invocation) -> Choice:
    """The retrieval of a policy's takes, with what there is to say about it, before the first of them."""
    choice = choose_retrieval(name, policy, setup.plan, setup.envs, setup.library, setup.retrieval, invocation.reporter)
    for note in choice.notes:
        invocation.note(note)
    named = setup.plan.arms if "arms" in setup.plan.model_fields_set else ()
    for note in runnable(replace(policy.spec, name=name), named)[1]:
        invocation.reporter.note(note)
    if choice.check is not None:
        invocation.checks[name] = choice.check
    return choice


def _admit(policy: str, spec: PolicySpec, setup: Setup, store: Store, left_out: tuple[str, ...]) -> list[TakeGrid]:
    """Bind the run to a policy and its retrieval, and note the arms that it cannot run or that are ``left_out``.

    Returns its planned takes, a grid per environment.
    """
    plan = setup.plan
    store.claim(f"policy {policy}", spec.fingerprint)
    arms = tuple(arm for arm in runnable(spec, plan.arms)[0] if arm not in left_out)
    if any({"noise", "retrieval"} & {*each.settings} for each in specs_of(arms).values()):
        store.claim(f"retrieval {policy}", setup.retrieval.to_dict())
    store.skip(policy, [arm for arm in plan.arms if arm not in arms])
    return grids_of(plan, setup.envs, policy, arms, plan.seeds)


def _course(
    grids: list[TakeGrid], spec: PolicySpec, setup: Setup, settings: Settings, playing: _Play, scoring: _Scoring
) -> Course:
    """The rounds of takes and scores of one policy in a run until decided."""
    policy, invocation, store = grids[0].policy, scoring.invocation, scoring.store
    groups = {(uri, task.name): task.group for uri, env in setup.envs.items() for task in env.tasks}
    order = sorted(settings.places or {}, key=(settings.places or {}).__getitem__)

    def play(keys: Collection[TakeKey]) -> None:
        with invocation.timed("takes"):
            playing(keys)

    def observe(planned: Collection[TakeKey]) -> list[CellData]:
        with invocation.timed("scoring"):
            scores = scoring.so_far()
        cells = cells_of(
            Recorded(
                settings, envs=setup.envs, policies={policy: spec}, rows=store.rows(), scores=scores, probes={},
                goes_on={uri: setup.goes_on(env) for uri, env in setup.envs.items()}, planned=set(planned),
            )
        )  # fmt: skip
        whole = [leading(merge_cells(policy, cells), set(planned), settings.places or {})] if len(cells) > 1 else []
        invocation.rounds[policy] = [partial_cell(cell, settings, None) for cell in (*whole, *cells) if cell.units]
        with suppress(BestTakeError, OSError):  # only those who watch need it
            store.write_bytes(ROUNDS, round_json([cell for own in invocation.rounds.values() for cell in own]))
        return cells

    cells = {(env, task, start): (env, groups[env, task]) for env, task, start in order}
    return Course(policy, order, cells, grids[0].arms, settings, play, observe)


def _budget_share(share: int, course: Course, store: Store) -> int:
    """The budget of one policy: its part of what is left, or the takes that are there, where these are more.

    They are more where the budget has become smaller or more policies share it. Their results would be lost.
    """
    there = sum(row.key.policy == course.policy for row in store.rows())
    least = len(begin_with(course.arms)) * course.settings.seeds
    if max(share, there) < least:
        raise PlanError(f"`budget`: {course.policy} gets {max(share, 0)} takes of it, and one start needs {least}")
    return max(share, there)


def _probe(name: str, policy: Policy, setup: Setup, invocation: Invocation) -> PolicyProbe | None:
    if setup.library is None or not setup.plan.probe_states:
        return None
    probed = probe_policy(policy, setup.library, setup.envs, setup.plan, invocation.reporter)
    invocation.notes += probe_notes(name, probed)
    return probed


class _Scoring:
    """Scores the takes of a diagnosis: all at the end, or for a run until decided round by round."""

    def __init__(self, setup: Setup, store: Store, invocation: Invocation) -> None:
        self.setup, self.store, self.invocation = setup, store, invocation
        # Without demonstrations, scorers that need none may still see embeddings.
        self.encoder: Encoder = setup.encoder or encoder_without_demos(setup.plan.encoder, setup.plan.patience)
        self._new = 0

    def so_far(self, progress: bool | Reporter = False) -> Scores:
        """The scores of all takes that are there; those that the run has already are read."""
        scores = score_takes(
            self.store, self.setup.library, self.encoder, self.setup.panel,
            context=context_of(self.setup.envs.values()), progress=progress,
        )  # fmt: skip
        self._new += scores.new
        return scores

    def finish(self) -> Scores | None:
        """The scores of all takes, None where there are none, with what there is to say about them."""
        scores, encoder, invocation = self.so_far(self.invocation.reporter), self.encoder, self.invocation
        declared = {spec.name for spec in self.setup.scorers if spec.length}
        invocation.notes += [length_note(name) for name in sorted(scores.length - declared)]
        blank = {name: unscored(scores, name) for name in {s.name for s in self.setup.scorers} & {*scores.scorers}}
        less = [f"scorer {name}: {n} of {len(scores)} takes have no score" for name, n in sorted(blank.items()) if n]
        for why in (*scores.lost.values(), *less):
            invocation.note(why)
        invocation.encoded = self._new
        if isinstance(encoder, CachedEncoder):
            _log.info("embeddings: %d encoded, %d from the cache", encoder.encoded, encoder.reused)
            invocation.encoded = encoder.encoded
        return scores if scores.scorers else None


def log_repairs(store: Store, reporter: Reporter) -> None:
    """Say which parts of a run were damaged and have been repaired."""
    while store.mended:
        reporter.note(store.mended.pop(0))
