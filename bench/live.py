"""What watching costs a run: takes per second with and without a live page. ``python -m bench live``

The same plan in a new run directory each time, in turn: alone, with a live page that nobody opens, and with one that
eight clients load every three seconds. The seconds are those of the takes alone, from ``result.json``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from besttake.config import Plan
from besttake.live import AttachedPage
from besttake.verbs.diagnose.diagnosis import diagnose

PLAN = Plan(policy="testbed:half", env="testbed:pick", arms="base", stride=8, probe_states=0, seeds=3)
CLIENTS = 8


def rate(plan: Plan, out: Path) -> tuple[float, str]:
    """Takes per second, and the digest."""
    result = diagnose(plan, out)
    return result.cost.takes / result.cost.seconds["takes"], result.digest


@contextmanager
def clients(url: str) -> Iterator[None]:
    """Ask for the page again and again, as browsers do."""
    over = threading.Event()

    def ask() -> None:
        while not over.wait(3.0):
            with suppress(OSError), urlopen(url) as answer:
                answer.read()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()


def seconds_of(pid: int) -> float:
    """Processor time of another process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    plan, rates, digests = PLAN.model_copy(update={"starts": str(given.starts)}), dict[str, list[float]](), set()
    used: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        rate(PLAN.model_copy(update={"starts": "2"}), Path(scratch) / "warm")
        for turn in range(given.rounds):
            for name in ("alone", "a page", "8 clients")[:: -1 if turn % 2 else 1]:
                out = Path(scratch) / f"{name}-{turn}"
                if name == "alone":
                    own, digest = rate(plan, out)
                else:
                    with AttachedPage(out) as live:
                        if name == "a page":
                            own, digest = rate(plan, out)
                        else:
                            began = time.monotonic(), seconds_of(live.process.pid)
                            with clients(live.url):
                                own, digest = rate(plan, out)
                            used.append((seconds_of(live.process.pid) - began[1]) / (time.monotonic() - began[0]))
                rates.setdefault(name, []).append(own)
                digests.add(digest)
                print(f"{name:10} {own:6.1f} takes/s", flush=True)
    for name, own in rates.items():
        part = np.median(np.divide(own, rates["alone"]))
        print(f"{name:10} {np.median(own):6.1f} takes/s, {part:.3f} of the run alone (median of {len(own)} rounds)")
    print(f"the server of 8 clients used {np.median(used):.1%} of a core; {len(digests)} digest")


if __name__ == "__main__":
    main()
