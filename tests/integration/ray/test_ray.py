"""The real Ray plays the same takes as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")

PLAN = [
    "--policy",
    "testbed:half",
    "--env",
    "testbed:drawer",
    "--starts",
    "3",
    "--seeds",
    "2",
    "--arms",
    "base,retrieve",
]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["BESTTAKE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


def diagnose(out: Path, *flags: str) -> str:
    command = [sys.executable, "-m", "besttake"]
    subprocess.run([*command, "diagnose", *PLAN, "-o", str(out), "-q", *flags], check=True, timeout=400)
    shown = subprocess.run([*command, "runs", "show", str(out), "--json"], check=True, capture_output=True, text=True)
    summary = json.loads(shown.stdout)
    assert (summary["done"], summary["failed"], summary["missing"]) == (12, 0, 0)
    return str(summary["digest"])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    return diagnose(tmp_path_factory.mktemp("local") / "run")


def test_takes_on_ray_have_the_same_bits(local: str, tmp_path: Path) -> None:
    assert diagnose(tmp_path / "run", "--on", "ray") == local


def test_a_ray_worker_that_is_killed_is_replaced_and_the_bits_stay(local: str, tmp_path: Path) -> None:
    killed = threading.Event()

    def kill_one() -> None:
        while not killed.is_set():
            found = subprocess.run(
                ["pgrep", "-f", "ray::Worker"], capture_output=True, text=True, check=False
            ).stdout.split()
            if found and any((tmp_path / "run" / "takes").glob("*/*.take")):
                os.kill(int(found[0]), signal.SIGKILL)
                killed.set()
            time.sleep(0.02)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    try:
        assert diagnose(tmp_path / "run", "--on", "ray", "--batch", "2") == local
        assert killed.is_set()
    finally:
        killed.set()
        killer.join()
