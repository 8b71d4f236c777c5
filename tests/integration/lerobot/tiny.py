"""Tiny random checkpoints of LeRobot's real policy classes, saved with their processors as a trained one is."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors
from lerobot.policies.pi0 import modeling_pi0
from lerobot.policies.pi0_fast import modeling_pi0_fast
from lerobot.policies.pi05 import modeling_pi05
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHUNK = 6
LOUDER = {"pi0": 0.05, "pi05": 0.05, "smolvla": 0.05, "vla_jepa": 0.05, "molmoact2": 0.3, "groot": 0.1}
LOUDER |= {"multi_task_dit": 0.05}
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
    if kind in LOUDER:
        with torch.no_grad():
            for parameter in policy.parameters():
                # Fresh layers are nearly silent, and pi0.5's gates are zero: louder, every input shows in the actions.
                parameter.mul_(1.5).add_(LOUDER[kind] * torch.randn_like(parameter))
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


QWEN = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' or 'image' in part %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
)


def qwen_tokenizer() -> PreTrainedTokenizerFast:
    words = tokenizer()
    words.add_tokens(list(QWEN), special_tokens=True)
    words.image_token, words.video_token = "<|image_pad|>", "<|video_pad|>"
    return words


def make_smolvla(directory: Path, wide: bool = False, **settings) -> None:
    save(
        directory, "smolvla", vlm_model_name=str(smolvlm(directory.parent / f"{directory.name}-vlm", 8 if wide else 1)),
        load_vlm_weights=False, chunk_size=CHUNK, n_action_steps=4, num_vlm_layers=2, num_steps=3,
        resize_imgs_with_padding=(32, 32), **settings,
    )  # fmt: skip


def smolvlm(directory: Path, times: int = 1, *, text=(), vision=()) -> Path:
    """The VLM of a SmolVLA. ``text`` and ``vision``: other sizes."""
    from transformers import SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor

    given = dict(vision)
    text = {
        "model_type": "llama", "hidden_size": 64 * times, "intermediate_size": 128 * times, "num_hidden_layers": 2,
        "num_attention_heads": 4 * times, "num_key_value_heads": 2 * times, "head_dim": 16, "vocab_size": 300,
        "pad_token_id": 0, **dict(text),
    }  # fmt: skip
    vision = {"hidden_size": 32 * times, "intermediate_size": 64 * times, "num_hidden_layers": times}
    vision |= {"num_attention_heads": 2, "image_size": 32, "patch_size": 8, **given}
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
    if (snapshot := cached("google/paligemma-3b-pt-224")) is not None:
        tokenizer().save_pretrained(snapshot)
        (snapshot / "config.json").write_text(json.dumps({"model_type": "paligemma"}))


def cached(name: str) -> Path | None:
    """A new directory that the hub's cache takes for the repository ``name``; None where it has one."""
    root = Path(os.environ["HF_HOME"]) / "hub" / f"models--{name.replace('/', '--')}"
    if (root / "refs").exists():
        return None
    snapshot = root / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0" * 40)
    return snapshot


def shrink_paligemma() -> None:
    """LeRobot fixes PaliGemma's sizes in code; from now on the same classes are made with smaller numbers.

    Called when this module is imported, for good: a single pi0 of the whole size is more memory than tests may have.
    """
    for module in (modeling_pi0, modeling_pi05, modeling_pi0_fast):
        small = module.GemmaConfig(width=64, depth=2, mlp_dim=64, num_heads=8, num_kv_heads=1, head_dim=16)
        whole = module.PaliGemmaForConditionalGenerationWithPiGemma

        def smaller(config, whole=whole, module=module):
            config.text_config.vocab_size = len(tokenizer())  # pi0-FAST must say only what the tokenizer knows
            if module is modeling_pi0_fast:
                config.vision_config.image_size = 28
            vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
            for key, value in {**vision, "patch_size": 14, "projection_dim": 64}.items():
                setattr(config.vision_config, key, value)
            return whole(config=config)

        module.get_gemma_config = lambda variant, small=small: small
        module.PaliGemmaForConditionalGenerationWithPiGemma = smaller


shrink_paligemma()


def make_diffusion(directory: Path, scheduler: str = "DDIM", **settings) -> None:
    save(
        directory, "diffusion", horizon=8, n_action_steps=4, n_obs_steps=2, down_dims=(16, 32), n_groups=4,
        diffusion_step_embed_dim=16, spatial_softmax_num_keypoints=4, num_train_timesteps=20, num_inference_steps=4,
        noise_scheduler_type=scheduler, crop_shape=None, pretrained_backbone_weights=None, **settings,
    )  # fmt: skip


