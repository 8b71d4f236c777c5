"""A real robot with an operator: ``robot:TASK``. It has tasks, starts and sizes, but no simulator.

The robot's own client plays its takes against `besttake serve --session`; the operator sets up each start and judges
each take.
"""

from __future__ import annotations

from typing import Any, NoReturn
from urllib.parse import quote, unquote, urlencode

from besttake.demos.cameras import is_wrist
from besttake.envs.base import declared
from besttake.errors import ComponentError
from besttake.files import short_hash
from besttake.options import Reader, names
from besttake.types import EnvSpec, PolicySpec, TaskSpec

_STARTS = range(10_000)
_HORIZON = 10_000
"""The most steps of a take; the operator ends it long before."""


def make(
    task: str, *, cameras: str = "", action_dim: int | str = 7, state_dim: int | str = 0, score_camera: str = "",
    **others: Any,
) -> RobotEnv:  # fmt: skip
    """A robot that does ``task``, with the names of its ``cameras`` and the sizes of its actions and states.

    ``score_camera`` is the camera whose pictures are scored and stored (default: a wrist camera, else the first).
    ``horizon``, ``fps``, ``gripper_dim``, ``gripper_open`` and ``eef_dims`` may also be declared.
    """
    read = Reader(f"robot:{task}")
    if not task or " " in task:
        raise ComponentError(f"{read.uri}: say what it is asked to do, with %20 for a space, or by `task`")
    facts, unknown = declared(read, others)
    if unknown:
        raise ComponentError(f"{read.uri}: no option {min(unknown)!r}")
    task, shown = unquote(task), names(cameras)
    scored = score_camera or next(filter(is_wrist, shown), shown[0] if shown else "")
    if shown or scored:
        read.choice("score_camera", scored, shown)
    actions, states = read.whole("action_dim", action_dim), read.whole("state_dim", state_dim, least=0)
    spec = EnvSpec(
        read.uri, (TaskSpec(task, task, task, facts.horizon or _HORIZON),), _STARTS[: facts.starts],
        action_dim=actions, state_dim=states, cameras=shown, score_camera=scored, goes_on=False, fps=facts.fps or 10.0,
        **facts.body, fingerprint=short_hash(f"{task} {shown} {scored} {actions} {states}"),
    )  # fmt: skip
    return RobotEnv(spec)


def robot_uri(task: str, policy: PolicySpec) -> str:
    """The URI of a robot with the cameras, the state size and the action size of ``policy``."""
    cameras = {"cameras": ",".join(policy.cameras)} if policy.cameras else {}
    options = cameras | {"action_dim": policy.action_dim, "state_dim": policy.state_dim or 0}
    return f"robot:{quote(task, safe='')}?{urlencode(options, quote_via=quote, safe=',')}"


class RobotEnv:
    """The spec of a real robot, which cannot be reset or stepped from here."""

    repeats = False

    def __init__(self, spec: EnvSpec) -> None:
        self.spec = spec

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ComponentError(f"{self.spec.name} is played by people: use `besttake serve --session RUN`")

    reset = step = observe = _refuse

    def close(self) -> None:
        """Nothing is open."""
