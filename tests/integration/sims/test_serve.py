"""vla-eval runs its LIBERO benchmark, as it is by default, against `besttake serve`: the policy gets all it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from besttake import registry
from besttake.conventions import LIBERO_STATE, Convention
from besttake.envs.libero.install import import_libero, locate
from besttake.serving import serve
from besttake.types import PolicySpec, Start

STEPS = 3
LIBERO = {"benchmark": "vla_eval.benchmarks.libero.benchmark:LIBEROBenchmark", "params": {"suite": "libero_object"}}


class Watcher:
    """Moves a little, and keeps what it was shown."""

    def __init__(self, **spec: Any) -> None:
        self.spec = PolicySpec("watcher", "deterministic", 1, 7, 1, **{"state_dim": 8, "prompted": True, **spec})
        self.seen: list[Any] = []

    def sample(self, observations, draws, warm=None):
        self.seen += observations
        return np.full((len(observations), 1, 7), 0.1, np.float32)


@pytest.fixture
def evaluated(assets, tmp_path):
    """``evaluated(url)``: the episodes of two starts of one task, run by vla-eval's orchestrator."""
    pytest.importorskip("vla_eval")
    from vla_eval.api import run

    import_libero(locate())

    def run_it(url):
        config = {"benchmarks": [{**LIBERO, "episodes_per_task": 2, "max_tasks": 1, "max_steps": STEPS}]}
        (result,) = run(config, server_url=url, output_dir=tmp_path, docker=False)
        return result["tasks"][0]["episodes"]

    return run_it


def test_vla_evals_libero_sends_the_wrist_and_the_state_that_the_policy_was_trained_on(evaluated):
    policy = Watcher(cameras=("agentview", "wrist"), convention=Convention(state=LIBERO_STATE))
    with serve(policy) as server:
        episodes = evaluated(server.url)
    assert [(episode["steps"], episode.get("failure_reason")) for episode in episodes] == [(STEPS, None)] * 2
    assert len(policy.seen) == 2 * STEPS
    env = registry.env("libero:object?task=0")
    task = env.spec.tasks[0]
    for start, seen in enumerate(policy.seen[::STEPS]):
        env.reset(Start(task.name, start))
        ours = env.observe(("agentview", "wrist"))
        assert seen.instruction == task.instruction
        assert {name: image.shape for name, image in seen.images.items()} == dict.fromkeys(
            ("agentview", "wrist"), (256, 256, 3)
        )
        np.testing.assert_allclose(seen.state, ours.state, atol=2e-3)
    env.close()
