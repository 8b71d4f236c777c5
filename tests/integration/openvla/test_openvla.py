"""`openvla:` on a tiny random model of OpenVLA's own interface class, loaded with the code in its checkpoint."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from besttake import registry
from besttake.config import Plan
from besttake.demos.build import Options, build
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.takes.store import Store
from besttake.testing import check_encoder, check_policy
from besttake.types import Observation, Start, Warm
from besttake.verbs.diagnose.diagnosis import diagnose


@pytest.fixture(scope="module")
def policy(checkpoint):
    return registry.policy(f"openvla:{checkpoint}?trust_remote_code=true")


@pytest.fixture(scope="module")
def greedy(checkpoint):
    return registry.policy(f"openvla:{checkpoint}?trust_remote_code=true&temperature=0")


def observation(seed=0, instruction="Pick up the cube"):
    image = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), np.uint8)
    return Observation({"agentview": image}, np.zeros(8, np.float32), instruction)


def test_sampling_keeps_the_contract(policy):
    assert check_policy(policy) == ("shape", "repeat", "batch", "draw", "warm")
    assert (policy.spec.kind, policy.spec.horizon, policy.spec.action_dim) == ("tokens", 1, 7)
    assert (policy.spec.cools, policy.spec.warm_start, policy.spec.seeded) == (True, False, True)


def test_greedy_is_deterministic_and_says_so(greedy):
    assert check_policy(greedy) == ("shape", "repeat", "batch", "draw")
    assert greedy.spec.kind == "deterministic"


def test_k_samples_differ_between_draws_repeat_within_one_and_stay_in_the_data_sets_range(policy):
    seen = [observation()] * 6
    draws = [Draw(0, "t", 0, seed) for seed in range(6)]
    torch.manual_seed(1)
    first = policy.sample(seen, draws)
    torch.manual_seed(2)
    np.testing.assert_array_equal(first, policy.sample(seen, draws))
    assert len({row.tobytes() for row in first}) > 1
    assert (first[..., :6] >= -0.6001).all()
    assert (first[..., :6] <= 0.7001).all()


def test_sampling_leaves_torchs_generator_alone(policy):
    torch.manual_seed(3)
    policy.sample([observation()], [Draw(0, "t", 0, 0)])
    after = torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(2))


def test_the_mask_covers_the_token_that_is_added_after_the_prompt(greedy, monkeypatch):
    """Left alone, predict_action changes the ids and not the mask."""
    asked = {}
    model = greedy._model
    plain = type(model).generate

    def spy(self, input_ids, **settings):
        asked.update(ids=input_ids, mask=settings["attention_mask"])
        return plain(self, input_ids, **settings)

    monkeypatch.setattr(type(model), "generate", spy)
    greedy.sample([observation()], [Draw(0, "t", 0, 0)])
    assert asked["ids"].shape == asked["mask"].shape
    assert int(asked["ids"][0, -1]) == 29871
    prompt = greedy._processor.tokenizer("In: What action should the robot take to pick up the cube?\nOut:")
    assert asked["ids"][0, :-1].tolist() == prompt["input_ids"]


def test_cooled_is_the_temperature_times_the_noise(policy, checkpoint):
    cooler = registry.policy(f"openvla:{checkpoint}?trust_remote_code=true&temperature=0.7")
    seen, draws = [observation(s) for s in range(4)], [Draw(0, "t", s, 0) for s in range(4)]
    np.testing.assert_array_equal(policy.sample(seen, draws, [Warm(0.7)] * 4), cooler.sample(seen, draws))


def test_liberos_gripper_is_plus_or_minus_one(checkpoint):
    libero = registry.policy(f"openvla:{checkpoint}?trust_remote_code=true&gripper=libero&crop=true")
    got = libero.sample([observation(s) for s in range(3)], [Draw(0, "t", s, 0) for s in range(3)])
    assert set(np.abs(got[:, 0, 6])) <= {0.0, 1.0}


class Few:
    """The testbed with a short horizon: one action per sample makes long takes slow."""

    def __init__(self):
        self.env = registry.env("testbed:push")
        task = replace(self.env.spec.tasks[0], horizon=4)
        self.spec = replace(self.env.spec, tasks=(task,), fingerprint="few")

    def __getattr__(self, name):
        return getattr(self.env, name)


def test_a_whole_diagnosis_with_cooling_and_re_ranking_at_every_step(make_checkpoint, tmp_path, monkeypatch):
    """A checkpoint of the testbed's four actions; token policies have no warm start, and the result says so."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    stats = {"action": {"q01": [-1.0] * 4, "q99": [1.0] * 4, "mask": [True] * 4}}
    (tmp_path / "policy").mkdir()
    library = build(
        registry.demos("testbed:push"), registry.encoder("pixels"), tmp_path / "library", Options(max_demos=2)
    )
    plan = Plan(
        policy=[f"openvla:{make_checkpoint(tmp_path / 'policy', {'testbed': stats})}?camera=wrist"],
        env=["python:test_openvla:Few"], demos=str(library.path), starts="1", seeds=2, candidates=2, probe_states=0,
        arms=["base", "cooled", "retrieve", "rerank"], trust_remote_code=True, workers=1,
    )  # fmt: skip
    result = diagnose(plan, tmp_path / "run")
    (cell,) = result.cells
    assert (cell.takes, cell.errors) == (6, 0)
    assert any("no retrieve arm" in note for note in result.notes)
    actions = {take.key: take.actions for _, take in Store.open(tmp_path / "run").takes()}
    assert len({a.tobytes() for key, a in actions.items() if key.arm == "base"}) == 2
    env, policy = Few(), registry.policy(f"{plan.policy[0]}&trust_remote_code=true")
    for key, got in actions.items():
        env.reset(Start(key.task, key.start))
        seen, draw = env.observe(("wrist",)), Draw(0, f"python/{key.task}", key.start, key.seed)
        first = policy.sample([seen] * 2, [draw.candidate(number) for number in range(2)])[:, 0]
        if key.arm == "base":
            np.testing.assert_array_equal(got[0], first[0])
        if key.arm == "rerank":
            assert any(np.array_equal(got[0], one) for one in first)


