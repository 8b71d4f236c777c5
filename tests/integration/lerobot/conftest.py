"""Before anything imports the hub's client: a cache of our own, and no network."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="besttake-hf-")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny; threads would only wait for each other
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "demos"))  # writers of data sets


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """``checkpoint("pi0")`` is the directory of a tiny saved policy; each is made once."""
    import tiny

    made: dict[str, Path] = {}

    def directory(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            tiny.MAKERS[name](made[name])
        return made[name]

    return directory