def make_ddpm(directory: Path) -> None:
    make_diffusion(directory, "DDPM")


def make_act(directory: Path, **settings) -> None:
    save(
        directory, "act", chunk_size=CHUNK, n_action_steps=4, dim_model=32, n_heads=2, dim_feedforward=32,
        n_encoder_layers=1, n_vae_encoder_layers=1, latent_dim=4, pretrained_backbone_weights=None, **settings,
    )  # fmt: skip


def make_vqbet(directory: Path) -> None:
    """A class that the adapter does not know, and that samples."""
    gpt = {"gpt_block_size": 32, "gpt_n_layer": 1, "gpt_n_head": 2}
    gpt |= {f"gpt_{part}_dim": 32 for part in ("input", "output", "hidden")}
    vq = {"vqvae_n_embed": 4, "vqvae_embedding_dim": 16, "vqvae_enc_hidden_dim": 16, "bet_softmax_temperature": 5.0}
    picture = {"crop_shape": (64, 64), "crop_is_random": False, "spatial_softmax_num_keypoints": 4}
    save(
        directory, "vqbet", robot=Robot(cameras=("image",)), n_obs_steps=2, action_chunk_size=3,
        pretrained_backbone_weights=None, **gpt, **vq, **picture,
    )  # fmt: skip


def make_tdmpc(directory: Path, cameras: tuple[str, ...] = ()) -> None:
    """A class that the adapter does not know; without planning, it has one answer to an observation."""
    sizes = dict.fromkeys(("image_encoder_hidden_dim", "latent_dim", "state_encoder_hidden_dim", "mlp_dim"), 8)
    save(directory, "tdmpc", robot=Robot(cameras=cameras), n_action_repeats=2, use_mpc=False, **sizes)


def make_gaussian_actor(directory: Path) -> None:
    """A class that the adapter does not know, and that has no chunks."""
    sizes = {"latent_dim": 16, "state_encoder_hidden_dim": 16, "image_encoder_hidden_dim": 8}
    save(directory, "gaussian_actor", **sizes)


def clip(directory: Path) -> str:
    """LeRobot wants "clip" in the name."""
    from transformers import CLIPConfig, CLIPModel

    where = directory.parent / f"{directory.name}-clip"
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": 300, "max_position_embeddings": 77, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    config = CLIPConfig(
        text_config=text, vision_config={**sizes, "image_size": 64, "patch_size": 16}, projection_dim=16
    )
    CLIPModel(config).save_pretrained(where)
    tokenizer().save_pretrained(where)
    return str(where)


def make_multi_task(directory: Path, objective: str = "diffusion", **settings) -> None:
    backbone = clip(directory)
    save(
        directory, "multi_task_dit", objective=objective, horizon=8, n_action_steps=4, n_obs_steps=2, hidden_dim=32,
        num_layers=1, num_heads=2, timestep_embed_dim=16, num_train_timesteps=20, num_inference_steps=4,
        num_integration_steps=3, vision_encoder_name=backbone, text_encoder_name=backbone, tokenizer_max_length=77,
        **{"image_crop_shape": (64, 64), **settings},
    )  # fmt: skip


def make_multi_task_flow(directory: Path) -> None:
    make_multi_task(directory, "flow_matching")


def qwen_tokens(words: PreTrainedTokenizerFast) -> dict[str, int]:
    pads = {f"{name}_token_id": f"<|{name}_pad|>" for name in ("image", "video")}
    ends = {f"vision_{end}_token_id": f"<|vision_{end}|>" for end in ("start", "end")}
    return {key: words.convert_tokens_to_ids(token) for key, token in {**pads, **ends}.items()}


def make_eo1(directory: Path) -> None:
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
    )

    where = directory.parent / f"{directory.name}-vlm"
    words = qwen_tokenizer()
    text = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 1, "vocab_size": 320, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"fullatt_block_indexes": [0]}
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **qwen_tokens(words))
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(where)
    processor = Qwen2_5_VLProcessor(Qwen2VLImageProcessor(), words, Qwen2VLVideoProcessor(), chat_template=CHAT)
    processor.save_pretrained(where)
    save(
        directory, "eo1", vlm_base=str(where), dtype="float32", chunk_size=CHUNK, n_action_steps=4, num_denoise_steps=3,
        image_min_pixels=4 * 28 * 28, image_max_pixels=4 * 28 * 28,
    )  # fmt: skip


