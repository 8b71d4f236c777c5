"""The paper's phi against a plain transformers loop, one frame at a time (needs torch and transformers).

    python bench/encode.py [--frames 8] [--batch 8] [--rounds 3] [--threads 1]

Both have the same random weights at ViT-B size (DINOv2 ViT-B/14, SigLIP base/16) and encode the same 96 x 128 frames,
in turn. Then the same frames come again, through the cache that a first pass filled. "x" is the loop's time over ours
(above 1: ours is faster), the median over rounds, of wall and of processor time. One thread unless told: on a busy
machine two wait for each other, the loop's more often, and the ratio then measures the other work.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.timing import in_turn, machine, times_faster  # noqa: E402
from besttake import registry  # noqa: E402
from besttake.encoders.cache import CachedEncoder  # noqa: E402


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


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("frames", 8), ("batch", 8), ("rounds", 3), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    images = np.random.default_rng(0).integers(0, 256, (args.frames, 96, 128, 3), np.uint8)
    with tempfile.TemporaryDirectory() as directory:
        dinov2, siglip = checkpoints(Path(directory))
        loop = plain_loop(dinov2, siglip)
        phi = registry.encoder(f"dinov2+siglip:{dinov2},{siglip}?batch={args.batch}")
        far = float(np.abs(phi.encode(images[:2]) - loop(images[:2])).max())
        before = machine()
        times = in_turn({"loop": lambda: loop(images), "batched": lambda: phi.encode(images)}, args.rounds)
        CachedEncoder(phi, directory).encode(images)
        again = CachedEncoder(phi, directory)
        again.encode(images)
        times |= in_turn({"second pass": lambda: again.encode(images)}, args.rounds)
        if again.encoded:
            raise SystemExit(f"the second pass encoded {again.encoded} frames")
    print(f"{before}; {args.frames} frames, {args.rounds} rounds, {args.threads} threads")
    for name, own in times.items():
        wall, cpu = times_faster(times["loop"], own)
        print(f"{name:12s} {own.rate(args.frames):10.2f} frames/s   x {wall:.2f} wall, x {cpu:.2f} cpu")
    print(f"largest difference between loop and batched: {far:.1e}")


if __name__ == "__main__":
    main()
