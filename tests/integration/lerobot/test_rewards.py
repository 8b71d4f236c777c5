"""LeRobot's reward models as scorers: tiny checkpoints of the real classes score a run as LeRobot's own call does."""

from __future__ import annotations

import shutil
import socket

import numpy as np
import pytest
import tiny_rewards
import torch

from besttake import registry
from besttake.config import Plan
from besttake.demos.build import Options, build
from besttake.errors import ComponentError
from besttake.scorers.base import Footage
from besttake.scorers.score_run import windowed
from besttake.testing import check_scorer
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.runs import Run
from besttake.verbs.score import score

KEY = "observation.images.wrist"
INSTRUCTION = "push the cube to the mark"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """``saved("sarm")`` is the directory of a tiny saved reward model; each is made once."""
    made = {}

    def directory(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("rewards") / name
            made[name].mkdir()
            tiny_rewards.MAKERS[name](made[name])
        return made[name]

    return directory


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    library = build(
        registry.demos("testbed:push"), registry.encoder("pixels"), out.parent / "library", Options(max_demos=2)
    )
    plan = Plan(
        policy=["testbed:half"], env=["testbed:push"], demos=str(library.path), starts=1, seeds=2, arms=["base"],
        probe_states=0, check_states=0, workers=1, stride=4,
    )  # fmt: skip
    diagnose(plan, out)
    return out


@pytest.fixture(scope="module")
def takes(run):
    """The takes of the run as a scorer sees them."""
    with Run.open(run) as opened:
        whole = list(opened.takes.values())
        return {
            take.key: Footage(
                one.steps, one.windows, one.ends, frames=take.frames(), states=take.states, instruction=INSTRUCTION
            )
            for take, one in zip(whole, windowed(whole), strict=True)
        }


def as_lerobot_has_them(frames):
    """Pictures as a LeRobotDataset gives them."""
    return torch.from_numpy(frames.transpose(0, 3, 1, 2).copy()).to(torch.float32) / 255


def own_model(where, kind, **settings):
    """LeRobot's own way in: `make_reward_model` and `make_reward_pre_post_processors`."""
    from lerobot.configs.rewards import RewardModelConfig
    from lerobot.rewards import make_reward_model, make_reward_pre_post_processors

    config = RewardModelConfig.from_pretrained(where)
    config.pretrained_path = str(where)
    for key, value in settings.items():
        setattr(config, key, value)
    model = make_reward_model(config).eval()
    stats = {
        KEY: {"mean": torch.full((3, 1, 1), 0.4), "std": torch.full((3, 1, 1), 0.3)},
        "observation.state": {"mean": torch.linspace(-1, 1, 20), "std": torch.linspace(0.5, 1, 20)},
    }
    return model, make_reward_pre_post_processors(config, dataset_stats=stats)[0]


def own_classifier(where, take):
    from torchvision.transforms.functional import resize

    model, before = own_model(where, "reward_classifier")
    batch = before({KEY: resize(as_lerobot_has_them(take.frames[-1:]), [128, 128])})
    probability = float(model.predict([batch[KEY]]).probabilities[0])
    assert float(model.compute_reward(batch)[0]) == float(probability > 0.5)
    return probability


def own_sarm(where, take, tmp_path):
    """The loop of `lerobot.rewards.sarm.compute_rabc_weights` over a LeRobotDataset of the take."""
    from lerobot.datasets import LeRobotDataset

    model, before = own_model(where, "sarm")
    frames, fps = take.frames, 10
    features = {
        KEY: {"dtype": "image", "shape": frames.shape[1:], "names": ["height", "width", "channels"]},
        "observation.state": {"dtype": "float32", "shape": (20,), "names": None},
        "action": {"dtype": "float32", "shape": (1,), "names": None},
    }
    data = LeRobotDataset.create("tiny/take", fps, features, root=tmp_path / "data", use_videos=False)
    for frame, step in zip(frames, take.steps, strict=True):
        data.add_frame({
            KEY: frame, "observation.state": take.states[step], "action": np.zeros(1, np.float32), "task": INSTRUCTION
        })  # fmt: skip
    data.save_episode()
    data.finalize()
    # The take has every fourth step; LeRobot counts frames, so its gap of 8 steps is one of 2 frames.
    deltas = [delta // 4 / fps for delta in model.config.observation_delta_indices]
    data = LeRobotDataset(
        "tiny/take", root=tmp_path / "data", delta_timestamps={KEY: deltas, "observation.state": deltas}
    )
    for step in before.steps:
        if hasattr(step, "eval"):
            step.eval()
    last = len(data) - 1
    sample = data[last]
    batch = before({
        KEY: sample[KEY], "observation.state": sample["observation.state"], "task": INSTRUCTION, "index": last,
        "episode_index": 0,
    })  # fmt: skip
    progress = model.calculate_rewards(
        text_embeddings=batch["text_features"], video_embeddings=batch["video_features"],
        state_features=batch["state_features"], lengths=batch["lengths"], return_all_frames=True, head_mode="sparse",
    )  # fmt: skip
    return float(progress[0, model.config.n_obs_steps // 2])


def own_robometer(where, take):
    """As `lerobot.rewards.robometer.compute_rabc_weights` asks about an episode's last frame."""
    from lerobot.rewards.robometer.compute_rabc_weights import DEFAULT_NUM_SUBSAMPLED_FRAMES, _build_subsample_indices

    model, before = own_model(where, "robometer", max_frames=DEFAULT_NUM_SUBSAMPLED_FRAMES)
    seen = _build_subsample_indices(len(take.frames), DEFAULT_NUM_SUBSAMPLED_FRAMES)[-1]
    return float(
        model.compute_reward(
            before({KEY[:-5] + "top": as_lerobot_has_them(take.frames)[seen][None], "task": INSTRUCTION})
        )
    )


def own_topreward(where, take):
    """As `lerobot.rewards.topreward.compute_rabc_weights` asks about a whole episode."""
    model, before = own_model(where, "topreward", max_frames=None)
    return float(
        model.compute_reward(
            before({"observation.images.top": as_lerobot_has_them(take.frames)[None], "task": INSTRUCTION})
        )
    )


@pytest.mark.parametrize("name", tiny_rewards.MAKERS)
def test_it_scores_as_lerobots_own_call_does(saved, takes, tmp_path, name):
    where = saved(name)
    if name == "sarm":
        tiny_rewards.with_code(where, "config.json", {"frame_gap": 8})
    options = "?frames=512" if name == "topreward" else ""
    scorer = registry.scorer(f"lerobot-reward:{where}{options}")
    scores = scorer.score(list(takes.values()), None)
    own = {"reward_classifier": own_classifier, "robometer": own_robometer, "topreward": own_topreward}
    for take, given in zip(takes.values(), scores, strict=True):
        full = own_sarm(where, take, tmp_path) if name == "sarm" else own[name](where, take)
        assert given.values[1] == pytest.approx(full, abs=1e-5)
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
    values = [score.values[1] for score in scores]
    assert len(set(values)) == len(values)  # it tells the takes apart


@pytest.mark.parametrize("name", tiny_rewards.MAKERS)
def test_it_scores_a_run_end_to_end(saved, run, name):
    result = score(run, f"lerobot-reward:{saved(name)}?name=reward-{name}")
    assert len(result.cells) == 1
    with Run.open(run) as opened:
        values = [
            one.scores[f"reward-{name}", window] for one in opened.scores.values() for window in ("full", "common")
        ]
    assert np.isfinite(values).all()


@pytest.mark.parametrize("name", ["reward_classifier", "robometer", "topreward"])
def test_it_keeps_the_contract_of_a_scorer(saved, name):
    scorer = registry.scorer(f"lerobot-reward:{saved(name)}")
    assert {"batch", "length"} <= set(check_scorer(scorer, atol=1e-6))
    assert scorer.spec.probability == (name == "reward_classifier")


@pytest.mark.parametrize("name", tiny_rewards.MAKERS)
def test_nothing_is_asked_of_the_hub(saved, takes, monkeypatch, name):
    def refuse(*args, **kwargs):
        raise AssertionError("network")

    where = saved(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    scorer = registry.scorer(f"lerobot-reward:{where}")
    assert np.isfinite(scorer.score(list(takes.values())[:1], None)[0].values[1])


@pytest.mark.parametrize("name", ["reward_classifier", "robometer", "topreward"])
def test_code_that_comes_with_a_model_runs_only_if_the_user_trusts_it(saved, tmp_path, name):
    marker = tmp_path / "ran"
    where = tmp_path / "model"
    shutil.copytree(saved(name), where)
    base = tmp_path / "base"
    shutil.copytree(next(saved(name).parent.glob(f"{name}-*")), base)
    (base / "evil.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Evil: pass\n")
    tiny_rewards.with_code(base, "config.json", {"auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil"}})
    with pytest.raises(ComponentError, match="names code to run .*auto_map; `trust_remote_code` allows it"):
        registry.scorer(f"lerobot-reward:{where}?base={base}")
    assert not marker.exists()
    registry.scorer(f"lerobot-reward:{where}?base={base}&trust_remote_code=true")


def test_missing_weights_are_an_error_and_not_random(saved, tmp_path):
    from safetensors.torch import load_file, save_file

    where = tmp_path / "model"
    shutil.copytree(saved("sarm"), where)
    weights = load_file(where / "model.safetensors")
    weights.pop(next(key for key in weights if "heads" in key))
    save_file(weights, where / "model.safetensors")
    scorer = registry.scorer(f"lerobot-reward:{where}")
    with pytest.raises(ComponentError, match="model.safetensors lacks 1 weights, e.g. .*heads.*: they would be random"):
        assert scorer.loaded
