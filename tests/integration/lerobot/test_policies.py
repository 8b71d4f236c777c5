"""The adapter on tiny random models of LeRobot's real classes, loaded through the path that a checkpoint takes."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tiny
import torch
from bench.families import compare, lerobots, played

from besttake import registry
from besttake.conventions import Gripper
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.testing import check_policy
from besttake.types import Observation, Warm

HERE = Path(__file__).parent
FLOW = ("pi0", "pi05", "relative", "smolvla")
INWARD = (
    *("multi_task", "multi_task_flow", "eo1", "vla_jepa", "xvla", "wall_x", "molmoact2", "evo1", "groot", "fastwam"),
)
VLAS = (*FLOW, *INWARD)
NOISY = (*FLOW, "diffusion", "ddpm")
OTHERS = ("vqbet", "tdmpc", "gaussian_actor")


@pytest.fixture(scope="session")
def policy(checkpoint):
    made = {}

    def of(name):
        if name not in made:
            made[name] = registry.policy(f"lerobot:{checkpoint(name)}?width=4", trust_remote_code=name == "groot")
        return made[name]

    return of


def observations(count, seed=3):
    rng = np.random.default_rng(seed)
    tasks = ("pick up the cube", "open the drawer and stack it", "push")
    return [
        Observation(
            {camera: rng.integers(0, 256, (64, 64, 3), np.uint8) for camera in ("agentview", "wrist")},
            rng.normal(0, 0.3, 8).astype(np.float32),
            tasks[row % 3],
        )
        for row in range(count)
    ]


def draws(count):
    return [Draw(5, "task", start=row // 2, seed=row % 2, chunk=row) for row in range(count)]


def chunks(policy, count):
    shape = (count, policy.spec.horizon, policy.spec.action_dim)
    return np.random.default_rng(8).uniform(-0.6, 0.6, shape).astype(np.float32)


@pytest.mark.parametrize("name", [*NOISY, "act"])
def test_the_contract_holds_bit_for_bit_in_any_batch(policy, name):
    held = check_policy(policy(name), observations=observations(8), atol=0.0)
    assert ("warm" in held) == (name != "act")


@pytest.mark.parametrize("name", NOISY)
def test_a_batch_of_eight_is_eight_singles_also_where_each_is_computed_alone(checkpoint, name):
    """Width 1 evaluates rows one by one, width 8 all in one pass."""
    wide, narrow = (registry.policy(f"lerobot:{checkpoint(name)}?width={width}") for width in (8, 1))
    assert wide.spec.fingerprint != narrow.spec.fingerprint
    seen, which = observations(8), draws(8)
    singles = np.concatenate([narrow.sample([o], [d]) for o, d in zip(seen, which, strict=True)])
    assert np.abs(wide.sample(seen, which) - singles).max() < 1e-5
    warm = [Warm(0.7, 0.3, chunk) for chunk in chunks(wide, 8)]
    singles = np.concatenate([narrow.sample([o], [d], [w]) for o, d, w in zip(seen, which, warm, strict=True)])
    assert np.abs(wide.sample(seen, which, warm) - singles).max() < 1e-5


def test_the_same_draw_gives_the_same_bits_in_another_process(policy, checkpoint):
    code = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
import tiny, test_policies as t
from besttake import registry
for name in {[str(checkpoint(name)) for name in NOISY]}:
    print(registry.policy(f"lerobot:{{name}}?width=4").sample(t.observations(3), t.draws(3)).tobytes().hex())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = [policy(name).sample(observations(3), draws(3)).tobytes().hex() for name in NOISY]
    assert done.stdout.split() == here


@pytest.mark.parametrize("name", OTHERS)
def test_families_that_are_not_known_here_keep_the_contract_through_select_action(policy, name):
    ours = policy(name)
    held = check_policy(ours, observations=observations(4), atol=0.0)
    assert held == ("shape", "repeat", "batch", "draw")
    assert ours.spec.kind == ("deterministic" if name == "tdmpc" else "flow")
    assert (ours.spec.warm_start, ours.spec.cools) == (False, False)
    assert ours.spec.horizon == ours.spec.replan == {"vqbet": 3, "tdmpc": 2, "gaussian_actor": 1}[name]


def test_a_class_that_cannot_act_on_what_we_have_says_so_when_it_is_loaded(tmp_path):
    """TD-MPC looks for its picture under one fixed key, which this checkpoint does not use."""
    tiny.make_tdmpc(tmp_path, cameras=("image",))
    with pytest.raises(
        ComponentError, match=r"tdmpc policy cannot be sampled here \(KeyError.*vla-eval:ws://"
    ) as error:
        registry.policy(f"lerobot:{tmp_path}")
    assert "\n" not in str(error.value)


def test_specs_say_what_each_family_is_and_which_cameras_feed_it(policy):
    for name in NOISY:
        spec = policy(name).spec
        assert (spec.kind, spec.action_dim, spec.state_dim, spec.replan) == ("flow", 7, 8, 4)
        assert (spec.warm_start, spec.cools, spec.seeded) == (True, True, True)
        assert spec.cameras == ("agentview", "wrist")
    assert policy("pi0").spec.horizon == 6
    assert policy("diffusion").spec.horizon == 4
    act = policy("act").spec
    assert (act.kind, act.warm_start, act.cools) == ("deterministic", False, False)


@pytest.mark.parametrize("name", [*NOISY, *INWARD, "act"])
def test_a_chunk_depends_on_each_picture_the_state_and_where_it_reads_one_the_instruction(policy, name):
    (seen,), which = observations(1), draws(1)
    base = policy(name).sample([seen], which)
    changes = [
        Observation({**seen.images, camera: 255 - seen.images[camera]}, seen.state, seen.instruction)
        for camera in ("agentview", "wrist")
    ]
    changes.append(Observation(seen.images, seen.state + np.float32(0.2), seen.instruction))
    assert policy(name).spec.prompted == (name in VLAS)
    if name in VLAS:
        changes.append(Observation(seen.images, seen.state, "open the drawer"))
    for other in changes:
        assert not np.array_equal(policy(name).sample([other], which), base)


@pytest.mark.parametrize("name", [*NOISY, "act", *OTHERS])
def test_actions_are_those_that_lerobot_eval_plays(checkpoint, name):
    """Against its loader, its processors (which pad instructions to another length) and its loop, not ours."""
    _, far = compare(checkpoint(name))
    assert far < 1e-5


def test_relative_actions_keep_the_state_at_which_they_were_predicted(checkpoint):
    """As in training. LeRobot 0.6.1 adds the state of each step, so that its actions drift as the arm moves."""
    ours, theirs = registry.policy(f"lerobot:{checkpoint('relative')}?width=1"), lerobots(checkpoint("relative"))
    (seen,), (draw,) = observations(1), draws(1)
    later = Observation(seen.images, seen.state + np.float32(0.25), seen.instruction)
    drifted = played(theirs, [seen, later], draw, (6, 32)) - ours.sample([seen], [draw])[0, :2]
    np.testing.assert_allclose(drifted, [[0.0] * 7, [0.25] * 6 + [0.0]], atol=1e-5)


@pytest.mark.parametrize("name", INWARD)
def test_noise_drawn_inside_a_class_is_the_rows_own(policy, checkpoint, name, monkeypatch):
    """Actions are LeRobot's own; the contract holds; cooling multiplies the noise, a warm start adds the chunk."""
    spec, far = compare(checkpoint(name))
    assert far < 1e-5
    assert (spec.kind, spec.warm_start, spec.cools) == ("flow", True, True)
    ours, seen, which = policy(name), observations(2), draws(2)
    check_policy(ours, observations=observations(3), atol=0.0)
    kind = "uniform" if name == "evo1" else "normal"
    sent, plain = chunks(ours, 2), getattr(Draw, kind)
    cooled = ours.sample(seen, which, [Warm(0.7)] * 2)
    warm = ours.sample(seen, which, [Warm(0.7, 0.3, chunk) for chunk in sent])
    monkeypatch.setattr(Draw, kind, lambda self, shape, stream="noise": np.float32(0.7) * plain(self, shape))
    np.testing.assert_array_equal(cooled, ours.sample(seen, which))
    latents = [ours.latent([o], chunk[None])[0].numpy() for o, chunk in zip(seen, sent, strict=True)]
    placed = dict(zip(which, latents, strict=True))
    monkeypatch.setattr(
        Draw, kind, lambda self, shape: np.float32(0.7) * plain(self, shape) + np.float32(0.3) * placed[self]
    )
    np.testing.assert_array_equal(warm, ours.sample(seen, which))