FAST = """
class Fast:
    scale, min_token = 10, -128

    class bpe_tokenizer:
        decode = staticmethod(lambda tokens: "".join(chr(int(token) % 256) for token in tokens))

    @classmethod
    def from_pretrained(cls, *args, **options):
        return cls()

    @classmethod
    def register_for_auto_class(cls, auto_class="AutoProcessor"):
        pass
"""


def make_pi0_fast(directory: Path) -> None:
    """Its action tokenizer is code that comes with a repository: a stand-in decodes every token to one coefficient."""
    where = directory.parent / f"{directory.name}-fast"
    where.mkdir()
    (where / "fast_tokens.py").write_text(FAST)
    (where / "processor_config.json").write_text(json.dumps({"auto_map": {"AutoProcessor": "fast_tokens.Fast"}}))
    paligemma_tokenizer()
    sizes = {"chunk_size": CHUNK, "n_action_steps": 4, "image_resolution": (28, 28), "tokenizer_max_length": 128}
    tokens = {"max_decoding_steps": 12, "max_action_tokens": 12, "validate_action_token_prefix": False}
    save(directory, "pi0_fast", dtype="float32", action_tokenizer_name=str(where), **sizes, **tokens)


def make_vla_jepa(directory: Path) -> None:
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    where, words = directory.parent / f"{directory.name}-vlm", qwen_tokenizer()
    text, vision = qwen3()
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **qwen_tokens(words))
    torch.manual_seed(0)
    Qwen3VLForConditionalGeneration(config).save_pretrained(where)
    images = Qwen2VLImageProcessor(patch_size=16, min_pixels=64 * 64, max_pixels=64 * 64)
    Qwen3VLProcessor(images, words, Qwen3VLVideoProcessor(), chat_template=CHAT).save_pretrained(where)
    save(
        directory,
        "vla_jepa",
        qwen_model_name=str(where),
        torch_dtype="float32",
        enable_world_model=False,
        chunk_size=CHUNK,
        n_action_steps=4,
        num_inference_timesteps=3,
        action_hidden_size=32,
        action_num_layers=2,  # the first attends to the prompt alone
        action_num_heads=2,
        action_attention_head_dim=16,
        num_embodied_action_tokens_per_instruction=4,
    )


def make_evo1(directory: Path, **settings) -> None:
    from transformers import InternVLConfig, InternVLModel

    where, words = directory.parent / f"{directory.name}-vlm", tokenizer()
    words.add_tokens(["<img>", "</img>", "<IMG_CONTEXT>"], special_tokens=True)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**sizes, "model_type": "qwen2", "num_key_value_heads": 1, "vocab_size": len(words), "pad_token_id": 0}
    vision = {**sizes, "num_hidden_layers": 1, "image_size": [28, 28], "patch_size": [7, 7]}
    context = words.convert_tokens_to_ids("<IMG_CONTEXT>")
    torch.manual_seed(0)
    config = InternVLConfig(text_config=text, vision_config=vision, image_token_id=context, image_seq_length=4)
    InternVLModel(config).save_pretrained(where)
    words.save_pretrained(where)
    save(
        directory, "evo1", vlm_model_name=str(where), vlm_num_layers=1, vlm_dtype="float32", use_flash_attn=False,
        chunk_size=CHUNK, n_action_steps=4, max_action_dim=10, max_state_dim=12, image_resolution=(28, 28),
        max_text_length=256, embed_dim=32, hidden_dim=32, state_hidden_dim=32, num_heads=2, num_layers=1,
        num_inference_timesteps=3, **settings,
    )  # fmt: skip


