"""What a fixed order of sums costs: `besttake.core.arithmetic` against numpy. ``python -m bench.arithmetic``"""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from bench.timing import in_turn, machine
from besttake.core import arithmetic

ROUNDS = 15


def compare(what: str, plain: Callable[[], object], fixed: Callable[[], object], times: int = 50) -> None:
    """Print the microseconds of processor time of both, medians over rounds of so many ``times``."""
    runs = {"numpy": plain, "fixed order": fixed}
    repeated = {name: lambda run=run: [run() for _ in range(times)] for name, run in runs.items()}
    spent = {name: 1e6 * float(np.median(each.cpu)) / times for name, each in in_turn(repeated, ROUNDS).items()}
    print(f"{what:32s} numpy {spent['numpy']:8.1f} us, in a fixed order {spent['fixed order']:8.1f} us")


def main() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((256, 256), np.float32)
    for batch in (1, 8, 64):
        rows = rng.standard_normal((batch, 256), np.float32)
        compare(
            f"product of {batch} x 256 and 256 x 256",
            lambda r=rows: r @ weight,
            lambda r=rows: arithmetic.product(r, weight),
        )
        compare(f"exp of {batch} x 256", lambda r=rows: np.exp(r), lambda r=rows: arithmetic.exp(r))
    half = rng.standard_normal((64, 200))
    square = arithmetic.product(half, half.T)
    compare("eigenvectors of 64 x 64", lambda: np.linalg.eigh(square), lambda: arithmetic.eigh(square), times=1)
    print(machine())


if __name__ == "__main__":
    main()
