"""What watching costs a run: takes per second with and without a live page. ``python -m bench live``

The same plan in a new run directory each time, in turn: alone, with a live page that nobody opens, and with one that
eight clients listen to, of whom four never read. The seconds are those of the takes alone, from ``result.json``.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from besttake.config import Plan
from besttake.live.attached import Attached
from besttake.verbs.diagnose import diagnose

PLAN = Plan(policy="testbed:half", env="testbed:pick", arms="base", stride=8, probe_states=0, seeds=3)
READING = DEAF = 4


def rate(plan: Plan, out: Path) -> tuple[float, str]:
    """Takes per second, and the digest."""
    result = diagnose(plan, out)
    return result.cost.takes / result.cost.seconds["takes"], result.digest


@contextmanager
def clients(url: str) -> Iterator[None]:
    """Open the events of a page several times."""
    address = urlsplit(url)
    assert address.hostname is not None
    opened = [socket.create_connection((address.hostname, address.port)) for _ in range(READING + DEAF)]
    for one in opened:
        one.sendall(f"GET /events HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
    for one in opened[:READING]:
        threading.Thread(target=_read, args=(one,), daemon=True).start()
    try:
        yield
    finally:
        for one in opened:
            one.close()


def _read(one: socket.socket) -> None:
    try:
        while one.recv(1 << 16):
            pass
    except OSError:
        return


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
                    with Attached(out) as live, live.running():
                        if name == "a page":
                            own, digest = rate(plan, out)
                        else:
                            began = time.monotonic(), seconds_of(live._process.pid)
                            with clients(live.url):
                                own, digest = rate(plan, out)
                            used.append((seconds_of(live._process.pid) - began[1]) / (time.monotonic() - began[0]))
                rates.setdefault(name, []).append(own)
                digests.add(digest)
                print(f"{name:10} {own:6.1f} takes/s", flush=True)
    for name, own in rates.items():
        part = np.median(np.divide(own, rates["alone"]))
        print(f"{name:10} {np.median(own):6.1f} takes/s, {part:.3f} of the run alone (median of {len(own)} rounds)")
    print(f"the server of 8 clients used {np.median(used):.1%} of a core; {len(digests)} digest")


if __name__ == "__main__":
    main()
