"""The served policy is the diagnosed one: the runner's arm and a client of the server get the same actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import connect

from besttake import registry
from besttake.arms.sampler import arm_sampler
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.policies.augmented import cooled, retrieving
from besttake.policies.remote_wire import Message, pack_message, pack_openpi, unpack_message, unpack_openpi
from besttake.serving import serve
from besttake.takes.draws import Draw
from besttake.takes.engine import play
from besttake.takes.jobs import Job
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.pool import WorkerPool
from besttake.takes.store import Store
from besttake.types import F32, Observation, Start

Diagnosed = Callable[[RetrievalConfig, str], dict[int, F32]]

TASK, SEED, STEPS = "pick", 4, 60
LOOKS_BACK = RetrievalConfig(rule="current", noise=0.4, prior=0.6, onset_alignment=True, gripper_gating=True)
PLAIN = RetrievalConfig(noise=0.7, prior=0.3)


@pytest.fixture(scope="module")
def library(cache: Path) -> Library:
    return open_or_build("testbed:pick", "pixels", Options(max_demos=4))


def starts() -> tuple[int, ...]:
    return tuple(registry.env("testbed:pick").spec.starts[:2])


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory, library: Library) -> Diagnosed:
    """``diagnosed(config, arm)``; each is made once."""
    return lru_cache(lambda config, arm: played(tmp_path_factory.mktemp("run"), library, config, arm))


def played(directory: Path, library: Library, config: RetrievalConfig, arm: str) -> dict[int, F32]:
    """The actions (T, action_dim) of each start's take, by the runner itself, for the draws that a server will use."""
    env = registry.env("testbed:pick")
    sampler = arm_sampler(registry.policy("testbed:half"), env.spec.world, config, library, library.encoder())
    jobs = [
        Job(TakeKey("p", "testbed:pick", TASK, start, arm, 0), STEPS, ("wrist",), "wrist", stride=5, goes_on=True)
        for start in starts()
    ]
    pool = WorkerPool(1)
    try:
        with Store.write(directory, Manifest()) as store:
            tally = play(jobs, sampler, lambda key: Draw(SEED, key.task, key.start, 0), store, pool, slots=2)
            assert (tally.done, tally.failed) == (2, 0)
            return {take.key.start: take.actions for _, take in store.takes()}
    finally:
        pool.close()


@contextmanager
def vla_eval_client(url: str, start: int) -> Iterator[Any]:
    """``act(seen, states)`` is the one action that vla-eval's harness gets for each observation."""
    with connect(url) as socket:
        socket.send(pack_message(Message("episode_start", {"task": {"name": TASK, "episode_idx": start}})))

        def act(seen: Observation, states: list[F32]) -> F32:
            payload = {"images": dict(seen.images), "states": seen.state, "task_description": seen.instruction}
            socket.send(pack_message(Message("observation", payload, 1)))
            answer = unpack_message(socket.recv(timeout=120))
            assert answer.type == "action", answer.payload
            return np.asarray(answer.payload["actions"])[None]

        yield act


@contextmanager
def openpi_client(url: str, start: int, *, tells: bool = True) -> Iterator[Any]:
    """``act(seen, states)`` is the part of a chunk that is executed; ``tells`` the server of the episode or not."""
    with connect(url) as socket:
        replan = unpack_openpi(socket.recv(timeout=120))["besttake"]["replan"]
        told = [0]

        def act(seen: Observation, states: list[F32]) -> F32:
            step = len(states) - 1
            request = {"observation/wrist": seen.images["wrist"], "state": seen.state, "prompt": seen.instruction}
            if tells:
                entry = {"task": TASK, "start": start, "step": step, "states": np.stack(states[told[0] :])}
                request["besttake"] = entry
            told[0] = len(states)
            socket.send(pack_openpi(request))
            answer = socket.recv(timeout=120)
            assert isinstance(answer, bytes), answer
            return unpack_openpi(answer)["actions"][:replan]

        yield act


CLIENTS = {"vla-eval": vla_eval_client, "openpi": openpi_client}


def driven(act: Any, start: int) -> F32:
    """The actions (T, action_dim) of an episode of the testbed that ``act`` is asked for."""
    env = registry.env("testbed:pick")
    env.reset(Start(TASK, start))
    states, actions = [env.observe(()).state], list[Any]()
    while len(actions) < STEPS:
        for action in act(env.observe(("wrist",)), states):
            if len(actions) < STEPS:
                env.step(action)
                actions.append(action)
                states.append(env.observe(()).state)
    return np.stack(actions)


@pytest.mark.parametrize("protocol", CLIENTS)
@pytest.mark.parametrize("config", [PLAIN, LOOKS_BACK], ids=["plain", "looks back"])
def test_a_served_retrieving_policy_acts_as_the_arm_retrieve(
    library: Library, diagnosed: Diagnosed, protocol: str, config: RetrievalConfig
) -> None:
    expected = diagnosed(config, "retrieve")
    augmented = retrieving(registry.policy("testbed:half"), library, config)
    with serve(augmented, protocol, seed=SEED) as server:
        for start, actions in expected.items():
            with CLIENTS[protocol](server.url, start) as act:
                np.testing.assert_array_equal(driven(act, start), actions)


@pytest.mark.parametrize("protocol", CLIENTS)
def test_a_served_cooled_policy_acts_as_the_arm_cooled(diagnosed: Diagnosed, protocol: str) -> None:
    expected = diagnosed(PLAIN, "cooled")
    with serve(cooled(registry.policy("testbed:half"), PLAIN.noise), protocol, seed=SEED) as server:
        for start, actions in expected.items():
            with CLIENTS[protocol](server.url, start) as act:
                np.testing.assert_array_equal(driven(act, start), actions)
