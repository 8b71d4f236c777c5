"""How often the scripted expert succeeds: ``python -m besttake.contrib.scripted_libero object --starts 0-9``."""

from __future__ import annotations

import argparse
import json
import sys

from besttake.contrib.scripted_libero.rollout import attempt, works_on
from besttake.envs import libero
from besttake.errors import BestTakeError
from besttake.types import Start


def main() -> int:
    """Print successes out of attempts, and the mean length of the successes, per task."""
    parser = argparse.ArgumentParser(prog="python -m besttake.contrib.scripted_libero", description=__doc__)
    parser.add_argument("suite", help="spatial, object, goal, 10 or 90")
    parser.add_argument("--starts", default="0-9", help="first and last start, e.g. 0-9")
    parser.add_argument("--task", help="names or indexes, with commas")
    parser.add_argument("--json", action="store_true", help="one JSON object per task")
    told = parser.parse_args()
    first, _, last = told.starts.partition("-")
    try:
        env = libero.make(told.suite, task=told.task)
        for task in env.spec.tasks:
            lengths: list[int] = []
            starts = range(int(first), int(last or first) + 1) if works_on(env, task.name) else range(0)
            for index in starts:
                tried = attempt(env, Start(task.name, index))
                if tried.success:
                    lengths.append(len(tried.actions))
            row = {"task": task.name, "successes": len(lengths), "attempts": len(starts)}
            row["steps"] = round(sum(lengths) / len(lengths)) if lengths else 0
            if told.json:
                print(json.dumps(row), flush=True)
            elif starts:
                print(f"{row['successes']:3d}/{row['attempts']:<3d} {row['steps']:4d} steps  {task.name}", flush=True)
            else:
                print(f"  no expert          {task.name}", flush=True)
        env.close()
    except BestTakeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
