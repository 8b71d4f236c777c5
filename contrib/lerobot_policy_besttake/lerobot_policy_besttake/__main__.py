"""Write what a run recommends as a policy that LeRobot loads: ``python -m lerobot_policy_besttake RUN OUT``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lerobot.configs import FeatureType, PolicyFeature

from besttake.errors import BestTakeError
from besttake.measure.promise import Promise, promise_of
from besttake.verbs.runs import Run
from lerobot_policy_besttake.configuration_besttake import BesttakeConfig
from lerobot_policy_besttake.modeling_besttake import STATE, in_arm, policy_of
from lerobot_policy_besttake.processor_besttake import make_besttake_pre_post_processors

_SIDE = 224
"""Pixels of a picture's side where the checkpoint does not say; LeRobot compares names, not sizes."""


def write(run: str | Path, out: str | Path, policy: str = "", option: str = "", seed: int = 0) -> Promise:
    """Write a folder for ``--policy.path``, and return what the run promises of the option."""
    with Run.open(run) as opened:
        plan, promise = opened.result.plan, promise_of(opened.result.cell_of(policy), option)
    uris = dict(zip(plan.get("name") or plan["policy"], plan["policy"], strict=True))
    config = BesttakeConfig(
        run=str(Path(run).resolve()), policy_name=promise.policy, wraps=_found_anywhere(uris[promise.policy]),
        arm=promise.arm, seed=seed, device="cpu", push_to_hub=False,
    )  # fmt: skip
    wrapped = policy_of(config)
    spec = in_arm(config, wrapped).spec
    trained_with = {camera: key for key, camera in getattr(wrapped, "cameras", {}).items()}
    config.cameras = {camera: trained_with.get(camera, f"observation.images.{camera}") for camera in spec.cameras}
    config.input_features = {
        STATE: PolicyFeature(FeatureType.STATE, (spec.state_dim or 0,)),
        **{key: PolicyFeature(FeatureType.VISUAL, (3, _SIDE, _SIDE)) for key in config.cameras.values()},
    }
    config.output_features = {"action": PolicyFeature(FeatureType.ACTION, (spec.action_dim,))}
    Path(out).mkdir(parents=True, exist_ok=True)
    config.save_pretrained(out)
    for pipeline in make_besttake_pre_post_processors(config):
        pipeline.save_pretrained(out)
    return promise


def _found_anywhere(uri: str) -> str:
    """Make a directory in a URI absolute: LeRobot's commands may run in another directory."""
    scheme, colon, rest = uri.partition(":")
    path, mark, options = rest.partition("?")
    there = Path(path).expanduser()
    return f"{scheme}{colon}{there.resolve()}{mark}{options}" if path and there.exists() else uri


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m lerobot_policy_besttake", description=__doc__)
    parser.add_argument("run", help="a finished run")
    parser.add_argument("out", help="the folder to write")
    parser.add_argument("--policy", default="", help="name of the policy, where the run has several")
    parser.add_argument("--option", default="", help='another option than the recommended one: "cooled, best of 3"')
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampling noise")
    given = parser.parse_args()
    try:
        promise = write(given.run, given.out, given.policy, given.option, given.seed)
    except BestTakeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.out} is {promise.policy} in the arm {promise.arm}: --policy.path={given.out}")
    if promise.n > 1:
        print(
            f"The run recommends the best of {promise.n} takes; LeRobot plays one. `besttake rank take.mp4 --run"
            f" {given.run}` says whether to play another."
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
