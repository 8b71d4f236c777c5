"""The built wheel is all one needs: small, installed in a clean environment, run in an empty directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)], check=True)
    return next(out.glob("*.whl"))


def test_it_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 8_000_000


def test_a_clean_environment_runs_the_demo_in_an_empty_directory(wheel: Path, tmp_path: Path) -> None:
    home, place = tmp_path / "venv", tmp_path / "empty"
    place.mkdir()
    if shutil.which("uv"):
        subprocess.run(["uv", "venv", "-q", "--python", sys.executable, str(home)], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "--python", str(home / "bin/python"), str(wheel)], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin/python"), "-m", "pip", "install", "-q", str(wheel)], check=True)
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    clean["BESTTAKE_CACHE"] = str(tmp_path / "cache")
    subprocess.run([str(home / "bin/besttake"), "demo", "--starts", "1", "-q"], cwd=place, env=clean, check=True)
    result = json.loads((place / "runs/demo/result.json").read_text())
    assert result["cost"]["takes"] == 3 * 4 * 1 * 3 * 4
    assert (place / "runs/demo/report.html").stat().st_size > 100_000
