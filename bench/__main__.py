"""Run the benchmarks that need nothing but the base install: ``python -m bench [NAME [OPTION ...] ...]``.

Options go to the benchmark before them: ``python -m bench report --takes 50``.

The others (libero, serve, one_look) say in their first lines which environment they need.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

BASE = ("rollouts", "memory", "demo", "report")


def named(words: Sequence[str]) -> list[list[str]]:
    """The benchmarks that a command line names, each with its options.

    >>> named(["demo", "report", "--takes", "50", "memory"])
    [['demo'], ['report', '--takes', '50'], ['memory']]
    """
    groups: list[list[str]] = []
    for word, before in zip(words, ["", *words], strict=False):
        if groups and (word.startswith("-") or before.startswith("-")):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def main() -> None:
    for name, *options in named(sys.argv[1:]) or [[name] for name in BASE]:
        print(f"== bench/{name}.py", flush=True)
        sys.argv = [f"bench/{name}.py", *options]
        runpy.run_module(f"bench.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
