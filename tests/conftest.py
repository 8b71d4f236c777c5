from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

# Integration environments need not have hypothesis.
if find_spec("hypothesis"):
    from hypothesis import HealthCheck, settings

    # Machines are shared: how long a test takes says nothing about the code.
    settings.register_profile("besttake", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("besttake")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole session, apart from the user's own, which may hold what other code made."""
    path = tmp_path_factory.mktemp("cache")
    os.environ["BESTTAKE_CACHE"] = str(path)
    return path


@pytest.fixture(scope="session")
def besttake(cache: Path) -> Run:
    """The command line in a process of its own."""

    def run(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "besttake", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise AssertionError(f"{command} exited with {done.returncode}: {done.stderr}")
        return done

    return run