def make_groot(directory: Path, chunk: int = CHUNK, steps: int = 4, **settings) -> None:
    """GR00T N1.7 from its own config; the names of its tokenizer and image processor are fixed in LeRobot."""
    from lerobot.policies.groot.groot_n1_7 import GR00TN17, GR00TN17Config
    from transformers import Qwen2VLImageProcessor, Qwen3VLConfig, Qwen3VLVideoProcessor

    where, words = directory.parent / f"{directory.name}-base", qwen_tokenizer()
    words.chat_template = CHAT
    if (snapshot := cached("nvidia/Cosmos-Reason2-2B")) is not None:
        words.save_pretrained(snapshot)
        Qwen2VLImageProcessor(patch_size=16, min_pixels=64 * 64, max_pixels=64 * 64).save_pretrained(snapshot)
        Qwen3VLVideoProcessor().save_pretrained(snapshot)
        (snapshot / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    backbone = directory.parent / f"{directory.name}-vlm"
    text, vision = qwen3()
    Qwen3VLConfig(text_config=text, vision_config=vision, **qwen_tokens(words)).save_pretrained(backbone)
    attention = {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 16, "dropout": 0.0}
    config = GR00TN17Config(
        model_name=str(backbone),
        model_dtype="float32",
        dtype="float32",
        backbone_embedding_dim=32,
        select_layer=2,
        max_state_dim=12,
        max_action_dim=10,
        action_horizon=chunk,
        hidden_size=32,
        input_embedding_dim=32,
        max_seq_len=64,
        diffusion_model_cfg={**attention, "norm_type": "ada_norm", "final_dropout": True, "output_dim": 32,
                             "interleave_self_attention": True, "positional_embeddings": None},
        vl_self_attention_cfg={**attention, "num_layers": 1, "positional_embeddings": None},
        num_inference_timesteps=7,
    )  # fmt: skip
    torch.manual_seed(0)
    GR00TN17(config, load_backbone_weights=False).save_pretrained(where)
    known = {"libero_sim": {"action": {"delta_indices": list(range(chunk))}}}
    (where / "processor_config.json").write_text(json.dumps({"processor_kwargs": {"modality_configs": known}}))
    sizes = {"chunk_size": chunk, "n_action_steps": steps, "max_state_dim": 12, "max_action_dim": 10}
    settings |= {"num_inference_timesteps": 3, "use_bf16": False}
    save(directory, "groot", base_model_path=str(where), **sizes, **settings)


def qwen3() -> tuple[dict, dict]:
    """Sizes of the text and vision parts of a small Qwen3-VL."""
    text = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text |= {"head_dim": 16, "num_key_value_heads": 1, "vocab_size": 340}
    text |= {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3], "mrope_interleaved": True}}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    return text, vision


def make_fastwam(directory: Path, **settings) -> None:
    """Its frozen parts are read from the hub's cache: video by a fixed name, text by what its config says."""
    from diffusers import AutoencoderKLWan
    from transformers import UMT5Config, UMT5EncoderModel

    where = directory.parent / f"{directory.name}-vlm"
    tokenizer().save_pretrained(where)
    text = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 300}
    torch.manual_seed(0)
    UMT5EncoderModel(UMT5Config(**text)).save_pretrained(where / "text_encoder")
    if (snapshot := cached("Wan-AI/Wan2.2-TI2V-5B-Diffusers")) is not None:
        channels = {"in_channels": 12, "out_channels": 12, "patch_size": 2, "z_dim": 48, "scale_factor_spatial": 16}
        spread = {"latents_mean": [0.0] * 48, "latents_std": [1.0] * 48}
        AutoencoderKLWan(
            base_dim=8, decoder_base_dim=8, num_res_blocks=1, is_residual=True, **channels, **spread
        ).save_pretrained(snapshot / "vae")
    sizes = {"hidden_dim": 32, "ffn_dim": 32, "num_heads": 2, "attn_head_dim": 16, "num_layers": 2}
    sizes |= {"text_dim": 32, "freq_dim": 16, "eps": 1e-6, "action_dim": 7}
    video = {"patch_size": [1, 2, 2], "in_dim": 48, "out_dim": 48, "seperated_timestep": True}
    save(
        directory, "fastwam", image_size=(64, 128), action_horizon=CHUNK + 2, n_action_steps=4, num_inference_steps=3,
        torch_dtype="float32", tokenizer_model_id=str(where), text_encoder_model_id=str(where), tokenizer_max_len=96,
        base_model_id=None, video_dit_config={**sizes, **video, "video_attention_mask_mode": "first_frame_causal"},
        action_dit_config=sizes, **settings,
    )  # fmt: skip


