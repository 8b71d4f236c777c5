"""`besttake serve` driven by the clients that other people use: vla-eval's orchestrator and openpi's client."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from vla_eval.api import run

from besttake import registry
from besttake.serve import serve
from besttake.takes.draws import Draw
from besttake.types import Start


@pytest.fixture
def policy():
    return registry.policy("testbed:mid")


def played(policy, task, index, seed, horizon):
    """Success of one take, rolled out here with the draws that the server is to use."""
    env = registry.env(f"testbed:{task}")
    env.reset(Start(task, env.spec.starts[index]))
    for step in range(horizon):
        if step % policy.spec.replan == 0:
            draw = Draw(3, task, index, seed, step // policy.spec.replan)
            seen = env.observe(policy.spec.cameras)
            chunk = policy.sample([type(seen)(seen.images, seen.state, task)], [draw])[0]
        if env.step(chunk[step % policy.spec.replan]).success:
            return True, step + 1
    return False, horizon


def test_vla_eval_evaluates_the_served_policy_and_gets_the_takes_we_get(policy, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    config = {
        "benchmarks": [
            {"benchmark": "testbed_benchmark:TestbedBenchmark", "episodes_per_task": 3, "params": {"task": "push"}}
        ]
    }
    with serve(policy, seed=3) as server:
        (result,) = run(config, server_url=server.url, output_dir=tmp_path, docker=False)
    sys.modules.pop("testbed_benchmark", None)
    episodes = result["tasks"][0]["episodes"]
    horizon = registry.env("testbed:push").spec.tasks[0].horizon
    got = [(bool(e["metrics"]["success"]), e["steps"]) for e in episodes]
    assert got == [played(policy, "push", index, 0, horizon) for index in range(3)]


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
