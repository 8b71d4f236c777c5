"""Tiny random checkpoints of LeRobot's four reward models, written by its own ``save_pretrained``."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.rewards import get_reward_model_class, make_reward_model_config, make_reward_pre_post_processors
from lerobot.rewards.robometer.configuration_robometer import ROBOMETER_SPECIAL_TOKENS
from tiny import cached
from tokenizers import Tokenizer, models, pre_tokenizers

QWEN_TOKENS = (
    "<pad>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|im_start|>",
    *ROBOMETER_SPECIAL_TOKENS,
)  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif c['type'] == 'video' %}<|vision_start|><|video_pad|>"
    "<|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>{% endfor %}"
)


def _tokenizer(special: tuple[str, ...], end: str, whole: tuple[str, ...] = ()) -> transformers.PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *whole, *letters])}
    model = Tokenizer(models.BPE(vocabulary, [], unk_token="<pad>"))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token=end, unk_token="<pad>", model_max_length=4096
    )
    made.add_special_tokens({"additional_special_tokens": list(special[1:])})
    return made


def qwen(directory: Path) -> Path:
    """A Qwen3-VL of 2 layers with its processor."""
    tokens = _tokenizer(QWEN_TOKENS, "<|im_end|>")
    ids = {name: tokens.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad")}
    text = {
        "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": len(tokens), "pad_token_id": 0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]},
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32,
        "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
    }  # fmt: skip
    config = transformers.Qwen3VLConfig(
        text_config=text, vision_config=vision, image_token_id=ids["image_pad"], video_token_id=ids["video_pad"],
        vision_start_token_id=tokens.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokens.convert_tokens_to_ids("<|vision_end|>"),
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Qwen3VLForConditionalGeneration(config)
    louder(model)
    model.save_pretrained(directory)
    sizes = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2}
    transformers.Qwen3VLProcessor(
        transformers.Qwen2VLImageProcessor(**sizes), tokens, transformers.Qwen3VLVideoProcessor(**sizes),
        chat_template=TEMPLATE,
    ).save_pretrained(directory)  # fmt: skip
    return directory


def louder(model: torch.nn.Module) -> None:
    """Fresh layers are nearly silent; louder, every input shows in the answer."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))


def clip() -> None:
    """LeRobot fixes the name, so a tiny CLIP goes where the hub's cache would have the real one."""
    if (snapshot := cached("openai/clip-vit-base-patch32")) is None:
        return
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokens = _tokenizer(("<pad>", "<|startoftext|>", "<|endoftext|>"), "<|endoftext|>")
    text = {**small, "vocab_size": len(tokens), "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 512}
    vision = {**small, "image_size": 32, "patch_size": 16}
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=512))
    louder(model)
    model.save_pretrained(snapshot)
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    transformers.CLIPProcessor(transformers.CLIPImageProcessor(**size), tokens).save_pretrained(snapshot)


def _saved(directory: Path, kind: str, stats: dict | None = None, **settings) -> None:
    torch.manual_seed(1)
    config = make_reward_model_config(kind, device="cpu", push_to_hub=False, **settings)
    model = get_reward_model_class(kind)(config).eval()
    louder(model)
    model.save_pretrained(directory)
    for processor in make_reward_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(directory)


def make_classifier(directory: Path, cameras: int = 1, classes: int = 2) -> None:
    base = directory.parent / f"{directory.name}-resnet"
    torch.manual_seed(0)
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    transformers.ResNetModel(transformers.ResNetConfig(**sizes)).eval().save_pretrained(base)
    picture = PolicyFeature(type=FeatureType.VISUAL, shape=(3, 128, 128))
    names = [f"observation.images.{name}" for name in ("wrist", "front")[:cameras]]
    stats = {name: {"mean": torch.full((3, 1, 1), 0.4), "std": torch.full((3, 1, 1), 0.3)} for name in names}
    _saved(
        directory, "reward_classifier", stats, model_name=str(base), num_cameras=cameras, num_classes=classes,
        hidden_dim=8, latent_dim=8, image_embedding_pooling_dim=2, input_features=dict.fromkeys(names, picture),
    )  # fmt: skip


def make_sarm(directory: Path) -> None:
    clip()
    stats = {"observation.state": {"mean": torch.linspace(-1, 1, 20), "std": torch.linspace(0.5, 1, 20)}}
    _saved(
        directory, "sarm", stats, hidden_dim=24, num_heads=2, num_layers=1, frame_gap=7, n_obs_steps=4,
        max_rewind_steps=2, image_key="observation.images.wrist",
    )  # fmt: skip


def make_robometer(directory: Path) -> None:
    base = qwen(directory.parent / f"{directory.name}-qwen")
    # As in training: on top of the base model, and saved with the weights of both.
    _saved(directory, "robometer", base_model_id=str(base), pretrained_path=None, torch_dtype="float32")


def make_topreward(directory: Path) -> None:
    base = qwen(directory.parent / f"{directory.name}-qwen")
    torch.manual_seed(1)
    config = make_reward_model_config("topreward", device="cpu", vlm_name=str(base), torch_dtype="float32")
    get_reward_model_class("topreward")(config).save_pretrained(directory)


MAKERS = {
    "reward_classifier": make_classifier, "sarm": make_sarm, "robometer": make_robometer, "topreward": make_topreward
}  # fmt: skip


def with_code(directory: Path, file: str, content: dict) -> None:
    """The checkpoint, with more in one of its files."""
    path = directory / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **content}))
