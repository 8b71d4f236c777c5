"""The exact search against a plain numpy product, which only has the row maxima. ``python -m bench.search``

A library as LIBERO has of one task, 7,500 frames of 1536 numbers, and 16 takes of 80 frames. One thread.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from bench.timing import in_turn, machine, times_faster
from besttake.core.retrieve import Candidates, RetrievalConfig, Retriever
from besttake.core.score import Demos, cover
from besttake.core.search import Index

FRAMES, DIM, TAKES, LENGTH, DEMO = 7500, 1536, 16, 80, 150


def walks(rng: np.random.Generator, rows: int, mix: np.ndarray) -> np.ndarray:
    """Unit vectors (rows, d) along a smooth random walk, seen through ``mix`` (rank, d), with a little noise."""
    walk = np.tanh(np.cumsum(rng.standard_normal((rows, len(mix))), axis=0) / 10)
    x = walk @ mix + 0.1 * rng.standard_normal((rows, mix.shape[1]))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((32, DIM))
    library, takes = walks(rng, FRAMES, mix), [walks(rng, LENGTH, mix) for _ in range(TAKES)]
    together, index = np.concatenate(takes), Index.build(library)
    demo, step = np.arange(FRAMES) // DEMO, np.arange(FRAMES) % DEMO
    chunks = rng.standard_normal((FRAMES, 10, 7)).astype(np.float32)
    states = rng.standard_normal((FRAMES, 8)).astype(np.float32)
    retriever = Retriever(Candidates(library, chunks, demo, step, states), RetrievalConfig(rule="frame"))
    asked = together, rng.standard_normal((len(together), 10, 7)), rng.standard_normal((len(together), 8))
    runs = {
        "plain product": lambda: (together @ library.T).max(axis=1),
        "nearest": lambda: index.nearest(together),
        "coverage of 3 windows": lambda: cover(
            index, takes, [[LENGTH, LENGTH // 2, LENGTH // 3]] * TAKES, Demos.of(demo, step)
        ),
        "retrieval by frame": lambda: retriever.query(*asked),
    }
    for run in runs.values():
        run()
    times = in_turn(runs, 5)
    print(machine())
    for name, own in times.items():
        cost = 1 / times_faster(times["plain product"], own)[1]
        print(
            f"{name}: {1000 * np.median(own.cpu) / TAKES:.1f} ms of a processor a take, {cost:.2f}x the plain product"
        )


if __name__ == "__main__":
    main()
