"""The paper's phi against a plain transformers loop, one frame at a time (needs torch and transformers).

    python bench/encode.py [--frames 16] [--batch 8] [--rounds 3] [--clock cpu]

Both encoders have the same random weights at ViT-B size, and the same film: 96 x 128 frames of which every fourth is
a repeat, as when an arm waits. Three ratios, loop time / our time (above 1: we are faster), medians over rounds in
which both run in turn: the encoder alone, with an empty cache, and with the cache of an earlier run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from besttake import registry
from besttake.encoders.cache import CachedEncoder


def checkpoints(root: Path) -> tuple[Path, Path]:
    import torch
    import transformers

    torch.manual_seed(0)
    transformers.Dinov2Model(transformers.Dinov2Config(image_size=518, patch_size=14)).save_pretrained(root / "dinov2")
    transformers.SiglipVisionModel(transformers.SiglipVisionConfig()).save_pretrained(root / "siglip")
    return root / "dinov2", root / "siglip"


def plain_loop(dinov2: Path, siglip: Path) -> Any:
    """What one writes first: a frame in, both models, a vector out."""
    import torch
    import transformers
    from PIL import Image

    first = transformers.Dinov2Model.from_pretrained(dinov2).eval()
    second = transformers.SiglipVisionModel.from_pretrained(siglip).eval()
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

    def encode(images: np.ndarray) -> np.ndarray:
        out = []
        for image in images:
            square = np.array(Image.fromarray(image).resize((224, 224), Image.Resampling.BICUBIC))
            pixels = torch.from_numpy(square).permute(2, 0, 1).float() / 255
            with torch.no_grad():
                one = first(((pixels - mean) / std)[None]).pooler_output
                two = second(((pixels - 0.5) / 0.5)[None]).pooler_output
            out.append(torch.nn.functional.normalize(torch.cat([one, two], 1), dim=1)[0].numpy())
        return np.stack(out)

    return encode


def film(frames: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    different = rng.integers(0, 256, (frames, 96, 128, 3), np.uint8)
    return different[np.arange(frames) - (np.arange(frames) % 4 == 3)]


def seconds(run: Any, clock: str) -> float:
    """Wall or processor seconds; the latter hold still on a machine that has other work."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    began = now()
    run()
    return now() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("frames", 16), ("batch", 8), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    images = film(args.frames)
    with tempfile.TemporaryDirectory() as directory:
        dinov2, siglip = checkpoints(Path(directory))
        loop = plain_loop(dinov2, siglip)
        phi = registry.encoder(f"dinov2+siglip:{dinov2},{siglip}?batch={args.batch}")
        far = float(np.abs(phi.encode(images[:2]) - loop(images[:2])).max())
        times: dict[str, list[float]] = {"loop": [], "encoder": [], "empty cache": [], "earlier run's cache": []}
        for turn in range(args.rounds):
            cache = Path(directory) / f"cache{turn}"
            times["loop"].append(seconds(lambda: loop(images), args.clock))
            times["encoder"].append(seconds(lambda: phi.encode(images), args.clock))
            for name in ("empty cache", "earlier run's cache"):
                run = partial(CachedEncoder(phi, cache).encode, images)
                times[name].append(seconds(run, args.clock))
    result = {
        name: {
            "frames_per_second": round(args.frames / float(np.median(values)), 2),
            "ratio": round(float(np.median([a / b for a, b in zip(times["loop"], values, strict=True)])), 2),
        }
        for name, values in times.items()
    }
    if args.json:
        print(json.dumps({"bench": "encode", "clock": args.clock, "frames": args.frames, "difference": far, **result}))
        return
    for name, row in result.items():
        print(f"{name:20s} {row['frames_per_second']:8.2f} frames/s   x {row['ratio']:.2f} of the loop")
    print(f"largest difference between the two: {far:.1e}")


if __name__ == "__main__":
    main()
