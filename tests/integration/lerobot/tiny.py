"""Tiny random checkpoints of LeRobot's real policy classes, saved with their processors as a trained one is."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHUNK = 6
WORDS = "pick up the cube push open the drawer and stack it"


@dataclass(frozen=True)
class Robot:
    """What a checkpoint was trained on."""

    state_dim: int = 8
    action_dim: int = 7
    cameras: tuple[str, ...] = ("image", "image2")


LIBERO = Robot()


def features(robot: Robot, size: int = 64):
    picture = PolicyFeature(type=FeatureType.VISUAL, shape=(3, size, size))
    return {
        "input_features": {
            **{f"observation.images.{camera}": picture for camera in robot.cameras},
            "observation.state": PolicyFeature(type=FeatureType.STATE, shape=(robot.state_dim,)),
        },
        "output_features": {"action": PolicyFeature(type=FeatureType.ACTION, shape=(robot.action_dim,))},
        "device": "cpu",
        "push_to_hub": False,
    }


def statistics(robot: Robot):
    """Uneven statistics of every kind, so that a wrong normaliser shows."""
    generator = torch.Generator().manual_seed(1)

    def of(dim: int):
        low = -torch.rand(dim, generator=generator) - 0.5
        high = torch.rand(dim, generator=generator) + 0.5
        spread = {"mean": (low + high) / 3, "std": torch.rand(dim, generator=generator) + 0.2, "min": low, "max": high}
        return {**spread, "q01": low * 0.9, "q99": high * 0.9}

    stats = {"observation.state": of(robot.state_dim), "action": of(robot.action_dim)}
    picture = {"mean": torch.full((3, 1, 1), 0.5), "std": torch.full((3, 1, 1), 0.25)}
    extremes = {"min": torch.zeros(3, 1, 1), "max": torch.ones(3, 1, 1)}
    return stats | {f"observation.images.{key}": {**picture, **extremes} for key in robot.cameras}


def save(directory: Path, kind: str, robot: Robot = LIBERO, **settings) -> None:
    torch.manual_seed(0)
    config = make_policy_config(kind, **{**features(robot), **settings})
    policy = get_policy_class(kind)(config).eval()
    if kind in ("pi0", "pi05", "smolvla"):
        with torch.no_grad():
            for parameter in policy.parameters():
                # Fresh layers are nearly silent, and pi0.5's gates are zero: louder, every input shows in the actions.
                parameter.mul_(1.5).add_(0.05 * torch.randn_like(parameter))
    policy.save_pretrained(directory)
    for processor in make_pre_post_processors(config, dataset_stats=statistics(robot)):
        processor.save_pretrained(directory)


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, so that any instruction has tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<pad>", "<bos>", "<eos>", "<unk>", "<image>", "<fake_token_around_image>", "<global-img>"]
    vocabulary = {token: index for index, token in enumerate([*special, *letters])}
    model = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        extra_special_tokens={
            "image_token": "<image>",
            "fake_image_token": "<fake_token_around_image>",
            "global_image_token": "<global-img>",
            "end_of_utterance_token": "<eos>",
        },
    )


def make_smolvla(directory: Path, wide: bool = False, **settings) -> None:
    save(
        directory,
        "smolvla",
        vlm_model_name=str(smolvlm(directory.parent / f"{directory.name}-vlm", 8 if wide else 1)),
        load_vlm_weights=False,
        chunk_size=CHUNK,
        n_action_steps=4,
        num_vlm_layers=2,
        num_steps=3,
        resize_imgs_with_padding=(32, 32),
        **settings,
    )


def smolvlm(directory: Path, times: int = 1) -> Path:
    from transformers import SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor

    text = {
        "model_type": "llama",
        "hidden_size": 64 * times,
        "intermediate_size": 128 * times,
        "num_hidden_layers": 2,
        "num_attention_heads": 4 * times,
        "num_key_value_heads": 2 * times,
        "head_dim": 16,
        "vocab_size": 300,
        "pad_token_id": 0,
    }
    vision = {"hidden_size": 32 * times, "intermediate_size": 64 * times, "num_hidden_layers": times}
    vision |= {"num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=2, image_token_id=4).save_pretrained(directory)
    processor = SmolVLMProcessor(SmolVLMImageProcessor(), tokenizer(), SmolVLMVideoProcessor(), chat_template="x")
    processor.save_pretrained(directory)
    return directory


def make_pi0(directory: Path, kind: str = "pi0", **settings) -> None:
    paligemma_tokenizer()
    common = {"chunk_size": CHUNK, "n_action_steps": 4, "num_inference_steps": 3, "image_resolution": (28, 28)}
    save(directory, kind, **common, tokenizer_max_length=64, dtype="float32", **settings)


def make_pi05(directory: Path, **settings) -> None:
    make_pi0(directory, "pi05", **settings)


def make_relative(directory: Path) -> None:
    """pi0.5 that predicts actions relative to the state, except for the gripper."""
    names = ["x", "y", "z", "roll", "pitch", "yaw", "gripper"]
    make_pi0(directory, "pi05", use_relative_actions=True, action_feature_names=names)


def paligemma_tokenizer() -> None:
    """The name is fixed in LeRobot, so a stand-in tokenizer goes where the hub's cache would have the real one."""
    root = Path(os.environ["HF_HOME"]) / "hub" / "models--google--paligemma-3b-pt-224"
    if (root / "refs").exists():
        return
    snapshot = root / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    tokenizer().save_pretrained(snapshot)
    (snapshot / "config.json").write_text(json.dumps({"model_type": "paligemma"}))
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0" * 40)


