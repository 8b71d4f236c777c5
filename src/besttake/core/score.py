"""How close a take stays to the demonstrations: the manifold score (Eq. 4), coverage, and their windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.core.search import Bools, Trace


def manifold(trace: Trace, window: Bools | None = None) -> float:
    """Eq. 4: the mean of a take's best cosines over the frames of ``window`` (T,), all frames by default.

    NaN, an invalid score, for a take without frames in the window or with an embedding that is not finite.
    """
    best = trace.best if window is None else trace.best[window]
    return float(np.mean(best, dtype=np.float64)) if len(best) else float("nan")


def coverage(trace: Trace, visited: float, window: Bools | None = None) -> float:
    """`manifold` plus the best demonstration's visited fraction, later frames weighing more.

    ``s = mean_t max_f S[t, f] + max_j (sum_l l * max_t S[t, j, l]) / sum_l l``, l = 1..L_j counting the frames of demo
    j in order. The second term is the ``visited`` fraction that `cover` gives for the frames of ``window``. Compare
    takes on windows of equal length only.
    """
    return manifold(trace, window) + visited


def window_until(steps: NDArray[Any], end: int) -> Bools:
    """The frames (T,) seen at ``steps`` up to and with ``end``.

    ``end`` is the number of steps until the episode ended (window `episode`), of the whole fixed horizon (`full`), or
    until the first of the takes being compared ended (`common`).
    """
    return np.asarray(steps) <= end
