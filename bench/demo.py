"""Where the time of ``besttake demo`` goes, and how much memory it takes. ``python -m bench.demo``"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def memory(pid: int) -> int:
    """Resident kilobytes of a process and all its children; shared pages count in each."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if pid in (int(fields["Pid"]), int(fields["PPid"])):
            total += int(fields.get("VmRSS", "0 kB").split()[0])
    return total


def peak_memory(process: subprocess.Popen[bytes]) -> int:
    """The most kilobytes of a process and its children, once it has ended."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.2)
    return peak


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "demo"
        command = [sys.executable, "-m", "besttake", "demo", "-o", str(out), "-q"]
        environment = {"BESTTAKE_CACHE": str(Path(scratch) / "cache")}
        began = time.perf_counter()
        peak = peak_memory(subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL))
        whole = time.perf_counter() - began
        cost = json.loads((out / "result.json").read_text())["cost"]
        told = sum(cost["seconds"].values())
        for stage, seconds in sorted(cost["seconds"].items(), key=lambda pair: -pair[1]):
            print(f"{stage:12s} {seconds:6.1f} s  {100 * seconds / whole:4.0f} %")
        print(f"{'the rest':12s} {whole - told:6.1f} s  {100 * (whole - told) / whole:4.0f} %  (start, report)")
        print(f"whole        {whole:6.1f} s for {cost['takes']} takes; peak memory {peak / 1024:.0f} MB")


if __name__ == "__main__":
    main()
