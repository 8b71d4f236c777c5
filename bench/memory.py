"""Peak memory of a run of 5 policies x 4 tasks x 40 starts x 3 seeds, all its processes. ``python -m bench memory``"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.demo import peak_memory

POLICIES = ("half", "few", "alt", "mid", "strong")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        policies = [part for name in POLICIES for part in ("--policy", f"testbed:{name}")]
        plan = ["--env", "testbed", "--starts", "40", "--seeds", "3", "--arms", "base", "--workers", "2"]
        command = [sys.executable, "-m", "besttake", "diagnose", *policies, *plan, "-o", str(out), "-q"]
        began = time.perf_counter()
        peak = peak_memory(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        takes = json.loads((out / "result.json").read_text())["cost"]["takes"]
        seconds = time.perf_counter() - began
        print(f"{takes} takes in {seconds:.0f} s; peak memory {peak / 1024:.0f} MB over all processes")


if __name__ == "__main__":
    main()
