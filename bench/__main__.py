"""Run the benchmarks that need nothing but the base install: ``python -m bench [NAME ...]``.

The others (libero, policies, encode) say in their first lines which environment they need.
"""

from __future__ import annotations

import runpy
import sys

BASE = ("film", "rollouts", "memory", "demo", "report")


def main() -> None:
    for name in sys.argv[1:] or BASE:
        print(f"== bench/{name}.py", flush=True)
        runpy.run_module(f"bench.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
