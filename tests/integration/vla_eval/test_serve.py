"""`besttake serve` driven by the clients that other people use: vla-eval's orchestrator and openpi's client."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from vla_eval.api import run
from vla_eval.benchmarks.libero.benchmark import LIBEROBenchmark
from vla_eval.orchestrator import _merge_observation_params
from vla_eval.specs import DimSpec, check_specs

from besttake import registry
from besttake.conventions import CLOSES_UP, CONTROLLER, LIBERO_STATE, OPENNESS, Convention
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options, build
from besttake.policies.augmented import EpisodeHistory, retrieving
from besttake.serving import connections, serve
from besttake.takes.draws import Draw
from besttake.types import Observation, PolicySpec, Start


@pytest.fixture
def policy():
    return registry.policy("testbed:mid")


def played(sample, replan, index, horizon, task="push"):
    """Success and length of one take, rolled out here with the draws that the server is to use."""
    env = registry.env(f"testbed:{task}")
    env.reset(Start(task, env.spec.starts[index]))
    history = EpisodeHistory(task)
    for step in range(horizon):
        seen = env.observe(("wrist",))
        history.states.append(seen.state)
        if step % replan == 0:
            draw = Draw(3, task, index, 0, step // replan)
            chunk = sample(Observation(seen.images, seen.state, task), draw, history)
        history.actions.append(chunk[step % replan])
        if env.step(history.actions[-1]).success:
            return True, step + 1
    return False, horizon


@pytest.fixture
def evaluated(monkeypatch, tmp_path):
    """``evaluated(url)``: success and length of three episodes of the testbed, run by vla-eval's orchestrator."""

    def run_it(url, task="push"):
        benchmark = {"benchmark": "testbed_benchmark:TestbedBenchmark", "params": {"task": task}}
        # Its own 30 seconds per action are short on a busy machine.
        config = {"benchmarks": [{**benchmark, "episodes_per_task": 3}], "server": {"timeout": 600}}
        (result,) = run(config, server_url=url, output_dir=tmp_path / task, docker=False)
        episodes = result["tasks"][0]["episodes"]
        # It counts an episode that could not be played as one that failed.
        assert not [e["failure_detail"] for e in episodes if e.get("failure_reason")]
        return [(bool(e["metrics"]["success"]), e["steps"]) for e in episodes]

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield run_it
    sys.modules.pop("testbed_benchmark", None)


def test_vla_eval_evaluates_the_served_policy_and_gets_the_takes_we_get(policy, evaluated):
    with serve(policy, seed=3) as server:
        got = evaluated(server.url)
    horizon = registry.env("testbed:push").spec.tasks[0].horizon

    def sample(seen, draw, history):
        return policy.sample([seen], [draw])[0]

    assert got == [played(sample, policy.spec.replan, index, horizon) for index in range(3)]


def test_harnesses_that_share_the_policys_calls_get_the_takes_that_each_gets_alone(policy, evaluated):
    shared = []

    class Held:
        """Its first call lasts until the other two harnesses wait for theirs, however late they begin."""

        spec = policy.spec

        def sample(self, observations, draws, warm=None):
            end = time.monotonic() + 300
            while not shared and len(server._batches._waiting) < 2 and time.monotonic() < end:
                time.sleep(0.01)
            shared.append(len(observations))
            return policy.sample(observations, draws, warm)

    tasks = ("push", "pick", "stack")
    with serve(Held(), seed=3) as server, ThreadPoolExecutor(3) as pool:
        got = list(pool.map(lambda task: evaluated(server.url, task), tasks))
    assert max(shared) > 1
    for task, episodes in zip(tasks, got, strict=True):
        horizon = registry.env(f"testbed:{task}").spec.tasks[0].horizon
        alone = [
            played(lambda seen, draw, _: policy.sample([seen], [draw])[0], policy.spec.replan, index, horizon, task)
            for index in range(3)
        ]
        assert episodes == alone


def test_vla_eval_evaluates_what_the_command_serves_with_retrieval(policy, evaluated, tmp_path):
    """`besttake serve --retrieve` in a process of its own; the rule `next` looks back at the events of the episode."""
    config = RetrievalConfig(noise=0.5, prior=0.5)
    library = build(
        registry.demos("testbed:push"), registry.encoder("pixels"), tmp_path / "library", Options(max_demos=3)
    )
    command = [sys.executable, "-m", "besttake", "serve", "--policy", "testbed:mid", "--port", "0", "--seed", "3"]
    dials = ["--retrieve", str(library.path), "--noise", "0.5", "--prior", "0.5"]
    server = subprocess.Popen([*command, *dials], stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        got = evaluated(re.search(r"ws://\S+", line).group())
    finally:
        server.terminate()
        server.wait(timeout=120)
    horizon = registry.env("testbed:push").spec.tasks[0].horizon
    ours = retrieving(policy, library, config)
    assert got == [played(ours.follow, policy.spec.replan, index, horizon) for index in range(3)]


def test_vla_evals_libero_takes_all_that_is_asked_of_it_and_finds_the_numbers_to_be_its_own():
    """The classes of vla-eval that the orchestrator compares by; they need no LIBERO for that."""
    libero = Convention(CLOSES_UP, LIBERO_STATE, CONTROLLER)
    spec = PolicySpec(
        "p", "flow", 4, 7, 2, ("agentview", "wrist"), state_dim=8, prompted=True, convention=libero
    )  # fmt: skip
    asked = connections.observation_params(spec, {camera: camera for camera in spec.cameras})
    merged = _merge_observation_params(LIBEROBenchmark, {}, asked)
    assert merged == {"send_wrist_image": True, "send_state": True, "quat_no_antipodal": True}
    benchmark = LIBEROBenchmark(**merged)

    def mismatches(spec):
        ours = (connections.action_spec(spec), connections.observation_spec(spec))
        action, seen = ({name: DimSpec.from_dict(one) for name, one in spec.items()} for spec in ours)
        return check_specs(action, benchmark.get_action_spec(), seen, benchmark.get_observation_spec())

    assert mismatches(spec) == []
    opens = replace(spec, convention=replace(libero, gripper=OPENNESS))
    assert mismatches(opens) == ["action [gripper]: gripper: continuous_01 vs binary_close_positive"]


def test_openpis_client_gets_chunks_and_its_broker_plays_them(policy):
    env = registry.env("testbed:push")
    env.reset(Start("push", env.spec.starts[0]))
    seen = env.observe(policy.spec.cameras)
    request = {"observation/state": seen.state, "prompt": seen.instruction}
    request |= {f"observation/{camera}": image for camera, image in seen.images.items()}
    with serve(policy, "openpi", token="secret", seed=3) as server:
        client = WebsocketClientPolicy("127.0.0.1", server.port, api_key="secret")
        assert client.get_server_metadata()["besttake"]["action_dim"] == policy.spec.action_dim
        chunk = client.infer(request)["actions"]
        np.testing.assert_array_equal(chunk, policy.sample([seen], [Draw(3, "connection", 0, 0)])[0])

        broker = ActionChunkBroker(client, action_horizon=policy.spec.replan)
        rows = [broker.infer(request)["actions"] for _ in range(policy.spec.replan + 1)]
        expected = policy.sample([seen] * 2, [Draw(3, "connection", 0, 0, c) for c in (1, 2)])
        np.testing.assert_array_equal(np.stack(rows[:-1]), expected[0, : policy.spec.replan])
        np.testing.assert_array_equal(rows[-1], expected[1, 0])

        with pytest.raises(RuntimeError, match="state"):
            client.infer({"prompt": "push"})
        assert client.infer(request)["actions"].shape == chunk.shape
