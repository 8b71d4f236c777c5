"""Assets that are not in the repository: ``../shared/assets``, or the directory that BESTTAKE_SHARED names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def assets() -> Path:
    shared = Path(os.environ.get("BESTTAKE_SHARED", ROOT.parent / "shared"))
    if not (shared / "assets").is_dir():
        pytest.skip(f"no test assets at {shared / 'assets'}; set BESTTAKE_SHARED")
    return shared / "assets"


@pytest.fixture(scope="session", autouse=True)
def asset_variables() -> None:
    shared = Path(os.environ.get("BESTTAKE_SHARED", ROOT.parent / "shared")) / "assets"
    os.environ.setdefault("BESTTAKE_LIBERO_ASSETS", str(shared / "libero"))
    os.environ.setdefault("BESTTAKE_LIBERO_OCC", str(shared / "libero_occ"))
    os.environ.setdefault("MS_ASSET_DIR", str(shared / "maniskill"))
    lavapipe = Path(sys.prefix) / "lavapipe" / "lvp_icd.json"
    if lavapipe.is_file():
        os.environ.setdefault("VK_ICD_FILENAMES", str(lavapipe))


@pytest.fixture(scope="session")
def python() -> Callable[[str], str]:
    """Run a snippet in a process of its own; gives what it printed."""

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
