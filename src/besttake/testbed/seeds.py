"""Named, disjoint ranges of start indexes: no start used for training or tuning is used for evaluation."""

from __future__ import annotations

EVALUATION = range(1_000)
"""Starts on which results are reported."""

TUNING = range(10_000, 11_000)
"""Starts for all choices: replan steps, retrieval options, the tests' success bands."""

LIBRARY = range(20_000, 30_000)
"""Starts of the demonstrations in the library."""

TRAINING = range(30_000, 60_000)
"""Starts of the demonstrations on which the policies were trained."""
