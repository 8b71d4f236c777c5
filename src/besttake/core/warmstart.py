"""Where a sample starts (Eq. 6): between noise and a demonstrated chunk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


def warm_start(noise: F32, alpha: float, chunk: F32 | None) -> F32:
    """``a_init = alpha * chunk + (1 - alpha) * noise`` (Eq. 6), in the policy's own space and of the noise's shape.

    Without a chunk it is the arm `cooled`, ``(1 - alpha) * noise``. With alpha = 0 it is the noise itself.
    """
    if alpha == 0:
        return noise
    calmer: F32 = np.float32(1 - alpha) * noise
    return calmer if chunk is None else calmer + np.float32(alpha) * chunk


def on_step(time: float, steps: int) -> float:
    """The flow time nearest to ``time`` that is a whole number of ``steps`` equal steps."""
    return round(time * steps) / steps


def blend(sample: F32, chunk: F32, alpha: float) -> F32:
    """``(1 - alpha) * sample + alpha * chunk``, in action space."""
    blended: F32 = np.float32(1 - alpha) * sample + np.float32(alpha) * chunk
    return blended
