"""Before anything imports the hub's client: a cache of our own, and no network."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="besttake-hf-")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def small_vision():
    import tiny

    with tiny.small_vision():
        yield


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    import tiny

    return tiny.make(tmp_path_factory.mktemp("openvla"), {"bridge": tiny.STATS})


@pytest.fixture(scope="session")
def make_checkpoint():
    import tiny

    return tiny.make
