"""Lets tests of this folder import the simulated populations of ``tests/core``."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "core"))
