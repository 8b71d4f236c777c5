"""The tutorial's example runs as the tutorial says: in its own folder, by its own commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import besttake

REACH = Path(__file__).parents[2] / "examples" / "reach"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REACH, tmp_path / "reach"))


def run(folder: Path, *words: str) -> str:
    command = [str(Path(sys.executable).parent / "besttake"), *words]  # as a shell calls it
    env = {**os.environ, "BESTTAKE_CACHE": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_policy_and_env_of_the_tutorial_fit(folder: Path) -> None:
    assert "They fit" in run(folder, "doctor", "--policy", "python:policy:make", "--env", "gym:reach:Reach-v0")


@pytest.mark.slow
def test_the_tutorial_ends_with_the_advice_to_cool(folder: Path) -> None:
    words = ["--policy", "python:policy:make", "--env", "gym:reach:Reach-v0", "--demos", "python:demos:make"]
    run(folder, "diagnose", *words, "--arms", "base,cooled", "--starts", "12", "-o", "runs/second")
    result = besttake.Run.open(folder / "runs" / "second").result
    cell = result.policies[0]
    assert cell.verdict.headline.startswith("Cool the sampling")
