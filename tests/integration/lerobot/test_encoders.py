"""The real vision towers at their real size with random weights, saved and then loaded as a user's checkpoint is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from besttake import registry
from besttake.errors import ComponentError
from besttake.testing import check_encoder


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """ViT-B/14 with DINOv2's position table of 518 px, and a whole SigLIP (text tower too) as the hub has it."""
    root = tmp_path_factory.mktemp("vision")
    torch.manual_seed(0)
    transformers.Dinov2Model(transformers.Dinov2Config(image_size=518, patch_size=14)).save_pretrained(root / "dinov2")
    text = {"num_hidden_layers": 1, "vocab_size": 100}
    whole = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config={"image_size": 224}))
    whole.save_pretrained(root / "siglip")
    return root


@pytest.fixture(scope="module")
def pictures():
    return np.random.default_rng(0).integers(0, 256, (3, 96, 128, 3), np.uint8)


@pytest.fixture(scope="module")
def phi(checkpoints):
    return registry.encoder(f"dinov2+siglip:{checkpoints / 'dinov2'},{checkpoints / 'siglip'}?batch=2")


def test_phi_gives_unit_vectors_of_1536_numbers_alone_and_in_a_batch(phi, pictures):
    check_encoder(phi, images=pictures, atol=0.0)
    assert phi.spec.dim == 1536


def test_phi_is_the_class_token_and_the_attention_pool_side_by_side(phi, checkpoints, pictures):
    """Against a plain transformers loop on the same pixels."""
    from PIL import Image

    square = np.stack([np.asarray(Image.fromarray(p).resize((224, 224), Image.Resampling.BICUBIC)) for p in pictures])
    pixels = torch.from_numpy(square).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    dino = transformers.Dinov2Model.from_pretrained(checkpoints / "dinov2").eval()
    siglip = transformers.SiglipVisionModel.from_pretrained(checkpoints / "siglip").eval()
    with torch.no_grad():
        token = dino((pixels - mean) / std).last_hidden_state[:, 0]
        pool = siglip((pixels - 0.5) / 0.5).pooler_output
    expected = torch.nn.functional.normalize(torch.cat([token, pool], dim=1), dim=1)
    np.testing.assert_allclose(phi.encode(pictures), expected.numpy(), atol=1e-5)


def test_no_hub_a_wrong_checkpoint_and_missing_weights_are_one_clear_line(checkpoints, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    broken = tmp_path / "broken"
    small = transformers.Dinov2Model(transformers.Dinov2Config(num_hidden_layers=1))
    state = {k: v for k, v in small.state_dict().items() if "layernorm" not in k}
    small.save_pretrained(broken, state_dict=state)
    for uri, words in (
        ("dinov2:no-such-org/no-such-model", "cannot load no-such-org/no-such-model"),
        (f"dinov2:{tmp_path / 'nowhere'}", "cannot load"),
        (f"dinov2:{checkpoints / 'siglip'}", "holds a siglip model where dinov2 is needed"),
        (f"dinov2:{broken}", "they would be random"),
        (f"dinov2:{checkpoints / 'dinov2'}?device=tpu", "this machine has"),
    ):
        with pytest.raises(ComponentError, match=words) as error:
            registry.encoder(uri)
        assert "\n" not in str(error.value)
