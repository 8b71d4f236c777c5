"""A robot that a person looks after: ``robot:TASK``. It has tasks, starts and sizes, but no simulator.

Its takes are played by the robot's own client against `besttake serve --session`, and a person sets up each start and
says what came of each take.
"""

from __future__ import annotations

from typing import Any, NoReturn
from urllib.parse import quote, unquote, urlencode

from besttake.demos.base import is_wrist
from besttake.envs.base import declared
from besttake.errors import ComponentError
from besttake.files import short_hash
from besttake.options import Reader, names
from besttake.types import EnvSpec, PolicySpec, TaskSpec

_STARTS = range(10_000)
_HORIZON = 10_000
"""The most steps of a take; a person ends it long before."""


def make(
    task: str, *, cameras: str = "", action_dim: int | str = 7, state_dim: int | str = 0, score_camera: str = "",
    **others: Any,
) -> RobotEnv:  # fmt: skip
    """The robot that does ``task``: the names of its ``cameras``, and the sizes of its actions and states.

    ``score_camera`` is the one whose pictures are scored and stored (default: a wrist camera, else the first).
    ``horizon``, ``fps``, ``gripper_dim``, ``gripper_open`` and ``eef_dims`` may be declared, too.
    """
    read = Reader(f"robot:{task}")
    if not task or " " in task:
        raise ComponentError(f"{read.uri}: say what it is asked to do, with %20 for a space, or by `task`")
    facts, unknown = declared(read, others)
    if unknown:
        raise ComponentError(f"{read.uri}: no option {min(unknown)!r}")
    task, seen = unquote(task), names(cameras)
    scored = score_camera or next(filter(is_wrist, seen), seen[0] if seen else "")
    if seen or scored:
        read.choice("score_camera", scored, seen)
    actions, states = read.whole("action_dim", action_dim), read.whole("state_dim", state_dim, least=0)
    spec = EnvSpec(
        read.uri, (TaskSpec(task, task, task, facts.horizon or _HORIZON),), _STARTS[: facts.starts],
        action_dim=actions, state_dim=states, cameras=seen, score_camera=scored, goes_on=False, fps=facts.fps or 10.0,
        **facts.body, fingerprint=short_hash(f"{task} {seen} {scored} {actions} {states}"),
    )  # fmt: skip
    return RobotEnv(spec)


def robot_uri(task: str, policy: PolicySpec) -> str:
    """The URI of a robot that shows ``policy`` what it reads, and takes what it gives."""
    sizes = {"action_dim": policy.action_dim, "state_dim": policy.state_dim or 0}
    given = {**({"cameras": ",".join(policy.cameras)} if policy.cameras else {}), **sizes}
    return f"robot:{quote(task, safe='')}?{urlencode(given, quote_via=quote, safe=',')}"


class RobotEnv:
    """What is known of the robot. It cannot be played from here."""

    repeats = False

    def __init__(self, spec: EnvSpec) -> None:
        self.spec = spec

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ComponentError(f"{self.spec.name} is played by people: use `besttake serve --session RUN`")

    reset = step = observe = _refuse

    def close(self) -> None:
        """Nothing is open."""
