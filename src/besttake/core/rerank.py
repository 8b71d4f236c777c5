"""Per-step re-ranking, which the paper compares episode-level selection against (Sec. 4.3).

What is ranked: the candidate chunks of one replan. Where the policy predicts its next observation, by that
observation's highest cosine to a demonstration frame (Eq. 4 for one frame). Else by the action itself: the chunks
demonstrated at the library frames most like the current observation are taken, and a candidate is as good as it is
close to the nearest of them, in root mean square over steps and action dimensions, each dimension in units of its
spread over the task's demonstrations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


def alike(embedding: NDArray[Any], library: NDArray[Any], count: int) -> I64:
    """The ``count`` library frames (F, d) most like ``embedding`` (d,), best first, ties to the lowest."""
    cosine = (np.asarray(library, np.float64) * np.asarray(embedding, np.float64)).sum(axis=1)
    return np.argsort(-cosine, kind="stable")[:count]


def closeness(chunks: NDArray[Any], shown: NDArray[Any], scale: NDArray[Any]) -> F64:
    """Minus the distance (C,) of each candidate (C, h, a) to the nearest chunk ``shown`` (k, h, a); ``scale`` (a,)."""
    unit = np.where(np.asarray(scale) > 0, scale, 1.0)
    gaps = (np.asarray(chunks, np.float64)[:, None] - np.asarray(shown, np.float64)[None]) / unit
    nearest: F64 = -np.sqrt(np.mean(gaps**2, axis=(2, 3))).min(axis=1)
    return nearest
