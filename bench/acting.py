"""Does `besttake act` find what a verdict promised? ``python -m bench.acting runs/acting``

Each of ten policies on each of four tasks of the testbed is diagnosed from 20 starts; `act` plays what is recommended
on 60 others. Prints whether the success lies in the promised interval, and how far the takes per start are off.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np

import besttake

POLICIES = [f"testbed:{name}?perception_mm={mm}" for name in ("half", "few", "alt", "mid", "strong") for mm in (6, 12)]
DIAGNOSED, ACTED = "400:420", "420:480"  # starts of the evaluation range that no other study uses


def main(directory: Path) -> None:
    rows = []
    for policy, task in product(POLICIES, ("pick", "push", "drawer", "stack")):
        out = directory / f"{policy[8:].replace('?perception_mm=', '-')}-{task}"
        besttake.diagnose(policy=policy, env=f"testbed:{task}", starts=DIAGNOSED, arms="base,cooled,retrieve", out=out)
        acted = besttake.act(out, starts=ACTED)
        low, high = acted.promise.success.low or 0.0, acted.promise.success.high or 1.0
        rows.append((low <= (acted.success.value or 0.0) <= high, acted.takes - acted.promise.takes))
        print(out.name, acted.promise.option, *rows[-1], flush=True)
    print(np.mean(rows, axis=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
