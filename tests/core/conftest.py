"""Lets tests of this folder import its reference data and simulated populations by name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
