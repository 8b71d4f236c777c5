"""Which retrieval a diagnosis runs: as the plan says, or as the check at held-out demonstrations chooses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from besttake import registry
from besttake.config import load_plan
from besttake.core import offline
from besttake.core.offline import Check
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.demos.view import events_of
from besttake.errors import RunError
from besttake.progress import Reporter
from besttake.reporting import checks
from besttake.result import Result
from besttake.takes.manifest import Manifest
from besttake.verbs import choice as module
from besttake.verbs.check import ALPHAS, ANGLES, Asked, check_retrieval_of
from besttake.verbs.choice import check_for, choose, kept
from besttake.verbs.diagnose import diagnose
from besttake.verbs.probe import probe
from besttake.verbs.setup import open_envs

QUICK = {"env": "testbed:pick", "demos_per_task": 8, "check_states": 24}


@pytest.fixture(scope="module")
def library(cache: Path) -> Library:
    return open_or_build("testbed:pick", options=Options(max_demos=8))


@pytest.fixture(scope="module")
def check(library: Library) -> Check:
    policy = registry.policy("testbed:half")
    return check_retrieval_of(policy, library, registry.env("testbed:pick").spec.tasks, Asked(24))


def planned(library: Library, policy: Any = None, **more: Any) -> Any:
    plan = load_plan(None, {"policy": "testbed:half", "demos": str(library.path), **QUICK, **more})
    tuned = {} if library.retrieval is None else library.retrieval.to_dict()
    base = RetrievalConfig.from_dict({**tuned, **plan.retrieval.given()})
    policy = policy or registry.policy("testbed:half")
    return choose("testbed:half", policy, plan, open_envs(plan), library, base, Reporter(False))


def test_every_rule_way_and_cooling_is_tried_beside_base_and_the_mean_action(check: Check) -> None:
    configs = [one.config for one in check.tried]
    assert {c.rule for c in configs} == {"frame", "current", "next"}
    assert {c.way for c in configs} == {"start", "path", "blend"}
    assert list(check.cooled) == [0.3, 0.5, 0.7, 0.9]
    assert check.base.value is not None
    assert check.mean_action.value == pytest.approx(1.0, abs=0.1)
    worst = max(check.tried, key=lambda one: one.chunk.value or 0)
    assert worst.config.rule == "next", "what comes next is not what is done now"


def test_a_demonstration_is_never_answered_by_itself(library: Library, check: Check) -> None:
    """With its own demonstration in the search, `frame` would return the very chunk, error 0."""
    frame = next(one for one in check.tried if one.config.rule == "frame")
    assert frame.chunk.value is not None
    assert frame.chunk.value > 0.2


def test_the_same_check_gives_the_same_numbers_again(library: Library, check: Check) -> None:
    policy = registry.policy("testbed:half")
    assert check_retrieval_of(policy, library, registry.env("testbed:pick").spec.tasks, Asked(24)) == check


def answering(monkeypatch: pytest.MonkeyPatch, check: Check) -> list[Asked]:
    asked: list[Asked] = []

    def answer(policy: Any, library: Any, tasks: Any, ask: Asked, on_states: Any) -> Check:
        asked.append(ask)
        return check

    monkeypatch.setattr(module, "check_retrieval_of", answer)
    monkeypatch.setattr(module, "_read", lambda place: None)
    return asked


def test_what_passes_is_run_with_cooling_at_its_own_strength(
    library: Library, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = check.tried[0].config
    answering(monkeypatch, replace(check, chosen=good, cooling=0.7))
    made = planned(library)
    assert made.config == replace(good, cooling=0.7)
    assert made.left_out == ()
    assert "retrieval helps by frame, start 0.3" in made.notes[0]


def test_where_nothing_beats_cooling_the_arms_are_left_out_unless_named(
    library: Library, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, replace(check, chosen=None, cooling=0.5))
    made = planned(library)
    assert made.left_out == ("shuffled", "retrieve")
    assert made.config.cooled_by == 0.5
    assert "no retrieval that was tried beats cooling" in made.notes[0]
    assert "name them in `arms` to run them all the same" in made.notes[0]
    asked = planned(library, arms="base,cooled,retrieve")
    assert asked.left_out == ()
    policy = registry.policy("testbed:half")
    unable = planned(library, SimpleNamespace(spec=replace(policy.spec, warm_start=False), sample=policy.sample))
    assert "no retrieval that was tried beats cooling" in unable.notes[0]
    assert "name them in `arms`" not in unable.notes[0], "it could not run them if they were named"
    assert asked.config.rule in ("frame", "current", "next")


def test_a_plan_that_names_a_rule_gets_exactly_that(
    library: Library, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answering(monkeypatch, replace(check, chosen=None))
    made = planned(library, rule="next")
    assert made.config == RetrievalConfig(rule="next")
    assert made.left_out == ()
    assert asked[0].fixed["rule"] == "next"
    assert planned(library, rule="next", alpha=0.5).config == RetrievalConfig(rule="next", alpha=0.5)


def test_a_strength_that_is_named_holds_and_the_rest_is_chosen(library: Library) -> None:
    made = planned(library, alpha=0.4, arms="base,cooled,retrieve")
    assert made.check is not None
    assert {one.config.alpha for one in made.check.tried} == {0.4}
    assert (made.config.alpha, made.config.cooled_by) == (0.4, 0.4)


def test_a_way_in_that_the_policy_cannot_take_is_refused_in_one_line(library: Library) -> None:
    policy: Any = registry.policy("testbed:half")
    policy.spec = replace(policy.spec, flow_steps=0)
    tasks = registry.env("testbed:pick").spec.tasks
    path = check_retrieval_of(policy, library, tasks, Asked(8, fixed={"way": "path"}))
    assert path.reason == "it cannot begin in the middle of its flow; use `way` start or blend"
    free = check_retrieval_of(policy, library, tasks, Asked(8))
    assert {one.config.way for one in free.tried} == {"start", "blend"}


def test_other_ways_in_take_the_rule_whose_chunk_is_best(check: Check) -> None:
    plain = [one for one in check.tried if one.config.way == "start" and one.config.alpha == 0.3][:3]
    best = min(plain, key=lambda one: one.chunk.value or np.inf).config.rule
    assert {one.config.rule for one in check.tried if one.config.way != "start"} == {best}


def test_a_variant_that_would_be_chosen_is_tried_at_every_strength(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "choose", lambda tried: next(t.config for t in tried if t.config.rerank))
    tasks = registry.env("testbed:pick").spec.tasks
    tried = [t.config for t in check_retrieval_of(registry.policy("testbed:half"), library, tasks, Asked(8, 2)).tried]
    assert [c.alpha for c in tried if c.rerank] == list(ALPHAS["start"])


def test_the_turn_that_begins_an_event_is_chosen_too_unless_the_plan_names_it(library: Library, check: Check) -> None:
    tried = {one.config.angle for one in check.tried if one.config.rule != "frame"}
    assert tried == {None, *ANGLES}
    plan = load_plan(None, {"policy": "testbed:half", "demos": str(library.path), **QUICK, "event_angle": 60})
    named = check_for(registry.policy("testbed:half"), plan, open_envs(plan), library, Reporter(False))
    assert {one.config.angle for one in named.tried} == {None}


def test_events_by_another_turn_are_those_of_a_library_built_with_it(library: Library, cache: Path) -> None:
    other = open_or_build("testbed:pick", options=Options(max_demos=8, angle=30.0))
    own = [events_of(library, demo, 30.0).tolist() for demo in range(len(library.demos))]
    assert own == [list(demo.events) for demo in other.demos]
    assert own != [list(demo.events) for demo in library.demos]
    config = RetrievalConfig(rule="current", angle=30.0)
    steps = library.view("pick").candidates(config, 10).step.tolist()
    assert steps == [step for events in own for step in events]
    assert RetrievalConfig.from_dict(config.to_dict()) == config
    assert "angle" not in RetrievalConfig().to_dict(), "libraries and runs of before read the same"


def test_without_states_nothing_is_checked(library: Library) -> None:
    assert planned(library, check_states=0).check is None


def test_a_library_of_one_demonstration_cannot_be_held_out_and_says_so(cache: Path) -> None:
    single = open_or_build("testbed:pick", options=Options(max_demos=1))
    made = planned(single, demos_per_task=1)
    assert made.config == RetrievalConfig()
    assert "could not be checked" in made.notes[0]
    assert "it runs as next, start 0.3, which nothing chose" in made.notes[0]


def test_a_check_is_made_once_and_kept_in_the_cache(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planned(library, seed=5).check
    monkeypatch.setattr(module, "check_retrieval_of", lambda *_: pytest.fail("it was made already"))
    assert planned(library, seed=5).check == first
    assert first in [one.check for one in kept(library)]
    place = module._place(library)
    damaged = sorted(place.glob("*.json"))[0]
    text = damaged.read_text()
    damaged.write_text(text[:-40])
    assert len(kept(library)) == len(list(place.glob("*.json"))) - 1
    damaged.write_text(text)
    monkeypatch.setattr(module, "_VERSION", module._VERSION + 1)
    assert kept(library) == [], "a check by another rule is not shown"


def test_a_check_that_comes_with_a_library_is_not_believed(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sum can be right and its numbers made up: the report would show what nobody measured."""
    copy = Library.open(shutil.copytree(library.path, tmp_path / "library"))
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path / "cache"))
    true = planned(copy, seed=7).check
    (file,) = module._place(copy).glob("*.json")
    values = json.loads(file.read_text())
    values["check"]["base"]["value"] = 99.0
    del values["sha256"]
    module._keep(file, values)
    assert planned(copy, seed=7).check != true, "this is what one could do who writes into the cache"
    for folder in (copy.path / "checks", copy.path / "checks" / file.parent.name):
        folder.mkdir(exist_ok=True)
        shutil.copy(file, folder / file.name)
    shutil.rmtree(tmp_path / "cache")
    assert planned(copy, seed=7).check == true
    assert [one.check for one in kept(copy)] == [true]


