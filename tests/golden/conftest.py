"""Lets tests of this folder import their plans by name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