def test_what_cannot_be_done_is_one_clear_line(policy, greedy, checkpoint, make_checkpoint, tmp_path):
    stats = policy._model.norm_stats["bridge"]
    two = make_checkpoint(tmp_path, {"bridge": stats, "fractal": stats})
    oft = shutil.copytree(two, tmp_path.parent / f"{tmp_path.name}-oft")
    shutil.copy(tiny.code("openvla_oft") / "modeling_prismatic.py", oft)
    chunk = np.zeros((1, 7), np.float32)
    cases = [
        (lambda: registry.policy(f"openvla:{checkpoint}"), "runs code from its checkpoint"),
        (lambda: registry.policy(f"openvla:{two}?trust_remote_code=true"), "one of: bridge, fractal"),
        (
            lambda: registry.policy(f"openvla:{two}?trust_remote_code=true&unnorm_key=libero"),
            "unnorm_key=libero is not there",
        ),
        (lambda: registry.policy(f"openvla:{oft}?trust_remote_code=true"), "an OpenVLA-OFT; serve it with vla-eval's"),
        (lambda: registry.policy("openvla:no/where?trust_remote_code=true"), "not available from the hub"),
        (
            lambda: policy.sample([observation()], [Draw(0, "t", 0, 0)], [Warm(0.7, 0.3, chunk)]),
            "cannot be warm-started",
        ),
        (lambda: greedy.sample([observation()], [Draw(0, "t", 0, 0)], [Warm(0.7)]), "nothing to cool"),
        (
            lambda: policy.sample(
                [Observation({"front": np.zeros((8, 8, 3), np.uint8)}, chunk[0])], [Draw(0, "t", 0, 0)]
            ),
            "needs camera 'agentview'; the env gave: front",
        ),
    ]
    for attempt, words in cases:
        with pytest.raises(ComponentError, match=words) as error:
            attempt()
        assert "\n" not in str(error.value)


def test_the_encoders_of_vision_run_beside_it(tmp_path):
    import transformers

    transformers.Dinov2Model(transformers.Dinov2Config(num_hidden_layers=1)).save_pretrained(tmp_path)
    check_encoder(registry.encoder(f"dinov2:{tmp_path}"))