def test_a_diagnosis_runs_what_it_chose_keeps_it_and_is_bound_to_it(cache: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    plan = {
        "policy": "testbed:half",
        **QUICK,
        "starts": 2,
        "seeds": 1,
        "arms": "base,cooled,retrieve",
        "probe_states": 0,
        "workers": 1,
    }
    result = diagnose(load_plan(None, plan), run)
    (made,) = result.checks.values()
    identity = Manifest.read(run).identity["retrieval testbed:half"]
    assert made.chosen is None or identity["rule"] == made.chosen.rule
    assert identity["cooling"] == made.cooling
    assert Result.load(run / "result.json").checks == result.checks
    assert any(checks.sentence(made) in note for note in result.notes)
    with pytest.raises(RunError, match="holds another plan"):
        diagnose(load_plan(None, {**plan, "rule": "next"}), run)
    assert diagnose(load_plan(None, plan), run).digest == result.digest


def test_probe_tells_it_before_a_take_is_spent(cache: Path, tmp_path: Path) -> None:
    plan = load_plan(None, {"policy": "testbed:half", **QUICK, "probe_states": 8, "arms": "base"})
    probed = probe(plan)
    (made,) = probed.checks.values()
    assert json.loads(probed.to_json())["checks"]["testbed:half"]["states"] == made.states == 24
    drawn = probed.plot()
    assert drawn is not None
    svg = drawn.svg()
    for label in ("mean action", "cooled 0.7", "frame, start 0.3", "its chunk alone"):
        assert label in svg
    labels = [line.label for line in checks.lines(made)]
    assert labels[:3] == ["mean action", "base", "cooled 0.3"]
    assert np.isfinite([one.error.value for one in made.tried if one.error.value is not None]).all()


def test_rollouts_decide_where_asked_and_are_made_once(
    library: Library, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "shortlist", lambda _: [check.tried[0].config, check.tried[1].config])
    monkeypatch.setattr(module, "_STARTS", 2)
    made = planned(library, tune="rollouts", arms="base,retrieve", workers=1)
    assert replace(made.config, cooling=None) in (check.tried[0].config, check.tried[1].config)
    assert "rollouts on 2 tuning starts choose" in made.notes[0]
    monkeypatch.setattr(module, "Bench", lambda *_: pytest.fail("they were made already"))
    assert planned(library, tune="rollouts", arms="base,retrieve", workers=1) == made
