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

from besttake import files, registry
from besttake.config import load_plan
from besttake.core.offline import GroupCheck, RetrievalCheck
from besttake.core.retrieve import RetrievalConfig
from besttake.core.stats import Estimate
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.errors import RunError
from besttake.progress import Reporter
from besttake.reporting import words
from besttake.result import Result
from besttake.takes.manifest import Manifest
from besttake.verbs.diagnose import choice as module
from besttake.verbs.diagnose.check import ANGLES, FIRST, NOISES, PRIORS, CheckSettings, check_retrieval_of
from besttake.verbs.diagnose.choice import check_for, choose_retrieval, config_of
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.diagnose.setup import open_envs

QUICK = {"env": "testbed:pick", "demos_per_task": 8, "check_states": 24}


@pytest.fixture(scope="module")
def library(cache: Path) -> Library:
    return open_or_build("testbed:pick", options=Options(max_demos=8))


@pytest.fixture(scope="module")
def check(library: Library) -> RetrievalCheck:
    policy = registry.policy("testbed:half")
    return check_retrieval_of(policy, library, registry.env("testbed:pick").spec.tasks, CheckSettings(24))


def planned(library: Library, policy: Any = None, **more: Any) -> Any:
    plan = load_plan(None, {"policy": "testbed:half", "demos": str(library.path), **QUICK, **more})
    base = RetrievalConfig.from_dict(plan.retrieval.given())
    policy = policy or registry.policy("testbed:half")
    return choose_retrieval("half", policy, plan, open_envs(plan), library, base, Reporter(False))


def test_noise_is_chosen_first_and_every_rule_and_prior_is_tried_at_that_noise(check: RetrievalCheck) -> None:
    configs = [one.config for one in check.tried]
    assert tuple(check.cooled) == NOISES
    errors = {noise: error.value for noise, error in check.cooled.items()}
    assert check.noise == min(errors, key=lambda noise: errors[noise] or np.inf)
    assert errors[1.0] == check.base.value
    assert {c.noise for c in configs} == {check.noise}
    assert [c.rule for c in configs[:3]] == ["frame", "current", "next"]
    assert {c.prior for c in configs[:3]} == {FIRST}
    swept = {replace(c, prior=FIRST) for c in configs if c.prior != FIRST}
    assert len(swept) == 1, "priors are tried for the best of all"
    assert {c.prior for c in configs if replace(c, prior=FIRST) in swept} == {*PRIORS}
    assert check.base.value is not None
    assert check.mean_action.value == pytest.approx(1.0, abs=0.1)
    worst = max(check.tried, key=lambda one: one.chunk.value or 0)
    assert worst.config.rule == "next", "what comes next is not what is done now"


def test_a_demonstration_is_never_answered_by_itself(library: Library, check: RetrievalCheck) -> None:
    """With its own demonstration in the search, `frame` would return the very chunk, error 0."""
    frame = next(one for one in check.tried if one.config.rule == "frame")
    assert frame.chunk.value is not None
    assert frame.chunk.value > 0.2


def answering(monkeypatch: pytest.MonkeyPatch, check: RetrievalCheck) -> list[CheckSettings]:
    asked: list[CheckSettings] = []

    def answer(policy: Any, library: Any, tasks: Any, ask: CheckSettings, on_states: Any) -> RetrievalCheck:
        asked.append(ask)
        return check

    monkeypatch.setattr(module, "check_retrieval_of", answer)
    monkeypatch.setattr(module, "_read", lambda place: None)
    return asked


