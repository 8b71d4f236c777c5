"""A tiny OpenVLA checkpoint as the hub has them: weights, processor, and the model's code beside them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

CODE = ("configuration_prismatic.py", "modeling_prismatic.py", "processing_prismatic.py")
AUTO_MAP = {
    "AutoConfig": "configuration_prismatic.OpenVLAConfig",
    "AutoModelForVision2Seq": "modeling_prismatic.OpenVLAForActionPrediction",
}
LOW, HIGH = [-0.5, -0.4, -0.3, -0.2, -0.1, -0.6, 0.0], [0.6, 0.5, 0.4, 0.3, 0.2, 0.7, 1.0]
STATS = {"action": {"q01": LOW, "q99": HIGH, "mask": [True] * 6 + [False]}}


@contextlib.contextmanager
def small_vision() -> Iterator[None]:
    """The backbones' sizes follow from their names in the model's code: the same class, fewer and thinner layers."""
    import timm

    whole = timm.create_model

    def smaller(name, **settings):
        return whole(name, **{**settings, "depth": 2, "embed_dim": 32, "num_heads": 2, "mlp_ratio": 2})

    with mock.patch.object(timm, "create_model", smaller):
        yield


def code(model: str) -> Path:
    """Where vla-arena has the code of a model: it imports a simulator at its top, but its files are all we need."""
    package = Path(importlib.util.find_spec("vla_arena").submodule_search_locations[0])
    return package / "models" / model / "prismatic" / "extern" / "hf"


def make(directory: Path, norm_stats) -> Path:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForVision2Seq, PreTrainedTokenizerFast

    for name in CODE:
        shutil.copy(code("openvla") / name, directory / name)
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 2, "vocab_size": 32064, "pad_token_id": 32000}
    config = {"model_type": "openvla", "vision_backbone_id": "siglip-vit-so400m", "llm_backbone_id": "llama2-7b-pure"}
    config |= {"text_config": text, "norm_stats": norm_stats, "auto_map": AUTO_MAP}
    (directory / "config.json").write_text(json.dumps(config))

    torch.manual_seed(0)
    loaded = AutoConfig.from_pretrained(directory, trust_remote_code=True)
    model = AutoModelForVision2Seq.from_config(loaded, trust_remote_code=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
        # A random head hardly ever names one of the 256 action tokens; a trained one always does.
        model.language_model.lm_head.weight[31744:32000] *= 10
        model.language_model.lm_head.weight[:31744] *= 0.01
        model.language_model.lm_head.weight[32000:] *= 0.01
    model.save_pretrained(directory, safe_serialization=True)
    (directory / "config.json").write_text(json.dumps(config))

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = Tokenizer(
        models.BPE({t: i for i, t in enumerate(["<unk>", "<s>", "</s>", *letters])}, [], unk_token="<unk>")
    )
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(
        tokenizer_object=tokens, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<unk>"
    ).save_pretrained(directory)
    picture = {
        "auto_map": {
            "AutoImageProcessor": "processing_prismatic.PrismaticImageProcessor",
            "AutoProcessor": "processing_prismatic.PrismaticProcessor",
        },
        "image_processor_type": "PrismaticImageProcessor",
        "processor_class": "PrismaticProcessor",
        "image_resize_strategy": "resize-naive",
        "input_sizes": [[3, 224, 224]],
        "interpolations": ["bicubic"],
        "means": [[0.5, 0.5, 0.5]],
        "stds": [[0.5, 0.5, 0.5]],
        "use_fused_vision_backbone": False,
    }
    (directory / "preprocessor_config.json").write_text(json.dumps(picture))
    return directory
