"""The scoring kernel against faiss IndexFlatIP, side by side in one process.

python bench/score.py [--frames 10000] [--dim 1536] [--queries 2000] [--takes 24] [--rounds 7] [--json]

For each kind of data: the ratio faiss time / our time (above 1: we are faster), as the median over rounds in which both
run in turn, and the largest difference between the maxima found. One thread and CPU time, so that a busy machine does
not decide. `portion` is what a diagnosis runs: takes of 40 and of 80 frames together, for `manifold` alone, for
`manifold` and `coverage` on one window, and on three windows of different length; faiss finds the row maxima only.
Without faiss-cpu a plain product in blocks, with its row maxima, stands in for it.
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

from besttake.core.cover import Demos, cover  # noqa: E402
from besttake.core.search import Index  # noqa: E402


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


class Plain:
    """What faiss IndexFlatIP does, by numpy."""

    def __init__(self, library: np.ndarray) -> None:
        self.library = library

    def search(self, queries: np.ndarray) -> np.ndarray:
        best = np.full(len(queries), -np.inf, np.float32)
        for first in range(0, len(queries), 1024):
            part = best[first : first + 1024]
            for start in range(0, len(self.library), 4096):
                products = queries[first : first + 1024] @ self.library[start : start + 4096].T
                np.maximum(part, products.max(axis=1), out=part)
        return best


def reference(library: np.ndarray) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """The name of what we compare with, and its row maxima."""
    try:
        import faiss
    except ImportError:
        return "plain product", Plain(library).search
    flat = faiss.IndexFlatIP(library.shape[1])
    flat.add(library)
    return "faiss IndexFlatIP", lambda queries: flat.search(queries, 1)[0][:, 0]


def portion(
    index: Index, takes: list[np.ndarray], search: Callable[[np.ndarray], Any], rounds: int
) -> dict[str, float]:
    """Reference time / our time for what a diagnosis does with a portion; demonstrations of 100 frames."""
    frames, length = len(index.library), len(takes[0])
    demos, together = Demos.of(np.arange(frames) // 100, np.arange(frames)), np.concatenate(takes)
    one, three = [[length]] * len(takes), [[length, length // 2, length // 3]] * len(takes)
    ways: dict[str, Callable[[], Any]] = {
        "manifold": lambda: index.nearest(together),
        "manifold_and_coverage": lambda: cover(index, takes, one, demos),
        "manifold_and_coverage_of_three_windows": lambda: cover(index, takes, three, demos),
    }
    return {name: round(compare(way, lambda: search(together), rounds)[0], 2) for name, way in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    defaults = (("frames", 10_000), ("dim", 1536), ("queries", 2000), ("takes", 24), ("rounds", 7))
    for name, default in defaults:
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
    results: dict[str, Any] = {}
    for name, make in makers.items():
        library, queries = make(rng, args.frames, args.dim), make(rng, args.queries, args.dim)
        began = time.process_time()
        index = Index.build(library)
        built = time.process_time() - began
        results["reference"], search = reference(library)
        dense = Index(library)
        found = index.nearest(queries).best
        ratio, ours, theirs = compare(lambda: index.nearest(queries), lambda: search(queries), args.rounds)  # noqa: B023
        plain, _, _ = compare(lambda: dense.nearest(queries), lambda: search(queries), args.rounds)  # noqa: B023
        results[name] = {
            "reference_over_ours": round(ratio, 2),
            "reference_over_ours_without_bound": round(plain, 2),
            "bound_used": index.basis is not None,
            "ours_s": round(ours, 4),
            "reference_s": round(theirs, 4),
            "prepare_s": round(built, 4),
            "largest_difference": float(np.abs(found - search(queries)).max()),
            "portion": {
                f"{args.takes} x {length}": portion(
                    index, [make(rng, length, args.dim) for _ in range(args.takes)], search, args.rounds
                )
                for length in (40, 80)
            },
        }
    print(json.dumps(results, indent=None if args.json else 2))


if __name__ == "__main__":
    main()
