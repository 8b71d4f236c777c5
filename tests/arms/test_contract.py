"""Our arms keep their contract, arms that break it are told so, and an arm of a third party is diagnosed like ours."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from besttake import registry
from besttake.arms.base import ArmSpec, Embed, Sample, TakeState, Tools, identity, runnable, specs_of
from besttake.arms.sampler import arm_sampler
from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.errors import ContractError, RunError
from besttake.takes.draws import Draw
from besttake.testing import check_arm
from besttake.types import F32, Observation, PolicySpec, Warm, WorldSpec
from besttake.verbs.diagnose.diagnosis import diagnose

BUILT_IN = ("base", "cooled", "shuffled", "retrieve", "rerank")
PAGE = Path(__file__).parents[2] / "docs" / "retrieval.md"


@pytest.mark.parametrize("uri", [*BUILT_IN, "retrieve?rule=frame&alpha=0.5", "retrieve?prior=0", "shuffled?alpha=0.3"])
def test_our_arms_keep_their_contract(uri: str, cache: Path) -> None:
    held = check_arm(registry.arm(uri))
    assert held[:4] == ("spec", "shape", "repeat", "batch")


class Plain:
    spec = ArmSpec("plain")

    def act(self, take: TakeState, tools: Tools) -> Generator[Any, Any, Any]:
        return (yield Sample(take.observation, take.draw))


class Restless(Plain):
    def act(self, take: TakeState, tools: Tools) -> Generator[Any, Any, Any]:
        chunk = yield Sample(take.observation, take.draw)
        return chunk + np.random.default_rng().normal()


class Nosy(Plain):
    def act(self, take: TakeState, tools: Tools) -> Generator[Any, Any, Any]:
        chunk = yield Sample(take.observation, take.draw)
        return chunk * (1 + len(take.actions))


class Peeks(Plain):
    def act(self, take: TakeState, tools: Tools) -> Generator[Any, Any, Any]:
        yield Embed(tools.picture(take))
        return (yield Sample(take.observation, take.draw))


class Short(Plain):
    def act(self, take: TakeState, tools: Tools) -> Generator[Any, Any, Any]:
        return (yield Sample(take.observation, take.draw))[:2]


class Remembers(Plain):
    """Reads what it saw at the replan before, and does not say so."""

    def act(self, take: TakeState, tools: Tools) -> Generator[Any, Any, Any]:
        chunk = yield Sample(take.observation, take.draw)
        blended = (chunk + take.memory[-1]) / 2 if take.memory else chunk
        take.memory.append(chunk)
        return blended


class SpoilsMemory(Plain):
    """Breaks at the second replan."""

    def act(self, take: TakeState, tools: Tools) -> Generator[Any, Any, Any]:
        take.memory.append("a word")
        return (yield Sample(take.observation, take.draw)) + sum(take.memory[1:])


class YieldsWords(Plain):
    def act(self, take: TakeState, tools: Tools) -> Generator[Any, Any, Any]:
        return (yield "chunk")


class SelfMade(Plain):
    spec = ArmSpec("self-made", control="self-made")


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        (Restless(), "the same take, another chunk"),
        (Nosy(), "reads the take's history"),
        (Peeks(), "KeyError: 'wrist'"),
        (Short(), r"chunk of shape \(2, 4\)"),
        (Remembers(), "reads the take's history"),
        (SpoilsMemory(), "TypeError: unsupported operand"),
        (
            YieldsWords(),
            "TypeError: an arm yields a Sample, an Embed, a Perceive, a Recall or a list of these, not 'chunk'",
        ),
        (SelfMade(), "a control other than itself"),
    ],
)
def test_an_arm_that_breaks_a_promise_is_told_which(arm: Plain, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        check_arm(arm)


class Moody:
    """A policy that fails on one start, and for whole batches that hold it."""

    spec = PolicySpec("moody", "flow", horizon=2, action_dim=1, replan=1, cools=True)

    def __init__(self) -> None:
        self.calls: list[int] = []

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        self.calls.append(len(draws))
        if any(draw.start == 1 for draw in draws):
            raise ValueError("cannot see")
        return np.stack([draw.normal((2, 1)) for draw in draws])


def requests(arms: Sequence[str], starts: Sequence[int]) -> list[TakeState]:
    return [TakeState("t", arm, Draw(0, "t", start, 0)) for arm, start in zip(arms, starts, strict=True)]


def test_wants_of_one_round_are_one_call_and_a_failing_take_fails_alone() -> None:
    policy, world = Moody(), WorldSpec("w", "eye", 1, 0)
    sampler = arm_sampler(policy, world, RetrievalConfig())
    sampler.sample(requests(["base", "cooled", "base"], [0, 2, 3]))
    assert policy.calls == [3]
    blocks = sampler.sample(requests(["base", "cooled", "base", "no-such-arm"], [0, 1, 2, 3]))
    assert [isinstance(block, Exception) for block in blocks] == [False, True, False, True]
    assert str(blocks[1]) == "cannot see"
    assert np.array_equal(blocks[2], Draw(0, "t", 2, 0).normal((2, 1))[:1])


def test_a_policy_is_offered_the_arms_whose_needs_it_meets() -> None:
    remote = PolicySpec("remote", "flow", 4, 2, 2)
    fixed = PolicySpec("fixed", "deterministic", 4, 2, 2)
    able = PolicySpec("able", "flow", 4, 2, 2, warm_start=True, cools=True)
    assert runnable(remote, BUILT_IN)[0] == ("base", "rerank")
    assert runnable(fixed, BUILT_IN)[0] == ("base",)
    assert runnable(able, BUILT_IN) == (BUILT_IN, [])
    assert runnable(replace(able, warm_start=False), BUILT_IN)[1] == [
        f"able: no {arm} arm, it cannot begin from a given chunk (`warm_start` in its spec)"
        for arm in ("shuffled", "retrieve")
    ]
    tokens = PolicySpec("tokens", "tokens", 1, 7, 1, cools=True)
    assert runnable(tokens, BUILT_IN)[0] == ("base", "cooled", "rerank")
    assert runnable(fixed, ["rerank"])[1] == ["fixed: no rerank arm, a deterministic policy has one candidate"]


def test_a_run_is_bound_to_the_settings_that_its_arms_read() -> None:
    config = RetrievalConfig(noise=0.4, prior=0.2)
    assert identity(specs_of(["base"]), config, 4, "f") == {}
    assert identity(specs_of(["base", "cooled"]), config, 4, "f") == {"noise": 0.4}
    assert identity(specs_of(["shuffled"]), config, 4, "f") == {"retrieval": config.to_dict(), "library": "f"}
    assert identity(specs_of(["rerank"]), config, 4, "f") == {"candidates": [4, "f"]}


def test_the_arm_of_the_docs_is_diagnosed_beside_ours(tmp_path: Path, cache: Path, module) -> None:
    (code,) = re.findall(r"```python\n(# mean_of_three.py\n.*?)```", PAGE.read_text(), re.S)
    assert len(code.splitlines()) <= 20
    module("mean_of_three", code)
    uri = "python:mean_of_three:make"
    assert check_arm(registry.arm(uri)) == ("spec", "shape", "repeat", "batch", "history")
    plan = Plan(
        policy="testbed:half", env="testbed:pick", starts=3, seeds=2, arms=("base", uri), probe_states=0,
        demos_per_task=2,
    )  # fmt: skip
    result = diagnose(plan, tmp_path / "run")
    assert result.cells[0].arms.arms[uri].pass_1.value is not None
    assert result.cost.takes == 12
    module("mean_of_three", code.replace('fingerprint="1"', 'fingerprint="2"'))
    del sys.modules["mean_of_three"]
    with pytest.raises(RunError, match="holds another plan"):
        diagnose(plan, tmp_path / "run")