def test_the_check_chooses_noise_prior_and_rule_and_says_what_it_expects(
    library: Library, check: RetrievalCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = replace(check.tried[0], added=Estimate(-0.05, -0.07, -0.03))
    answering(monkeypatch, replace(check, chosen=good.config, noise=0.1, tried=(good,)))
    made = planned(library)
    assert (made.config, made.left_out) == (good.config, ())
    assert "by 0.05 [0.03, 0.07]: expect a gain over cooling" in made.notes[0]


def test_where_no_prior_helps_the_arms_are_left_out_unless_named(
    library: Library, check: RetrievalCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, replace(check, chosen=None))
    made = planned(library)
    assert made.left_out == ("shuffled", "retrieve")
    assert made.config.noise == check.noise
    assert "shuffled and retrieve not run; name them in `arms`" in made.notes[0]
    assert planned(library, noise=0.7).left_out == ("shuffled", "retrieve"), "`cooled` reads it, too"
    asked = planned(library, arms="base,cooled,retrieve")
    assert asked.left_out == ()
    assert asked.config == min(check.tried, key=lambda one: one.added.value or 0).config
    policy = registry.policy("testbed:half")
    answering(monkeypatch, replace(check, chosen=None, tried=()))
    unable = planned(library, SimpleNamespace(spec=replace(policy.spec, warm_start=False), sample=policy.sample))
    assert unable.notes[0].endswith(f"noise {check.noise:g} does best"), "it could not run what it is told to name"
    assert unable.config.noise == check.noise


def test_task_groups_have_priors_of_their_own_where_the_data_allow(cache: Path) -> None:
    policy, tasks = registry.policy("testbed:half"), registry.env("testbed").spec.tasks[:2]
    few = open_or_build("testbed", options=Options(max_demos=4))
    assert check_retrieval_of(policy, few, tasks, CheckSettings(16, 2)).groups == {}, "4 demonstrations are too few"
    many = open_or_build("testbed", options=Options(max_demos=12))
    made = check_retrieval_of(policy, many, tasks, CheckSettings(48, 4))
    assert {name: group.states for name, group in made.groups.items()} == {"pick": 24, "push": 24}
    alone = check_retrieval_of(policy, many, tasks[:1], CheckSettings(24, 4))
    assert alone.groups == {}
    assert made.groups["pick"].added.value in [one.added.value for one in alone.tried], "the same states and samples"
    assert check_retrieval_of(policy, many, tasks, CheckSettings(48, 4, fixed={"prior": 0.2})).groups == {}


def test_priors_by_group_become_priors_by_task(check: RetrievalCheck) -> None:
    tasks = registry.env("testbed").spec.tasks
    good = replace(check.tried[0], config=replace(check.tried[0].config, noise=0.1))
    added = Estimate(-0.05, -0.07, -0.03)
    groups = {
        "pick": GroupCheck(60, 0.3, added),
        "push": GroupCheck(60, 0.0, Estimate(0.01)),
        "drawer": GroupCheck(60, 0.2, added),
    }
    made = replace(check, noise=0.1, tried=(good,), chosen=good.config, groups=groups)
    config = config_of(made, RetrievalConfig(), tasks)
    assert [config.prior_of(task.name) for task in tasks] == [0.3, 0.0, 0.2, 0.2]
    assert config.prior_of(tasks[1].instruction) == 0
    assert RetrievalConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    only = config_of(replace(made, chosen=None), RetrievalConfig(), tasks)
    assert [only.prior_of(task.name) for task in tasks] == [0.3, 0.0, 0.2, 0.0]
    nowhere = replace(made, chosen=None, groups={"push": groups["push"]})
    assert not nowhere.helps
    assert config_of(nowhere, RetrievalConfig(), tasks) == good.config


def test_a_plan_that_names_rule_and_dials_gets_exactly_that(
    library: Library, check: RetrievalCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answering(monkeypatch, replace(check, chosen=None))
    made = planned(library, rule="next", noise=0.7, prior=0.3)
    assert made.config == RetrievalConfig(rule="next", noise=0.7, prior=0.3)
    assert made.left_out == ()
    assert asked[0].fixed["rule"] == "next"


def test_what_is_named_holds_and_the_rest_is_chosen(library: Library) -> None:
    made = planned(library, noise=0.5, arms="base,cooled,retrieve")
    assert made.check is not None
    assert {one.config.noise for one in made.check.tried} == {0.5}
    assert (list(made.check.cooled), made.config.noise) == ([0.5], 0.5)
    made = planned(library, prior=0.3, arms="base,cooled,retrieve")
    assert {one.config.prior for one in made.check.tried} == {0.3}
    made = planned(library, rule="current", arms="base,cooled,retrieve")
    assert {(one.config.rule, one.config.angle) for one in made.check.tried} == {("current", None)}
    assert {one.config.prior for one in made.check.tried} == {*PRIORS}


def test_a_policy_that_cannot_be_cooled_is_compared_at_its_own_noise_and_one_that_cannot_retrieve_is_only_cooled(
    library: Library,
) -> None:
    policy: Any = registry.policy("testbed:half")
    tasks, plain = registry.env("testbed:pick").spec.tasks, policy.spec
    policy.spec = replace(plain, cools=False)
    hot = check_retrieval_of(policy, library, tasks, CheckSettings(8, 2))
    assert (list(hot.cooled), {one.config.noise for one in hot.tried}) == ([1.0], {1.0})
    policy.spec = replace(plain, warm_start=False)
    calm = check_retrieval_of(policy, library, tasks, CheckSettings(8, 2))
    assert (len(calm.cooled), calm.tried, calm.chosen) == (5, (), None)
    policy.spec = replace(plain, warm_start=False, cools=False)
    assert check_retrieval_of(policy, library, tasks, CheckSettings(8, 2)).reason


def test_the_turn_that_begins_an_event_is_chosen_too_unless_the_plan_names_it(
    library: Library, check: RetrievalCheck
) -> None:
    best = check.tried[0].config.rule
    tried = {one.config.angle for one in check.tried}
    assert best == "frame" or tried == {None, *ANGLES}
    plan = load_plan(None, {"policy": "testbed:half", "demos": str(library.path), **QUICK, "event_angle": 60})
    named = check_for(registry.policy("testbed:half"), plan, open_envs(plan), library, Reporter(False))
    assert {one.config.angle for one in named.tried} == {None}


def test_a_check_is_made_once_and_kept_in_the_cache(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planned(library, seed=5).check
    monkeypatch.setattr(module, "check_retrieval_of", lambda *_: pytest.fail("it was made already"))
    assert planned(library, seed=5).check == first
    folder = files.cache_dir() / module.FOLDER / files.short_hash(library.fingerprint)
    damaged = sorted(folder.glob("*.json"))[0]
    text = damaged.read_text()
    damaged.write_text(text[:-40])
    assert module._read(damaged) is None
    damaged.write_text(text)
    monkeypatch.setattr(module, "_VERSION", module._VERSION + 1)
    assert module._read(damaged) is None, "a check by another rule is made again"


def test_a_check_that_comes_with_a_library_is_not_believed(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sum can be right and its numbers made up: the report would show what nobody measured."""
    copy = Library.open(shutil.copytree(library.path, tmp_path / "library"))
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path / "cache"))
    true = planned(copy, seed=7).check
    (file,) = (tmp_path / "cache").rglob(f"{module.FOLDER}/*/*.json")
    values = json.loads(file.read_text())
    values["check"]["base"]["value"] = 99.0
    del values["sha256"]
    module._write(file, values)
    assert planned(copy, seed=7).check != true, "this is what one could do who writes into the cache"
    for folder in (copy.path / "checks", copy.path / "checks" / file.parent.name):
        folder.mkdir(exist_ok=True)
        shutil.copy(file, folder / file.name)
    shutil.rmtree(tmp_path / "cache")
    assert planned(copy, seed=7).check == true


def test_a_diagnosis_runs_what_it_chose_keeps_it_and_is_bound_to_it(cache: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = {"starts": 2, "seeds": 1, "arms": "base,cooled,retrieve", "probe_states": 0, "workers": 1}
    plan = {"policy": "testbed:half", **QUICK, **small}
    result = diagnose(load_plan(None, plan), run)
    (made,) = result.checks.values()
    identity = Manifest.read(run).identity["retrieval testbed:half"]
    assert made.chosen is None or identity["rule"] == made.chosen.rule
    assert identity["noise"] == made.noise
    assert Result.load(run / "result.json").checks == result.checks
    assert any(words.check_sentence(made) in note for note in result.notes)
    with pytest.raises(RunError, match="holds another plan"):
        diagnose(load_plan(None, {**plan, "rule": "next"}), run)
    assert diagnose(load_plan(None, plan), run).digest == result.digest
