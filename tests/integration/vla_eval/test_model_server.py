"""`vla-eval:ws://…` against model servers of the vla-eval package, over loopback."""

from __future__ import annotations

import numpy as np
import pytest
from vla_eval.api import serve_background
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.specs import DimSpec

from besttake import registry
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.testing import check_policy
from besttake.types import Observation


class Countdown(PredictModelServer):
    """Chunk row k is ``state mean + k``; fails on the instruction "fail"."""

    def __init__(self, rows: int = 6, **options):
        super().__init__(**options)
        self.rows = rows
        self.inferences = 0

    def predict(self, obs, ctx):
        self.inferences += 1
        if obs["task_description"] == "fail":
            raise KeyError("no such task")
        assert obs["images"]["agentview"].dtype == np.uint8
        base = float(np.mean(obs["states"]))
        return {"actions": base + np.arange(self.rows, dtype=np.float32)[:, None] * np.ones((1, 7))}

    def predict_batch(self, obs_batch, ctx_batch):
        return [self.predict(obs, ctx) for obs, ctx in zip(obs_batch, ctx_batch, strict=True)]

    def get_action_spec(self):
        return {"all": DimSpec("all", 7, "raw")}

    def get_observation_spec(self):
        return {}


def observation(value: float, instruction: str = "push") -> Observation:
    return Observation({"agentview": np.zeros((32, 32, 3), np.uint8)}, np.full(8, value, np.float32), instruction)


DRAW = Draw(0, "push", 0, 0)


def test_a_server_that_answers_whole_chunks_needs_no_options():
    with serve_background(Countdown()) as server:
        policy = registry.policy(f"vla-eval:{server.url}")
        assert (policy.spec.horizon, policy.spec.action_dim) == (6, 7)
        assert policy.server["model_server"] == "Countdown"
        assert check_policy(policy) == ("shape",)
        np.testing.assert_array_equal(policy.sample([observation(2)], [DRAW])[0, :, 0], 2 + np.arange(6))
        policy.close()


def test_a_server_that_buffers_its_chunk_gives_it_for_one_inference_and_forgets_it_for_the_next_row():
    model = Countdown(chunk_size=4)
    with serve_background(model) as server:
        policy = registry.policy(f"vla-eval:{server.url}?horizon=4")
        before = model.inferences
        got = policy.sample([observation(0), observation(10)], [DRAW, DRAW])
        policy.close()
    np.testing.assert_array_equal(got[:, :, 0], [[0, 1, 2, 3], [10, 11, 12, 13]])
    assert model.inferences - before == 2


def test_rows_of_a_batch_reach_a_batching_server_over_several_connections():
    with serve_background(Countdown(max_batch_size=4, max_wait_time=0.05)) as server:
        policy = registry.policy(f"vla-eval:{server.url}?connections=4")
        got = policy.sample([observation(v) for v in range(8)], [DRAW] * 8)
        policy.close()
    np.testing.assert_array_equal(got[:, 0, 0], np.arange(8))


def test_an_exception_in_the_model_is_one_line_and_the_next_sample_works():
    with serve_background(Countdown()) as server:
        policy = registry.policy(f"vla-eval:{server.url}")
        with pytest.raises(ComponentError, match="the server failed: observation_failed: KeyError: 'no such task'"):
            policy.sample([observation(0, "fail")], [DRAW])
        assert policy.sample([observation(0)], [DRAW]).shape == (1, 6, 7)
        policy.close()


def test_a_server_that_is_killed_and_comes_back_is_found_again():
    server = serve_background(Countdown())
    policy = registry.policy(f"vla-eval:{server.url}?timeout=60")
    server.close()
    with pytest.raises(ComponentError, match="is the server running"):
        policy.sample([observation(0)], [DRAW])
    with serve_background(Countdown(), port=server.port):
        assert policy.sample([observation(0)], [DRAW]).shape == (1, 6, 7)
        policy.close()
