"""Named, disjoint ranges of start indexes. What was trained or tuned on is never evaluated on."""

from __future__ import annotations

EVALUATION = range(1_000)
"""Starts that results are reported on."""

TUNING = range(10_000, 11_000)
"""Starts for choosing anything: replan steps, retrieval options, the tests' success bands."""

LIBRARY = range(20_000, 30_000)
"""Starts of the demonstrations in the library."""

TRAINING = range(30_000, 60_000)
"""Starts of the demonstrations that the policies were trained on."""

RANGES = {"evaluation": EVALUATION, "tuning": TUNING, "library": LIBRARY, "training": TRAINING}