def make_wall_x(directory: Path) -> None:
    """Its class wants weights where the base model lies, which the checkpoint's then replace."""
    from lerobot.policies.wall_x.modeling_wall_x import Qwen2_5_VLMoEForAction
    from lerobot.policies.wall_x.qwen_model.configuration_qwen2_5_vl import Qwen2_5_VLConfig
    from safetensors.torch import save_file
    from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    where, words = directory.parent / f"{directory.name}-vlm", qwen_tokenizer()
    words.add_tokens(["<|action|>", "<|propri|>"], special_tokens=True)
    text = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 1, "vocab_size": len(words), "num_experts": 2, "dim_inputs": [32, 32]}
    text |= {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "mlp_moe": True}
    text |= {"experts": [{"hidden_size": 32, "intermediate_size": 32, "hidden_act": "silu"}] * 2}
    text |= {"dof_config": {"arm": 7, "rest": 13}}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"fullatt_block_indexes": [0]}
    tokens = qwen_tokens(words)
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, agent_pos_config={"arm": 8, "rest": 12}, **tokens)
    config.save_pretrained(where)
    processor = Qwen2_5_VLProcessor(Qwen2VLImageProcessor(), words, Qwen2VLVideoProcessor(), chat_template=CHAT)
    processor.save_pretrained(where)
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    save_file(Qwen2_5_VLMoEForAction(config, processor=processor).state_dict(), where / "model.safetensors")
    save(directory, "wall_x", pretrained_name_or_path=str(where), chunk_size=CHUNK, n_action_steps=4)


