"""K = 3 samples at each of 8 observations, in one call against one row at a time, per family (needs lerobot).

    python bench/policies.py [--families pi0 pi05 smolvla diffusion] [--rounds 3] [--clock cpu]

Random weights, the real classes. "tiny" is the size of the integration tests, where overhead rules; --wide makes
SmolVLA's towers wider, so that the shared prefix shows. Ratios are loop time / one-call time (above 1: one call is
faster), medians over rounds in which both run in turn. The loop calls ``sample`` with one row and ``width=1``, which
is what one gets from a policy that is asked row by row; the largest difference between the two is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "integration" / "lerobot")]


def rows(observations: int, samples: int) -> tuple[list[Any], list[Any]]:
    from besttake.takes.draws import Draw
    from besttake.types import Observation

    rng = np.random.default_rng(0)
    seen = [
        Observation(
            {camera: rng.integers(0, 256, (64, 64, 3), np.uint8) for camera in ("agentview", "wrist")},
            rng.normal(0, 0.3, 8).astype(np.float32),
            "pick up the cube",
        )
        for _ in range(observations)
    ]
    repeated = [one for one in seen for _ in range(samples)]
    return repeated, [Draw(0, "bench", row // samples, row % samples) for row in range(len(repeated))]


def seconds(run: Any, clock: str) -> float:
    """Wall or processor seconds; the latter hold still on a machine that has other work."""
    now = time.process_time if clock == "cpu" else time.perf_counter
    began = now()
    run()
    return now() - began


def measure(checkpoint: Path, rounds: int, clock: str) -> dict[str, float]:
    from besttake import registry

    together = registry.policy(f"lerobot:{checkpoint}?width=8")
    alone = registry.policy(f"lerobot:{checkpoint}?width=1")
    seen, draws = rows(8, 3)

    def loop() -> np.ndarray:
        return np.concatenate([alone.sample([o], [d]) for o, d in zip(seen, draws, strict=True)])

    far = float(np.abs(together.sample(seen, draws) - loop()).max())
    pairs = [(seconds(lambda: together.sample(seen, draws), clock), seconds(loop, clock)) for _ in range(rounds)]
    return {
        "samples_per_second": round(len(draws) / float(np.median([a for a, _ in pairs])), 1),
        "ratio": round(float(np.median([b / a for a, b in pairs])), 2),
        "difference": far,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", nargs="*", default=["pi0", "pi05", "smolvla", "diffusion"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=str(Path(directory) / "hf"))
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # on a busy machine the threads of tiny models wait in vain
        import tiny

        result = {}
        with tiny.shrunken_paligemma():
            for family in args.families:
                checkpoint = Path(directory) / family
                with contextlib.redirect_stdout(sys.stderr):
                    tiny.MAKERS[family](checkpoint, **({"wide": True} if args.wide and family == "smolvla" else {}))
                result[family] = measure(checkpoint, args.rounds, args.clock)
    if args.json:
        print(json.dumps({"bench": "policies", "clock": args.clock, "rows": "8 observations x 3 samples", **result}))
        return
    for family, row in result.items():
        print(
            f"{family:10s} {row['samples_per_second']:8.1f} samples/s   x {row['ratio']:.2f} of the loop"
            f"   (difference {row['difference']:.0e})"
        )


if __name__ == "__main__":
    main()
