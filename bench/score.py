"""The scoring kernel against faiss IndexFlatIP, side by side in one process (needs faiss-cpu).

python bench/score.py [--frames 10000] [--dim 1536] [--queries 2000] [--rounds 7] [--json]

For each kind of data: the ratio faiss time / our time (above 1: we are faster), as the median over rounds in which both
run in turn, and the largest difference between the maxima found. One thread and CPU time, so that a busy machine does
not decide.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from besttake.core.score import Index  # noqa: E402


def isotropic(rng: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    x = rng.standard_normal((rows, dim), dtype=np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


class Trajectories:
    """Smooth random walks of ``rank`` dimensions around a mean, seen through one fixed mixture, with noise in all."""

    def __init__(self, rng: np.random.Generator, dim: int, rank: int, noise: float) -> None:
        self.mix, self.mean, self.noise = rng.standard_normal((rank, dim)), rng.standard_normal(dim), noise

    def __call__(self, rng: np.random.Generator, rows: int, dim: int) -> np.ndarray:
        rank = len(self.mix)
        walks = [np.cumsum(rng.standard_normal((min(100, rows - i), rank)), axis=0) for i in range(0, rows, 100)]
        x = np.tanh(np.concatenate(walks) / 10) @ self.mix / np.sqrt(rank) + self.mean
        x += self.noise * rng.standard_normal((rows, dim))
        return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def compare(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> tuple[float, float, float]:
    times: list[tuple[float, float]] = []
    for i in range(rounds + 1):
        pair = []
        for run in (ours, theirs):
            began = time.process_time()
            run()
            pair.append(time.process_time() - began)
        if i:
            times.append((pair[0], pair[1]))
    ratios = [b / a for a, b in times]
    return float(np.median(ratios)), float(np.median([a for a, _ in times])), float(np.median([b for _, b in times]))


def main() -> None:
    import faiss

    parser = argparse.ArgumentParser()
    for name, default in (("frames", 10_000), ("dim", 1536), ("queries", 2000), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    makers = {
        "isotropic": isotropic,
        "trajectories": Trajectories(rng, args.dim, 32, 0.02),
        "noisy trajectories": Trajectories(rng, args.dim, 32, 0.1),
        "wide trajectories": Trajectories(rng, args.dim, 200, 0.1),
    }
    results = {}
    for name, make in makers.items():
        library, queries = make(rng, args.frames, args.dim), make(rng, args.queries, args.dim)
        began = time.process_time()
        index = Index.build(library)
        built = time.process_time() - began
        flat = faiss.IndexFlatIP(args.dim)
        flat.add(library)
        dense = Index(library)
        found, reference = index.nearest(queries).best, flat.search(queries, 1)[0][:, 0]
        ratio, ours, theirs = compare(lambda: index.nearest(queries), lambda: flat.search(queries, 1), args.rounds)  # noqa: B023
        plain, _, _ = compare(lambda: dense.nearest(queries), lambda: flat.search(queries, 1), args.rounds)  # noqa: B023
        results[name] = {
            "faiss_over_ours": round(ratio, 2),
            "faiss_over_ours_without_bound": round(plain, 2),
            "bound_used": index.basis is not None,
            "ours_s": round(ours, 4),
            "faiss_s": round(theirs, 4),
            "prepare_s": round(built, 4),
            "largest_difference": float(np.abs(found - reference).max()),
        }
    print(json.dumps(results, indent=None if args.json else 2))


if __name__ == "__main__":
    main()
