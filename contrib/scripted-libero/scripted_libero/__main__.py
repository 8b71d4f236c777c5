"""How often the scripted expert succeeds: ``python -m scripted_libero object --starts 0-9``."""

from __future__ import annotations

import argparse
import json
import sys

from besttake.envs.libero import env as libero
from besttake.types import Start
from scripted_libero.rollout import attempt, works_on
from scripted_libero.trial import exit_code


def main() -> None:
    """Print successes out of attempts, and the mean length of the successes, per task."""
    parser = argparse.ArgumentParser(prog="python -m scripted_libero", description=__doc__)
    parser.add_argument("suite", help="spatial, object, goal, 10 or 90")
    parser.add_argument("--starts", default="0-9", help="first and last start, e.g. 0-9")
    parser.add_argument("--task", help="names or indexes, separated by commas")
    parser.add_argument("--json", action="store_true", help="print one JSON object per task")
    args = parser.parse_args()
    first, _, last = args.starts.partition("-")
    env = libero.make(args.suite, task=args.task)
    for task in env.spec.tasks:
        starts = range(int(first), int(last or first) + 1) if works_on(env, task.name) else range(0)
        episodes = [attempt(env, Start(task.name, index)) for index in starts]
        lengths = [len(episode.actions) for episode in episodes if episode.success]
        steps = round(sum(lengths) / len(lengths)) if lengths else 0
        if args.json:
            row = {"task": task.name, "successes": len(lengths), "attempts": len(starts), "steps": steps}
            print(json.dumps(row), flush=True)
        elif starts:
            print(f"{len(lengths):3d}/{len(starts):<3d} {steps:4d} steps  {task.name}", flush=True)
        else:
            print(f"  no expert          {task.name}", flush=True)
    env.close()


if __name__ == "__main__":
    sys.exit(exit_code(main))
