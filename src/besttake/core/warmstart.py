"""Where a sample starts: from noise, with a demonstrated chunk added to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


def warm_start(eps: F32, noise: float, prior: float = 0.0, chunk: F32 | None = None) -> F32:
    """``a_init = prior * chunk + noise * eps``, in the policy's own space and of the shape of ``eps``.

    Eq. 6 is prior alpha and noise 1 - alpha. Without a chunk, or with prior 0, it is the arm `cooled`; with noise 1
    besides, it is ``eps`` itself.
    """
    calmer: F32 = eps if noise == 1 else np.float32(noise) * eps
    return calmer if chunk is None or prior == 0 else calmer + np.float32(prior) * chunk