@pytest.mark.parametrize("name", ["eo1", "wall_x", "molmoact2", "evo1", "groot"])
def test_a_chunk_lies_in_the_latent_of_an_inward_class_as_its_own_processors_put_it(policy, name):
    """Back through the postprocessor it is the chunk again; zeros beyond the robot's own numbers."""
    ours = policy(name)
    sent = 0.5 * chunks(ours, 1)  # within the quantiles, to which MolmoAct2 clips
    latent = ours.latent(observations(1), sent)
    width = {"eo1": 32, "wall_x": 20, "molmoact2": 32, "evo1": 10, "groot": 10}[name]
    assert latent.shape == (1, tiny.CHUNK, width)
    assert float(latent[:, :, 7:].abs().max()) == 0
    kept = latent if name == "evo1" else latent[:, :, :7]
    back = ours._checkpoint.after(kept[:, : ours.spec.horizon]).numpy()
    np.testing.assert_allclose(back, sent, atol=1e-6)
    if name in ("molmoact2", "groot"):
        assert (ours.spec.horizon, ours.spec.replan) == (4, 4)
        after = latent[0, 3] if name == "molmoact2" else torch.zeros(width)
        assert torch.equal(latent[0, 4:], after.expand(2, width))


def test_a_gripper_that_evo1_turns_itself_is_turned_back_for_a_warm_start(tmp_path):
    """Its own processor makes -1 of what is above a half and +1 of the rest, from data of 0 to 1."""
    tiny.make_evo1(tmp_path / "made", binarize_gripper=True)
    ours = registry.policy(f"lerobot:{tmp_path / 'made'}")
    assert ours.spec.convention.gripper == Gripper(-1, 1)
    assert set(np.unique(ours.sample(observations(4), draws(4))[..., 6])) <= {-1.0, 1.0}
    sent = chunks(ours, 1)
    sent[..., 6] = [[-1, 1, -1, 1, 1, -1]]
    data = ours._checkpoint.after.steps[0](
        {"action": ours.latent(observations(1), sent), **dict.fromkeys(("observation", "complementary_data"))}
    )["action"]
    np.testing.assert_allclose(data[0, :, 6].numpy(), [1, 0, 1, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(data[0, :, :6].numpy(), sent[0, :, :6], atol=1e-6)
    with pytest.raises(ComponentError, match="gripper= turns 0 to 1, but this checkpoint's gripper is -1 to 1"):
        registry.policy(f"lerobot:{tmp_path / 'made'}?gripper=libero")


def test_a_class_that_draws_otherwise_than_known_is_refused(policy, monkeypatch):
    """The contract of the interception: one normal draw of the chunk's shape, nothing else."""
    ours, model = policy("eo1"), type(policy("eo1")._checkpoint.policy.model)
    cases = {
        "drew no noise": lambda self, shape, device: torch.zeros(shape),
        r"draws rand\[1, 6, 32\]": lambda self, shape, device: torch.rand(shape),
        r"draws randn\[1, 6, 40\]": lambda self, shape, device: torch.randn(1, 6, 40)[:, :, :32],
    }  # fmt: skip
    for words, other in cases.items():
        monkeypatch.setattr(model, "sample_noise", other)
        with pytest.raises(ComponentError, match=words) as error:
            ours.sample(observations(1), draws(1))
        assert "\n" not in str(error.value)


def test_a_chunk_of_groot_is_one_inference_and_its_gripper_is_liberos(tmp_path):
    """On LIBERO its queue holds 8 actions, however many it predicts: glued queues would be two inferences."""
    tiny.make_groot(tmp_path / "made", chunk=12, steps=12, embodiment_tag="libero_sim")
    with pytest.raises(ComponentError, match="by a groot policy; `trust_remote_code` allows it"):
        registry.policy(f"lerobot:{tmp_path / 'made'}")
    ours = registry.policy(f"lerobot:{tmp_path / 'made'}", trust_remote_code=True)
    assert (ours.spec.horizon, ours.spec.replan) == (12, 8)
    assert ours.spec.convention.gripper == Gripper(-1, 1)
    seen, which = observations(1), draws(1)
    model = type(ours._checkpoint.policy._groot_model)
    with mock.patch.object(model, "get_action", autospec=True, side_effect=model.get_action) as asked:
        chunk = ours.sample(seen, which)
    assert asked.call_count == 1
    assert set(np.unique(chunk[..., 6])) == {-1.0, 1.0}
    _, far = compare(tmp_path / "made")
    assert far == 0
    back = ours._checkpoint.after(ours.latent(seen, chunk)[:, :, :7]).numpy()
    np.testing.assert_array_equal(back[..., 6], chunk[..., 6])


def test_a_gaussian_actor_that_names_an_encoder_needs_trust(checkpoint, tmp_path):
    """LeRobot loads that encoder with transformers' trust_remote_code: its code would run."""
    named = tiny.changed(
        checkpoint("gaussian_actor"), tmp_path / "named", vision_encoder_name=str(tmp_path / "encoder")
    )
    with pytest.raises(ComponentError, match="vision_encoder_name of a gaussian_actor policy"):
        registry.policy(f"lerobot:{named}")


@pytest.mark.parametrize("name", ["evo1", "wall_x", "molmoact2", "eo1", "fastwam", "pi0_fast"])
def test_code_beside_a_base_model_runs_only_if_the_user_says_so(tmp_path, name):
    """A marker file shows whether it ran. pi0-FAST's tokenizer does, and is trusted to show that the plant works."""
    made, ran = tmp_path / "made", tmp_path / "it-ran"
    made.mkdir()
    tiny.MAKERS[name](made)
    base = tmp_path / ("made-fast" if name == "pi0_fast" else "made-vlm")
    planted = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
    if name == "pi0_fast":
        (base / "fast_tokens.py").write_text(planted + tiny.FAST)
    else:
        (base / "planted.py").write_text(planted + "class Planted: pass\n")
        for file in base.glob("*config.json"):
            kinds = ("AutoConfig", "AutoModel", "AutoProcessor", "AutoTokenizer", "AutoImageProcessor")
            named = dict.fromkeys(kinds, "planted.Planted")
            file.write_text(json.dumps({**json.loads(file.read_text()), "auto_map": named}))
    with contextlib.suppress(ComponentError):
        registry.policy(f"lerobot:{made}")
    assert not ran.exists()
    if name == "pi0_fast":
        registry.policy(f"lerobot:{made}", trust_remote_code=True)
        assert ran.exists()


@pytest.mark.parametrize("name", NOISY)
def test_cooled_multiplies_the_noise_exactly(policy, name, monkeypatch):
    ours = policy(name)
    seen, which = observations(4), draws(4)
    cooled = ours.sample(seen, which, [Warm(0.7)] * 4)
    plain = Draw.normal
    monkeypatch.setattr(
        Draw, "normal", lambda self, shape, stream="noise": np.float32(0.7) * plain(self, shape, stream)
    )
    np.testing.assert_array_equal(cooled, ours.sample(seen, which))


@pytest.mark.parametrize("name", NOISY)
def test_a_chunk_survives_the_way_into_the_policys_space_and_back(policy, name):
    ours = policy(name)
    seen, sent = observations(4), chunks(ours, 4)
    latent = ours.latent(seen, sent)
    assert latent.shape[1:] == ((8, 7) if name in ("diffusion", "ddpm") else (6, 32))
    past = getattr(ours._family, "past", 0)
    chunk = latent[:, past : past + ours.spec.horizon, : ours.spec.action_dim]
    assert np.abs(ours._checkpoint.after(chunk).float().cpu().numpy() - sent).max() < 1e-5
    if name in FLOW:
        assert float(latent[:, :, 7:].abs().max()) == 0
    assert np.abs(latent[:, -4:, :7].numpy() - sent[:, -4:]).max() > 0.1


@pytest.mark.parametrize("name", NOISY)
def test_a_warm_start_adds_the_chunk_in_the_policys_own_space(policy, name, monkeypatch):
    ours = policy(name)
    seen, which, sent = observations(4), draws(4), chunks(ours, 4)
    warm = ours.sample(seen, which, [Warm(0.7, 0.3, chunk) for chunk in sent])
    placed = ours.latent(seen, sent).numpy()
    mixed = {
        d: np.float32(0.7) * d.normal(placed.shape[1:]) + np.float32(0.3) * p
        for d, p in zip(which, placed, strict=True)
    }
    monkeypatch.setattr(Draw, "normal", lambda self, shape, stream="noise": mixed[self])
    np.testing.assert_array_equal(warm, ours.sample(seen, which))


@pytest.mark.parametrize("name", FLOW)
def test_samples_of_one_observation_share_its_prefix_and_keep_their_bits(policy, name, monkeypatch):
    """Three samples at each of four observations: one prefix for each observation, and the chunks of separate calls."""
    ours = policy(name)
    first, model = observations(4), policy(name)._checkpoint.policy.model
    seen = [o for o in first for _ in range(3)]
    which = [Draw(5, "task", row // 3, row % 3) for row in range(12)]
    apart = np.concatenate([ours.sample([o], [d]) for o, d in zip(seen, which, strict=True)])
    prefixes = []
    plain = type(model).embed_prefix

    def counting(self, images, *rest, **more):
        prefixes.append(len(images[0]))
        return plain(self, images, *rest, **more)

    monkeypatch.setattr(type(model), "embed_prefix", counting)
    np.testing.assert_array_equal(ours.sample(seen, which), apart)
    assert prefixes == [4]


def test_relative_actions_follow_the_state_except_for_the_gripper(policy):
    ours = policy("relative")
    (seen,), sent = observations(1), chunks(ours, 1)
    moved = Observation(seen.images, seen.state + np.float32(0.1), seen.instruction)
    here, there = ours.latent([seen], sent).numpy(), ours.latent([moved], sent).numpy()
    assert np.abs(here - there)[..., :6].min() > 1e-3
    np.testing.assert_array_equal(here[..., 6], there[..., 6])


def test_ddpms_later_noise_comes_from_the_draw_and_leaves_torchs_generator_alone(policy):
    ours = policy("ddpm")
    seen, which = observations(2), draws(2)
    torch.manual_seed(1)
    first = ours.sample(seen, which)
    after = torch.rand(3)
    torch.manual_seed(1)
    np.testing.assert_array_equal(after, torch.rand(3))
    torch.manual_seed(2)
    np.testing.assert_array_equal(first, ours.sample(seen, which))


@pytest.mark.parametrize(
    ("name", "option", "dtype"),
    [
        ("pi0", "dtype=bfloat16", torch.bfloat16),
        ("smolvla", "dtype=bfloat16", torch.float32),
        ("act", "dtype=float16", torch.float32),
        ("diffusion", "dtype=float32", torch.float32),
        ("evo1", "dtype=bfloat16", torch.bfloat16),
        ("molmoact2", "dtype=bfloat16", torch.bfloat16),
        ("groot", "dtype=bfloat16", torch.float32),
    ],
)
def test_another_precision_is_another_policy_with_nearly_the_same_actions(policy, checkpoint, name, option, dtype):
    """A class that can be asked holds its weights so; the others compute so, under autocast."""
    other = registry.policy(f"lerobot:{checkpoint(name)}?width=4&{option}", trust_remote_code=name == "groot")
    own = policy(name)
    assert other.spec.fingerprint == f"{own.spec.fingerprint.removesuffix('/amp')}/{option.partition('=')[2]}"
    assert dtype in {parameter.dtype for parameter in other._checkpoint.policy.parameters()}
    check_policy(other, observations=observations(8), atol=0.0)
    ours, theirs = (each.sample(observations(4), draws(4)) for each in (own, other))
    far = np.abs(ours - theirs).max() / np.abs(ours).max()
    assert far == 0 if option == "dtype=float32" else 0 < far < (0.5 if name == "molmoact2" else 0.05)  # it is loud


def test_cameras_can_be_mapped_by_short_or_full_name(checkpoint):
    ours = registry.policy(f"lerobot:{checkpoint('act')}?map=image:front,observation.images.image2:hand")
    assert ours.cameras == {"observation.images.image": "front", "observation.images.image2": "hand"}
    with pytest.raises(ComponentError, match=r"observation\.images\.image <- front.*the env gave: agentview, wrist"):
        ours.sample(observations(1), draws(1))
    with pytest.raises(ComponentError, match=r"map names top; the checkpoint reads: observation\.images\.image,"):
        registry.policy(f"lerobot:{checkpoint('act')}?map=top:front")


def test_what_does_not_fit_is_one_clear_line(policy):
    (seen,) = observations(1)
    cases = (
        ("pi0", Observation(seen.images, seen.state[:5]), None, "trained on 8 state numbers, the env gave 5"),
        ("act", seen, Warm(0.7), "a act policy cannot be warm-started"),
        (
            "pi0",
            seen,
            Warm(0.7, 0.3, np.zeros((6, 5), np.float32)),
            r"a warm chunk of \(6, 5\) where \(6, 7\) is needed",
        ),
    )
    for name, observation, warm, words in cases:
        with pytest.raises(ComponentError, match=words) as error:
            policy(name).sample([observation], draws(1), [warm])
        assert "\n" not in str(error.value)


def privileged(directory):
    """An ACT that was trained on the simulator's own state."""
    from lerobot.configs import FeatureType, PolicyFeature

    directory.mkdir()
    whole = PolicyFeature(type=FeatureType.ENV, shape=(4,))
    inputs = {**tiny.features(tiny.LIBERO)["input_features"], "observation.environment_state": whole}
    tiny.make_act(directory, input_features=inputs)
    return directory


def test_a_checkpoint_that_cannot_be_used_says_why_in_one_line(checkpoint, tmp_path):
    act = checkpoint("act")
    (tmp_path / "empty").mkdir()
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text(json.dumps({"model_type": "vit"}))
    bare = tiny.changed(act, tmp_path / "bare")
    (bare / "policy_preprocessor.json").unlink()
    headless = tiny.changed(act, tmp_path / "headless")
    (headless / "model.safetensors").unlink()
    other = tiny.changed(checkpoint("pi0"), tmp_path / "other")
    shutil.copy(act / "model.safetensors", other / "model.safetensors")
    cases = {
        str(tmp_path / "nowhere"): "no such directory", "no-such-org/no-such-policy": "not available from the hub",
        str(tmp_path / "empty"): "no readable config.json",
        str(tmp_path / "hf"): r"not a LeRobot policy, it holds a transformers model \(vit\)",
        str(tiny.changed(act, tmp_path / "alien", type="telepathy")): "telepathy",
        str(bare): "policy_preprocessor.json not in the checkpoint; convert it",
        str(headless): "model.safetensors not in the checkpoint; save it again",
        str(tiny.changed(act, tmp_path / "peft", use_peft=True)): "PEFT adapter",
        str(other): "did not take the weights",
        str(privileged(tmp_path / "privileged")): "reads observation.environment_state, which no env here gives",
        f"{act}?replan=9": "replan=9 is more than the 6", f"{act}?steps=3": "does not denoise",
        f"{act}?width=0": "width=0 is not a whole number of at least 1",
    }  # fmt: skip
    for name, words in cases.items():
        with pytest.raises(ComponentError, match=words) as error:
            registry.policy(f"lerobot:{name}")
        assert "\n" not in str(error.value), name
