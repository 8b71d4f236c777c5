"""What the checks share."""

from __future__ import annotations

import numpy as np

from besttake.errors import ContractError
from besttake.types import Array


def check(holds: object, fault: str) -> None:
    """ContractError with ``fault`` where a promise does not hold."""
    if not holds:
        raise ContractError(fault)


def check_close(a: Array, b: Array, atol: float, promise: str) -> None:
    """ContractError when two arrays differ by more than ``atol``."""
    far = float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)))) if a.size else 0.0
    check(far <= atol, f"{promise} (by {far:.2e}, allowed {atol:.0e})")
