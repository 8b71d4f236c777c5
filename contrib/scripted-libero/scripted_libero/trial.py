"""How often does a policy succeed on tuning starts? ``python -m scripted_libero.trial flow:FILE``.

For developing policies: it never touches a start that is evaluated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np

from besttake import registry
from besttake.envs.base import Env
from besttake.errors import BestTakeError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.types import Start


def steps_to_success(env: Env, policy: Policy, start: Start, seed: int) -> int | None:
    """The number of steps that the policy needs from ``start``, or None when it does not succeed."""
    env.reset(start)
    horizon, replan = env.spec.task(start.task).horizon, policy.spec.replan
    for step in range(horizon):
        if step % replan == 0:
            draw = Draw(0, f"trial/{start.task}", start.index, seed, chunk=step // replan)
            chunk = policy.sample([env.observe(policy.spec.cameras)], [draw])[0]
        if env.step(chunk[step % replan]).success:
            return step + 1
    return None


def exit_code(work: Callable[[], None]) -> int:
    """Do ``work``; a user's mistake is printed as one line on standard error."""
    try:
        work()
    except BestTakeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def main() -> None:
    """Print, per policy and task, successes out of takes, starts whose takes differ, and the mean length."""
    parser = argparse.ArgumentParser(prog="python -m scripted_libero.trial", description=__doc__)
    parser.add_argument("policy", nargs="+", help="URIs of policies")
    parser.add_argument("--env", default="libero:object?task=0,2,4,6,7&state=objects&horizon=220")
    parser.add_argument("--starts", type=int, default=6, help="how many of the env's tuning starts")
    parser.add_argument("--seeds", type=int, default=2, help="takes per start")
    args = parser.parse_args()
    env = registry.env(args.env)
    policies = {uri: registry.policy(uri) for uri in args.policy}
    for task in env.spec.tasks:
        for uri, policy in policies.items():
            rows = [
                [steps_to_success(env, policy, Start(task.name, index), seed) for seed in range(args.seeds)]
                for index in env.spec.tuning[: args.starts]
            ]
            lengths = [length for row in rows for length in row if length is not None]
            mixed = sum(len({length is None for length in row}) == 2 for row in rows)
            mean = np.mean(lengths) if lengths else 0
            count = args.starts * args.seeds
            print(f"{len(lengths):3d}/{count} mixed {mixed:2d} {mean:4.0f} steps {uri} {task.name}", flush=True)
    env.close()


if __name__ == "__main__":
    sys.exit(exit_code(main))
