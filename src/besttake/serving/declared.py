"""What a server's hello tells vla-eval's harness: what a benchmark is to send, and what the numbers mean.

The harness sets the former in the benchmark, and warns where its own declarations differ from the latter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from besttake.conventions import CLOSES_UP, CONTROLLER, LIBERO_STATE, OPENNESS, OPENS_UP
from besttake.demos.base import is_wrist
from besttake.types import PolicySpec

_GRIPPERS = {
    CLOSES_UP: "binary_close_positive",
    OPENS_UP: "binary_close_negative",
    OPENNESS: "continuous_01",
}
_ARM_AND_GRIPPER = 7


def observation_params(spec: PolicySpec, cameras: Mapping[str, str]) -> dict[str, bool]:
    """What benchmarks leave out unless they are asked; the configuration of the harness goes first.

    All public LIBERO data have the rotation of robosuite's quaternion as it is, and vla-eval by default that of the
    shorter turn, which is another vector for the same pose.
    """
    state = spec.state_dim != 0
    params = {
        "send_wrist_image": len(cameras) > 1 or any(map(is_wrist, [*cameras, *cameras.values()])),
        "send_state": state,
        "quat_no_antipodal": state and spec.convention.state == LIBERO_STATE,
    }
    return {name: True for name, wanted in params.items() if wanted}


def action_spec(spec: PolicySpec) -> dict[str, dict[str, Any]]:
    """The parts of an action by vla-eval's names, where the checkpoint tells what they are."""
    known = spec.convention
    if known.action == CONTROLLER and known.gripper in _GRIPPERS and spec.action_dim == _ARM_AND_GRIPPER:
        return {
            "position": _spec("position", 3, "delta_xyz"),
            "rotation": _spec("rotation", 3, "axis_angle"),
            "gripper": _spec("gripper", 1, _GRIPPERS[known.gripper]),
        }
    return {"actions": _spec("actions", spec.action_dim, "raw")}


def observation_spec(spec: PolicySpec) -> dict[str, dict[str, Any]]:
    """What the policy reads besides pictures, as far as vla-eval has a name for it."""
    wanted = {"language": _spec("language", 0, "language")} if spec.prompted else {}
    if spec.convention.state == LIBERO_STATE:
        wanted["state"] = _spec("state", 8, "eef_pos3_axisangle3_gripper2")
    return wanted


def _spec(name: str, dims: int, form: str) -> dict[str, Any]:
    return {"name": name, "dims": dims, "format": form}
