"""What a user of lerobot-eval gets and must get here, where families and checkpoints differ; and policies of tokens."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from bench.families import compare, lerobots, observations, played
from PIL import Image

from besttake import registry
from besttake.conventions import Gripper
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.testing import check_policy
from besttake.types import Warm

DRAWS = [Draw(5, "task", start=0, seed=seed) for seed in range(6)]


def loaded(where, options=""):
    return registry.policy(f"lerobot:{where}?{options}", trust_remote_code=True)


def test_a_checkpoint_saved_for_mixed_precision_is_sampled_in_it(checkpoint, tmp_path):
    mixed = tiny.changed(checkpoint("act"), tmp_path / "mixed", use_amp=True)
    spec, far = compare(mixed)
    plain, amp = (loaded(where, "width=1") for where in (checkpoint("act"), mixed))
    assert far < 1e-5
    assert spec.fingerprint.endswith("/amp")
    full, half = (policy.sample(observations(1), DRAWS[:1]) for policy in (plain, amp))
    assert np.abs(full - half).max() > 1e-3
    np.testing.assert_array_equal(loaded(mixed, "width=1&dtype=float32").sample(observations(1), DRAWS[:1]), full)


def test_cameras_that_the_checkpoint_renames_are_fed_by_the_names_of_its_data(tmp_path):
    """lerobot-eval must be told the same map again; a policy fine-tuned on LIBERO then has camera1 and camera2."""
    tiny.make_act(tmp_path, robot=tiny.Robot(cameras=("camera1", "camera2")))
    file = tmp_path / "policy_preprocessor.json"
    saved = json.loads(file.read_text())
    names = {f"observation.images.{old}": f"observation.images.{new}" for old, new in
             (("image", "camera1"), ("image2", "camera2"))}  # fmt: skip
    (step,) = (step for step in saved["steps"] if step.get("registry_name") == "rename_observations_processor")
    step["config"]["rename_map"] = names
    file.write_text(json.dumps(saved))
    ours, (seen,) = loaded(tmp_path, "width=1"), observations(1)
    assert ours.cameras == {"observation.images.image": "agentview", "observation.images.image2": "wrist"}
    theirs = played(lerobots(tmp_path, renamed=names), [seen], DRAWS[0], ())
    np.testing.assert_allclose(ours.sample([seen], DRAWS[:1])[0, :1], theirs, atol=1e-5)
    assert loaded(tmp_path, "map=camera1:front").cameras["observation.images.image"] == "front"


RESIZING = pytest.mark.parametrize(
    ("make", "settings"),
    [
        (tiny.make_diffusion, {"resize_shape": (64, 64)}),
        (tiny.make_multi_task, {"image_resize_shape": (64, 64), "image_crop_shape": None}),
    ],
)


@RESIZING
def test_a_policy_that_resizes_pictures_itself_gets_them_as_the_env_gives_them(tmp_path, make, settings):
    (tmp_path / "made").mkdir()
    make(tmp_path / "made", **settings)
    _, far = compare(tmp_path / "made", size=96)
    assert far < 1e-5


def unlike(size, other):
    """An observation whose cameras differ in size."""
    (seen,), (smaller,) = observations(1, size), observations(1, other)
    return replace(seen, images={"agentview": seen.images["agentview"], "wrist": smaller.images["wrist"]})


@RESIZING
def test_cameras_of_different_sizes_reach_a_class_that_stacks_them_at_the_size_of_training(tmp_path, make, settings):
    (tmp_path / "made").mkdir()
    make(tmp_path / "made", **settings)
    ours, seen = loaded(tmp_path / "made", "width=1"), unlike(96, 48)
    trained = {camera: np.asarray(Image.fromarray(picture).resize((64, 64), Image.Resampling.BILINEAR))
               for camera, picture in seen.images.items()}  # fmt: skip
    np.testing.assert_array_equal(
        ours.sample([seen], DRAWS[:1]), ours.sample([replace(seen, images=trained)], DRAWS[:1])
    )


def test_fastwam_plays_liberos_gripper_and_takes_it_back_for_a_warm_start(tmp_path):
    """Its own processor makes -1 of what is above a half and +1 of the rest."""
    (tmp_path / "made").mkdir()
    tiny.make_fastwam(tmp_path / "made", toggle_action_dimensions=[-1])
    ours, (seen,) = loaded(tmp_path / "made"), observations(1)
    assert (ours.spec.horizon, ours.spec.replan) == (8, 4)
    assert ours.spec.convention.gripper == Gripper(-1, 1)
    sent = np.random.default_rng(8).uniform(-0.6, 0.6, (1, 8, 7)).astype(np.float32)
    sent[..., 6] = [-1, 1, -1, 1, 1, -1, -1, 1]
    latent = ours.latent([seen], sent)
    assert latent.shape == (1, 8, 7)
    np.testing.assert_allclose(ours._checkpoint.after(latent).numpy(), sent, atol=1e-6)
    _, far = compare(tmp_path / "made")
    assert far == 0


def test_tokens_are_greedy_unless_a_temperature_is_given_and_cooled_is_a_lower_one(checkpoint):
    where, seen = checkpoint("pi0_fast"), observations(1) * 6
    greedy = loaded(where)
    assert (greedy.spec.kind, greedy.spec.cools) == ("deterministic", False)
    assert len(np.unique(greedy.sample(seen, DRAWS), axis=0)) == 1
    assert compare(where, "temperature=0")[1] == 0
    spec, far = compare(where, "temperature=1")
    assert (spec.kind, spec.cools, spec.warm_start, far) == ("tokens", True, False, 0.0)
    hot, warm = (loaded(where, f"temperature={heat}") for heat in (1, 0.7))
    assert len({policy.spec.fingerprint for policy in (greedy, hot, warm)}) == 3
    check_policy(hot, observations=observations(8), atol=0.0)
    chunks = hot.sample(seen, DRAWS)
    assert len(np.unique(chunks, axis=0)) > 3
    assert (np.ptp(chunks, axis=1).max(axis=1) > 0).sum() > 3, "tokens that could be read"
    np.testing.assert_array_equal(hot.sample(seen, DRAWS, [Warm(0.7)] * 6), warm.sample(seen, DRAWS))
    np.testing.assert_array_equal(hot.sample(seen, DRAWS, [Warm(0.0)] * 6), greedy.sample(seen, DRAWS))
    np.testing.assert_array_equal(hot.sample(seen, DRAWS), chunks)
    with pytest.raises(ComponentError, match="cannot be warm-started"):
        hot.sample(seen[:1], DRAWS[:1], [Warm(0.7, 0.3, chunks[0])])


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("molmoact2_tokens", {"discrete_generation_max_steps": 1, "inference_action_mode": "discrete"}),
        ("molmoact2_tokens", {"inference_action_mode": "discrete"}),
        ("pi0_fast", {"validate_action_token_prefix": True}),
    ],
    ids=["no end", "no action", "no prefix"],
)
def test_tokens_that_are_no_action_are_played_as_zeros_and_no_take_is_lost(checkpoint, tmp_path, name, settings):
    """LeRobot, which plays zeros for tokens that it cannot decode, raises here."""
    policy, seen = loaded(tiny.changed(checkpoint(name), tmp_path / "made", **settings)), observations(2)
    own = policy._checkpoint.policy
    if len(settings) == 1 and name != "pi0_fast":  # after the prompt it says nothing but the end
        with torch.no_grad():
            own.model.lm_head.weight[own.model.config.eos_token_id, 1] += 1000
    raised = (RuntimeError, AssertionError)
    with pytest.raises(raised, match="end token|no decodable action|does not start with"), torch.inference_mode():
        own.predict_action_chunk(dict(policy._checkpoint.before(policy._batch(seen[:1], policy.cameras))))
    zeros = policy._checkpoint.after(torch.zeros(1, policy.spec.horizon, policy.spec.action_dim)).numpy()
    np.testing.assert_array_equal(policy.sample(seen, DRAWS[:2]), np.repeat(zeros, 2, axis=0))
    assert any("played as zeros" in note for note in policy.spec.notes)


def test_which_head_of_molmoact2_acts(checkpoint, tmp_path):
    """The continuous one, unless the checkpoint says otherwise; its tokens are greedy."""
    where = checkpoint("molmoact2_tokens")
    assert loaded(where).spec.warm_start
    spoken = tiny.changed(where, tmp_path / "spoken", inference_action_mode="discrete")
    assert loaded(spoken).spec.kind == "deterministic"
    for name in ("molmoact2", "act"):
        with pytest.raises(ComponentError, match=f"temperature=1, but a {name} policy has none"):
            loaded(checkpoint(name), "temperature=1")


def test_wall_xs_tokens_are_refused_because_lerobots_own_call_raises(checkpoint, tmp_path):
    from lerobot.policies.factory import make_pre_post_processors
    from lerobot.policies.wall_x.modeling_wall_x import WallXPolicy

    where = checkpoint("wall_x")
    with pytest.raises(ComponentError, match="cannot act by WALL-X's tokens .* use a checkpoint of its flow head"):
        loaded(tiny.changed(where, tmp_path / "tokens", prediction_mode="fast"))
    own = WallXPolicy.from_pretrained(where).eval()
    own.config.prediction_mode = "fast"
    before, _ = make_pre_post_processors(own.config, pretrained_path=str(where))
    (seen,) = observations(1)
    raw = {"task": [seen.instruction], "observation.state": torch.from_numpy(seen.state)[None]}
    raw |= {f"observation.images.{key}": torch.zeros(1, 3, 64, 64) for key in ("image", "image2")}
    with pytest.raises(TypeError, match="'NoneType' object is not subscriptable"):
        own.select_action(before(raw))


def test_lingbot_va_is_refused_for_it_remembers_its_episode(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"type": "lingbot_va"}))
    with pytest.raises(ComponentError, match="remembers its whole episode.*lerobot-eval.*besttake ingest") as error:
        loaded(tmp_path)
    assert "\n" not in str(error.value)
