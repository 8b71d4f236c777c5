"""`vla-eval:ws://…` against model servers of the vla-eval package, over loopback."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from vla_eval.api import serve_background
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.specs import DimSpec

from besttake import registry
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
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


CHUNK, PROPRIO = 8, 8
"""OpenVLA-OFT's constants for LIBERO."""


@pytest.fixture
def oft(monkeypatch):
    """The names that vla-eval's OFT server imports from openvla-oft, which is on no package index."""
    asked: list[tuple[dict, str]] = []

    def get_vla_action(cfg, vla, processor, obs, task_label, action_head=None, proprio_projector=None):
        asked.append((obs, task_label))
        rows = np.full((CHUNK, 7), float(obs["state"][0]))
        rows[:, 0], rows[:, 6] = np.arange(CHUNK), [1.0, 0.0] * (CHUNK // 2)
        return list(rows)

    utils = types.ModuleType("experiments.robot.openvla_utils")
    utils.get_vla = lambda cfg: types.SimpleNamespace(llm_dim=32)
    utils.get_processor = utils.get_action_head = utils.get_proprio_projector = lambda cfg, **sizes: None
    utils.get_vla_action = get_vla_action
    constants = types.ModuleType("prismatic.vla.constants")
    constants.NUM_ACTIONS_CHUNK, constants.PROPRIO_DIM = CHUNK, PROPRIO
    modules = {"experiments": None, "experiments.robot": None, utils.__name__: utils}
    modules |= {"prismatic": None, "prismatic.vla": None, constants.__name__: constants}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module or types.ModuleType(name))
    return asked


def test_the_way_to_openvla_oft(oft):
    """vla-eval's own OFT server, as docs/policies.md runs it, around a stand-in for openvla-oft's functions."""
    from vla_eval.model_servers.oft import OFTModelServer

    with serve_background(OFTModelServer("somewhere", num_images_in_input=2, chunk_size=CHUNK)) as server:
        policy = registry.policy(f"vla-eval:{server.url}?map=agentview:agentview,wrist:wrist&horizon=8")
        before = len(oft)
        pictures = {camera: np.full((32, 32, 3), shade, np.uint8) for camera, shade in (("agentview", 1), ("wrist", 2))}
        chunk = policy.sample([Observation(pictures, np.full(8, 0.25, np.float32), "open the drawer")], [DRAW])[0]
        policy.close()
    (seen, task), *more = oft[before:]
    assert (task, more) == ("open the drawer", []), "a chunk is one inference"
    assert (seen["full_image"].max(), seen["wrist_image"].max(), list(seen["state"])) == (1, 2, [0.25] * 8)
    np.testing.assert_array_equal(chunk[:, 0], np.arange(CHUNK))
    np.testing.assert_array_equal(chunk[:, 6], [-1, 1] * (CHUNK // 2), "open is -1 in LIBERO")


def observation(value: float, instruction: str = "push") -> Observation:
    return Observation({"agentview": np.zeros((32, 32, 3), np.uint8)}, np.full(8, value, np.float32), instruction)


DRAW = Draw(0, "push", 0, 0)


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
