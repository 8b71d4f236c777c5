"""Does `besttake act` find what a verdict promised? Ten policies x four tasks of the testbed, each acted on new starts.

    python -m bench.acting --dir acting

Each cell is diagnosed from 20 starts; `act` plays what is recommended on 60 others. Runs that are there are not made again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import besttake

POLICIES = [f"testbed:{name}?perception_mm={mm}" for name in ("half", "few", "alt", "mid", "strong") for mm in (6, 12)]
TASKS = ("pick", "push", "drawer", "stack")
# Starts of the evaluation range that no other study uses.
DIAGNOSED, ACTED = "400:420", "420:480"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path("acting"))
    directory, held, off = parser.parse_args().dir, list[bool](), list[float]()
    for policy in POLICIES:
        for task in TASKS:
            out = directory / f"{policy[8:].replace('?perception_mm=', '-')}-{task}"
            plan = besttake.Plan(policy=policy, env=f"testbed:{task}", starts=DIAGNOSED, arms="base,cooled,retrieve")
            besttake.diagnose(plan, out)
            acted = besttake.act(out, starts=ACTED)
            promise, value = acted.promise, acted.success.value
            assert value is not None
            held.append(bool(promise.success.low <= value <= promise.success.high))
            off.append(acted.takes - promise.takes)
            print(f"{out.name:18} {promise.option:24} {promise.success} -> {value:.3f} {held[-1]} {off[-1]:+.2f}", flush=True)
    print(f"within the promised interval: {np.mean(held):.3f} of {len(held)}; takes per start off by {np.mean(off):+.3f}")
    print(f"(mean of absolute values {np.mean(np.abs(off)):.3f}, largest {np.max(np.abs(off)):.2f})")


if __name__ == "__main__":
    main()