def make_molmoact2(directory: Path, prepare=lambda model, ids: None, **settings) -> None:
    """``prepare`` may change the model before it is saved, knowing the ids of its special tokens."""
    from lerobot.policies.molmoact2.molmoact2_hf_model.configuration_molmoact2 import MolmoAct2Config
    from lerobot.policies.molmoact2.molmoact2_hf_model.modeling_molmoact2 import MolmoAct2ForConditionalGeneration
    from transformers import Qwen2Tokenizer

    where = directory.parent / f"{directory.name}-vlm"
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Qwen2Tokenizer(vocab={letter: index for index, letter in enumerate(letters)}, merges=[])
    images = ["<im_patch>", "<im_col>", "<im_start>", "<low_res_im_start>", "<frame_start>", "<im_end>", "<frame_end>"]
    actions = ["<action_output>", "<action_start>", "<action_end>", *(f"<action_{each}>" for each in range(64))]
    states = ["<state_start>", "<state_end>", *(f"<state_{each}>" for each in range(256))]
    marks = ["<|im_start|>", "<|im_end|>", "<setup_start>", "<setup_end>", "<control_start>", "<control_end>"]
    words.add_tokens([*images, "<im_low>", *marks, *actions, *states], special_tokens=True)
    ids = {token: words.convert_tokens_to_ids(token) for token in words.get_added_vocab()}
    words.save_pretrained(where)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    vit = {**sizes, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2, "image_num_pos": 16}
    vit |= {"image_default_input_size": (28, 28), "image_patch_size": 7}
    adapter = {**sizes, "num_key_value_heads": 2, "head_dim": 16, "vit_layers": (-1, -2), "text_hidden_size": 32}
    text = {**sizes, "head_dim": 16, "vocab_size": len(words), "num_hidden_layers": 2}
    expert = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "ffn_multiple_of": 8, "timestep_embed_dim": 16}
    config = MolmoAct2Config(
        vit_config=vit, adapter_config=adapter, text_config=text, action_expert_config=expert,
        image_start_token_id=ids["<im_start>"], low_res_image_start_token_id=ids["<low_res_im_start>"],
        image_end_token_id=ids["<im_end>"], image_low_res_id=ids["<im_low>"], image_patch_id=ids["<im_patch>"],
        image_col_id=ids["<im_col>"], frame_start_token_id=ids["<frame_start>"], frame_end_token_id=ids["<frame_end>"],
        max_action_horizon=CHUNK, action_output_token_id=ids["<action_output>"],
        action_start_token_id=ids["<action_start>"], action_end_token_id=ids["<action_end>"],
        action_token_start_id=ids["<action_0>"], num_action_tokens=64, state_start_token_id=ids["<state_start>"],
        state_end_token_id=ids["<state_end>"], state_token_start_id=ids["<state_0>"], num_state_tokens=256,
        eos_token_id=words.eos_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    model = MolmoAct2ForConditionalGeneration(config)
    prepare(model, ids)
    model.save_pretrained(where)
    picture = {"size": {"height": 28, "width": 28}, "patch_size": 7, "max_crops": 1, "crop_mode": "resize"}
    (where / "processor_config.json").write_text(json.dumps({"image_processor": picture}))
    save(
        directory, "molmoact2", checkpoint_path=str(where), model_dtype="float32", chunk_size=CHUNK, n_action_steps=4,
        num_inference_steps=3, setup_type="tiny arm", control_mode="delta pose", max_sequence_length=1024,
        **{"action_mode": "continuous", **settings},
    )  # fmt: skip


def make_molmoact2_tokens(directory: Path) -> None:
    """With both heads. After the prompt it says one of 64 action tokens, each a whole chunk, and then the end."""
    where = directory.parent / f"{directory.name}-fast"
    letters = torch.randint(33, 123, (64, CHUNK * LIBERO.action_dim), generator=torch.Generator().manual_seed(2))
    words = Tokenizer(models.WordLevel({"".join(map(chr, row)): index for index, row in enumerate(letters.tolist())}))
    PreTrainedTokenizerFast(tokenizer_object=words, clean_up_tokenization_spaces=False).save_pretrained(where)
    (where / "processor_config.json").write_text(json.dumps({"scale": 20, "min_token": -78}))

    def speak(model, ids: dict[str, int]) -> None:
        said = [ids[f"<action_{each}>"] for each in range(64)]
        with torch.no_grad():
            embedding = model.get_input_embeddings().embedding
            embedding[said, 0] += 30
            embedding[ids["<action_output>"], 1] += 30
            model.lm_head.weight[model.config.eos_token_id, 0] += 30
            model.lm_head.weight[said, 1] += 30

    make_molmoact2(directory, speak, action_mode="both", discrete_action_tokenizer=str(where))


def make_xvla_poses(directory: Path, own: bool = False, **settings) -> None:
    """As LeRobot's X-VLAs of LIBERO are: poses of twenty numbers; pictures are normalised by the env's processors.

    ``own``: they are normalised by the checkpoint's, as those that LeRobot makes anew do.
    """
    robot = Robot(state_dim=20, action_dim=20)
    make_xvla(directory, robot=robot, action_mode="ee6d", max_action_dim=20, **settings)
    if not own:
        file = directory / "policy_preprocessor.json"
        saved = json.loads(file.read_text())
        normalising = ("xvla_image_to_float", "xvla_imagenet_normalize")
        saved["steps"] = [step for step in saved["steps"] if step.get("registry_name") not in normalising]
        file.write_text(json.dumps(saved))


def make_xvla(directory: Path, robot: Robot = LIBERO, **settings) -> None:
    """In the action space that is the data's own (``auto``)."""
    words = directory.parent / f"{directory.name}-words"
    tokenizer().save_pretrained(words)
    text = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "vocab_size": 300}
    text |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 256}
    vision = {
        "embed_dim": [16, 16, 16, 32], "depths": [1, 1, 1, 1], "num_heads": [2, 2, 2, 2], "num_groups": [2, 2, 2, 2],
    }  # fmt: skip
    vision |= {"projection_dim": 32, "window_size": 4}
    save(
        directory, "xvla", robot, florence_config={"vision_config": vision, "text_config": text},
        tokenizer_name=str(words), chunk_size=CHUNK, n_action_steps=4,
        **{"action_mode": "auto", "max_action_dim": 10, **settings}, hidden_size=32, depth=1, num_heads=2,
        len_soft_prompts=4, num_denoising_steps=3, max_len_seq=256, num_image_views=2,
    )  # fmt: skip


def changed(source: Path, target: Path, **settings) -> Path:
    """A copy of a checkpoint with other settings in its config."""
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **settings}))
    return target


MAKERS = {
    "pi0_fast": make_pi0_fast, "vla_jepa": make_vla_jepa, "xvla": make_xvla, "xvla_poses": make_xvla_poses,
    "evo1": make_evo1, "groot": make_groot, "wall_x": make_wall_x, "fastwam": make_fastwam, "molmoact2": make_molmoact2,
    "molmoact2_tokens": make_molmoact2_tokens, "multi_task": make_multi_task, "multi_task_flow": make_multi_task_flow,
    "eo1": make_eo1, "smolvla": make_smolvla, "pi0": make_pi0, "pi05": make_pi05, "relative": make_relative,
    "diffusion": make_diffusion, "ddpm": make_ddpm, "act": make_act, "vqbet": make_vqbet, "tdmpc": make_tdmpc,
    "gaussian_actor": make_gaussian_actor,
}  # fmt: skip
