"""Global generators, borrowed for a moment: simulators draw from them, but they belong to the user."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed numpy's, Python's and (if it is loaded) torch's global generators, and put them back afterwards."""
    numpys, pythons = np.random.get_state(), random.getstate()  # noqa: NPY002
    torch = sys.modules.get("torch")
    torchs = torch.random.get_rng_state() if torch is not None else None
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002
        random.setstate(pythons)
        if torch is not None and torchs is not None:
            torch.random.set_rng_state(torchs)
