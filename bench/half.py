"""``python -m bench.half RUN …``: what float16 embeddings (`library build --half`) change in the picks of runs.

For every start of the arm ``base`` the takes are scored twice by brute force, with the embeddings of the run's library
as they are and rounded to float16, over all frames. Printed are how often the pick by a score is another take, how
often that changes the outcome, and the largest change of a score.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from besttake.demos.library import Library
from besttake.demos.view import View
from besttake.takes.store import Store

Matrix = NDArray[np.float64]


def manifold(cosines: Matrix, view: View) -> float:
    """Eq. 4: the mean over a take's frames of the best cosine."""
    return float(cosines.max(axis=1).mean())


def coverage(cosines: Matrix, view: View) -> float:
    """The same, plus the share of the best demonstration that is visited, later frames weighing more."""
    visited = []
    for demo in view.demos:
        best = cosines[:, view.frame_demo == demo].max(axis=0)
        weights = np.arange(1, len(best) + 1)
        visited.append(float((best * weights).sum() / weights.sum()))
    return manifold(cosines, view) + max(visited)


SCORES: dict[str, Callable[[Matrix, View], float]] = {"manifold": manifold, "coverage": coverage}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.half", description=__doc__)
    parser.add_argument("run", nargs="+", type=Path)
    starts = dict.fromkeys(SCORES, 0)
    other, outcome, largest, takes = dict(starts), dict(starts), dict.fromkeys(SCORES, 0.0), 0
    for run in parser.parse_args().run:
        with Store.open(run) as store:
            library = Library.open(store.manifest.library or "")
            encoder = library.encoder()
            scored = defaultdict(list)
            for row in store.rows():
                if row.key.arm == "base" and row.status == "done":
                    view, frames = library.view(row.key.task), encoder.encode(store.load(row).frames())
                    exact = np.asarray(view.embeddings, np.float64)
                    both = [frames.astype(np.float64) @ e.T for e in (exact, exact.astype(np.float16).astype(float))]
                    place = (row.key.policy, row.key.env, row.key.task, row.key.start)
                    scored[place].append(({n: [s(c, view) for c in both] for n, s in SCORES.items()}, row.success))
                    takes += 1
        for own in scored.values():
            for name in SCORES:
                one, two = (np.array([scores[name][which] for scores, _ in own]) for which in (0, 1))
                starts[name] += 1
                other[name] += bool(one.argmax() != two.argmax())
                outcome[name] += own[int(one.argmax())][1] != own[int(two.argmax())][1]
                largest[name] = max(largest[name], float(np.abs(one - two).max()))
    for name in SCORES:
        print(
            f"{name}: {takes} takes, {starts[name]} starts, another pick {other[name]}, another outcome"
            f" {outcome[name]}, largest change of a score {largest[name]:.2g}"
        )


if __name__ == "__main__":
    main()