@contextlib.contextmanager
def shrunken_paligemma():
    """LeRobot fixes PaliGemma's sizes in code; make the same classes with smaller numbers."""
    from lerobot.policies.pi0 import modeling_pi0
    from lerobot.policies.pi05 import modeling_pi05

    with contextlib.ExitStack() as stack:
        for module in (modeling_pi0, modeling_pi05):
            small = module.GemmaConfig(width=64, depth=2, mlp_dim=64, num_heads=8, num_kv_heads=1, head_dim=16)
            whole = module.PaliGemmaForConditionalGenerationWithPiGemma

            def smaller(config, whole=whole):
                vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
                for key, value in {**vision, "patch_size": 14, "projection_dim": 64}.items():
                    setattr(config.vision_config, key, value)
                return whole(config=config)

            stack.enter_context(mock.patch.object(module, "get_gemma_config", lambda variant, small=small: small))
            stack.enter_context(mock.patch.object(module, "PaliGemmaForConditionalGenerationWithPiGemma", smaller))
        yield


def make_diffusion(directory: Path, scheduler: str = "DDIM", **settings) -> None:
    save(
        directory,
        "diffusion",
        horizon=8,
        n_action_steps=4,
        n_obs_steps=2,
        down_dims=(16, 32),
        n_groups=4,
        diffusion_step_embed_dim=16,
        spatial_softmax_num_keypoints=4,
        num_train_timesteps=20,
        num_inference_steps=4,
        noise_scheduler_type=scheduler,
        crop_shape=None,
        pretrained_backbone_weights=None,
        **settings,
    )


def make_ddpm(directory: Path) -> None:
    make_diffusion(directory, "DDPM")


def make_act(directory: Path, **settings) -> None:
    save(
        directory,
        "act",
        chunk_size=CHUNK,
        n_action_steps=4,
        dim_model=32,
        n_heads=2,
        dim_feedforward=32,
        n_encoder_layers=1,
        n_vae_encoder_layers=1,
        latent_dim=4,
        pretrained_backbone_weights=None,
        **settings,
    )


def make_vqbet(directory: Path) -> None:
    """A class that the adapter does not know, and that samples."""
    gpt = {"gpt_block_size": 32, "gpt_n_layer": 1, "gpt_n_head": 2}
    gpt |= {f"gpt_{part}_dim": 32 for part in ("input", "output", "hidden")}
    vq = {"vqvae_n_embed": 4, "vqvae_embedding_dim": 16, "vqvae_enc_hidden_dim": 16, "bet_softmax_temperature": 5.0}
    picture = {"crop_shape": (64, 64), "crop_is_random": False, "spatial_softmax_num_keypoints": 4}
    save(
        directory,
        "vqbet",
        robot=Robot(cameras=("image",)),
        n_obs_steps=2,
        action_chunk_size=3,
        pretrained_backbone_weights=None,
        **gpt,
        **vq,
        **picture,
    )


def make_tdmpc(directory: Path, cameras: tuple[str, ...] = ()) -> None:
    """A class that the adapter does not know; without planning, it has one answer to an observation."""
    sizes = dict.fromkeys(("image_encoder_hidden_dim", "latent_dim", "state_encoder_hidden_dim", "mlp_dim"), 8)
    save(directory, "tdmpc", robot=Robot(cameras=cameras), n_action_repeats=2, use_mpc=False, **sizes)


def make_gaussian_actor(directory: Path) -> None:
    """A class that the adapter does not know, and that has no chunks."""
    sizes = {"latent_dim": 16, "state_encoder_hidden_dim": 16, "image_encoder_hidden_dim": 8}
    save(directory, "gaussian_actor", **sizes)


MAKERS = {
    "smolvla": make_smolvla,
    "pi0": make_pi0,
    "pi05": make_pi05,
    "relative": make_relative,
    "diffusion": make_diffusion,
    "ddpm": make_ddpm,
    "act": make_act,
    "vqbet": make_vqbet,
    "tdmpc": make_tdmpc,
    "gaussian_actor": make_gaussian_actor,
}
