"""The takes, probes and scores of a diagnosis: made policy by policy, as far as the run lacks them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from besttake.arms.base import runnable, specs_of
from besttake.conventions import check_compatible
from besttake.errors import PlanError
from besttake.measure.cells import CellData, Recorded, Settings, Stop, cells_of, leading, merge_cells
from besttake.measure.probes import Probed
from besttake.measure.until import begin_with
from besttake.policies.base import Policy
from besttake.takes.jobs import Block
from besttake.takes.key import TakeKey
from besttake.takes.pool import WorkerPool
from besttake.takes.store import Store
from besttake.types import PolicySpec
from besttake.verbs.diagnose.choice import Choice, choose
from besttake.verbs.diagnose.identity import order_of
from besttake.verbs.diagnose.playing import Playing
from besttake.verbs.diagnose.probing import probe_policy
from besttake.verbs.diagnose.rehearsal import rehearse, rehearsed
from besttake.verbs.diagnose.scored import TakeScores, say_what_was_mended
from besttake.verbs.diagnose.session import Play, Session
from besttake.verbs.diagnose.setup import (
    Setup,
    load_policy,
)
from besttake.verbs.diagnose.until import Course, budget_of, play_until_decided


def record(setup: Setup, loaded: dict[str, Policy], store: Store, workers: WorkerPool, session: Session) -> Recorded:
    """Make the takes, probes and scores that are missing.

    Policies are large, so only one is held at a time: ``loaded`` is emptied.
    """
    plan, specs, probes = setup.plan, {}, {}
    settings, scoring = settings_of(setup), TakeScores(setup, store, session)
    planned: list[TakeKey] = []
    stops: dict[str, Stop] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    with session.timed("set-up"):
        _check_policies(setup, loaded, store, session)
    for left, uri in zip(range(len(plan.policy), 0, -1), plan.policy, strict=True):
        with session.timed("set-up"):
            policy = loaded.pop(uri, None) or load_policy(plan, uri)
        with session.timed("check"):
            choice = _choose(uri, policy, setup, session)
            setup = replace(setup, retrieval=choice.config)
        left_out[uri] = choice.left_out
        own = _admit(uri, policy.spec, setup, store, choice.left_out)
        with Playing(own, policy, setup, store, workers, session.reporter, session.saw) as playing:
            play = session.timing("takes", playing)
            if settings.places is None:
                keys = [key for block in own for key in block.take_keys()]
                session.whole.expect(uri, len({*keys} - {row.key for row in store.rows()}))
                play(keys)
            else:
                course = _course(own, policy.spec, setup, settings, play, scoring)
                made = session.whole.done
                budget = budget_of(plan, len({*course.cell_of.values()}))
                played = play_until_decided(course, _share((budget - len(planned)) // left, course, store))
                keys, stops = played.planned, {**stops, **played.stops}
                session.whole.expect(uri, session.whole.done - made)
        planned += keys
        with session.timed("probe"):
            probes[uri] = _probe(policy, setup, session)
        specs[uri] = policy.spec
        del policy, play, playing
    with session.timed("scoring"):
        scores = scoring.finish()
        say_what_was_mended(store, session.reporter)
    return Recorded(
        settings, envs=setup.envs, policies=specs, rows=store.rows(), scores=scores, probes=probes,
        goes_on={uri: setup.goes_on(env) for uri, env in setup.envs.items()}, planned=set(planned), stops=stops,
        left_out=left_out,
    )  # fmt: skip


def _share(share: int, course: Course, store: Store) -> int:
    """The budget of one policy: its part of what is left, or the takes that are there, where these are more.

    They are more where the budget has become smaller or more policies share it. Their results would be lost.
    """
    there = sum(row.key.policy == course.policy for row in store.rows())
    least = len(begin_with(course.arms)) * course.settings.seeds
    if max(share, there) < least:
        raise PlanError(f"`budget`: {course.policy} gets {max(share, 0)} takes of it, and one start needs {least}")
    return max(share, there)


def _check_policies(setup: Setup, loaded: Mapping[str, Policy], store: Store, session: Session) -> None:
    """ComponentError when a policy does not fit an env or does not repeat: before the first take of any, not its own.

    A policy that has takes in the run was checked before them, and is not loaded for this.
    """
    seen = {row.key.policy for row in store.rows()}
    for uri in setup.plan.policy:
        if uri in loaded or uri not in seen:
            policy = loaded.get(uri) or load_policy(setup.plan, uri)
            for env_uri, env in setup.envs.items():
                check_compatible(policy.spec, env)
                if uri not in seen and rehearsed(uri, env_uri):
                    for note in rehearse(policy, uri, env_uri):
                        session.notes.append(note)
                        session.reporter.note(note)


def settings_of(setup: Setup) -> Settings:
    """How to measure; for a run until decided also the place of each start in its order."""
    plan = setup.plan
    controls = {uri: spec.control for uri, spec in specs_of(plan.arms).items() if spec.control}
    places = {unit: i for i, unit in enumerate(order_of(setup))} if plan.until is not None else None
    return Settings(
        plan.seeds, plan.n, plan.worth / 100, setup.scorers[0].name, tuple(plan.arms), plan.probe_samples, controls,
        places,
    )  # fmt: skip


def _course(
    blocks: list[Block], spec: PolicySpec, setup: Setup, settings: Settings, play: Play, scoring: TakeScores
) -> Course:
    """What a policy is run on until it is decided."""
    policy = blocks[0].policy
    groups = {(uri, task.name): task.group for uri, env in setup.envs.items() for task in env.tasks}
    order = sorted(settings.places or {}, key=(settings.places or {}).__getitem__)

    def observe(planned: Collection[TakeKey]) -> list[CellData]:
        with scoring.session.timed("scoring"):
            scores = scoring.so_far()
        cells = cells_of(
            Recorded(
                settings, envs=setup.envs, policies={policy: spec}, rows=scoring.store.rows(), scores=scores, probes={},
                goes_on={uri: setup.goes_on(env) for uri, env in setup.envs.items()}, planned=set(planned),
            )
        )  # fmt: skip
        whole = [leading(merge_cells(policy, cells), set(planned), settings.places or {})] if len(cells) > 1 else []
        scoring.session.keep_round(scoring.store, policy, [*whole, *cells], settings)
        return cells

    cells = {(env, task, start): (env, groups[env, task]) for env, task, start in order}
    return Course(policy, order, cells, blocks[0].arms, settings, play, observe)


def _choose(uri: str, policy: Policy, setup: Setup, session: Session) -> Choice:
    """The retrieval of a policy's takes, with what there is to say about it, before the first of them."""
    choice = choose(uri, policy, setup.plan, setup.envs, setup.library, setup.planned, session.reporter)
    named = setup.plan.arms if "arms" in setup.plan.model_fields_set else ()
    for note in (*choice.notes, *runnable(policy.spec, named)[1]):
        session.reporter.note(note)
    session.notes += choice.notes
    if choice.check is not None:
        session.checks[uri] = choice.check
    return choice


def _admit(uri: str, spec: PolicySpec, setup: Setup, store: Store, left_out: tuple[str, ...]) -> list[Block]:
    """Bind the run to a policy and its retrieval, and note the arms that it cannot run or that are ``left_out``.

    Returns its planned takes, a block per environment.
    """
    plan = setup.plan
    store.claim(f"policy {uri}", spec.fingerprint)
    arms = tuple(arm for arm in runnable(spec, plan.arms)[0] if arm not in left_out)
    if any({"noise", "retrieval"} & {*each.settings} for each in specs_of(arms).values()):
        store.claim(f"retrieval {uri}", setup.retrieval.to_dict())
    store.skip(uri, [arm for arm in plan.arms if arm not in arms])
    return [
        Block(uri, name, plan.chosen_tasks(env), plan.chosen_starts(plan.offered(env), name), arms, plan.seeds)
        for name, env in setup.envs.items()
    ]


def _probe(policy: Policy, setup: Setup, session: Session) -> Probed | None:
    if setup.library is None or not setup.plan.probe_states:
        return None
    probed = probe_policy(policy, setup.library, setup.envs, setup.plan, session.reporter)
    session.notes += probed.notes(policy.spec.name)
    return probed
