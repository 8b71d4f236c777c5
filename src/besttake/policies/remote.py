"""What the policies behind a server share: options as text, observations as dicts, answers checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from besttake.errors import ComponentError
from besttake.types import F32, U8, Array, Observation, PolicySpec, Warm

REMOTE_NOTES = (
    "a server: its wire carries no noise, so seeds are out of our hands and two runs differ",
    "no warm start and no cooling: the arms cooled, shuffled and retrieve cannot be measured through it",
)


@dataclass(frozen=True)
class Told:
    """What a `besttake serve` says of its policy in its greeting; other servers say nothing (``known`` False)."""

    known: bool = False
    horizon: int = 1
    action_dim: int = 0
    replan: int = 1
    cameras: tuple[str, ...] = ()

    @property
    def images(self) -> dict[str, str]:
        """Wire key -> camera, where both have the same name."""
        return {camera: camera for camera in self.cameras}


def told_by(greeting: Any) -> Told:
    """Read the ``besttake`` entry of a greeting, if there is one."""
    entry = greeting.get("besttake") if isinstance(greeting, dict) else None
    if not isinstance(entry, dict):
        return Told()
    try:
        return Told(
            True, int(entry["horizon"]), int(entry["action_dim"]), int(entry["replan"]), tuple(entry["cameras"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ComponentError(f"the server's description of its policy is damaged: {error}") from None


def parse_map(text: str, option: str) -> dict[str, str]:
    """``"observation/image:agentview,observation/wrist_image:wrist"`` as wire key -> env camera."""
    pairs = [entry.rpartition(":") for entry in text.split(",") if entry]
    if any(not key or not camera for key, _, camera in pairs):
        raise ComponentError(f"{option}={text}: write it as key:camera,key:camera")
    return {key: camera for key, _, camera in pairs}


def parse_number(value: Any, option: str, least: float = 1) -> float:
    """A URI option as a number that is at least ``least``."""
    try:
        number = float(value)
    except ValueError:
        raise ComponentError(f"{option}={value}: expected a number") from None
    if not number >= least:
        raise ComponentError(f"{option}={value}: must be at least {least:g}")
    return number


def picture(observation: Observation, camera: str, who: str) -> U8:
    """The image of ``camera``, or an error that lists what is there."""
    try:
        return observation.images[camera]
    except KeyError:
        have = ", ".join(observation.images) or "none"
        raise ComponentError(f"{who} needs camera {camera!r}; the env gave: {have}; see its map option") from None


def blank(cameras: Sequence[str], state_dim: int, size: int = 224) -> Observation:
    """An all-zero observation, to learn the shape of a server's answer."""
    black = np.zeros((size, size, 3), np.uint8)
    return Observation(dict.fromkeys(cameras, black), np.zeros(state_dim, np.float32), "do nothing")


def refuse_warm(spec: PolicySpec, warm: Sequence[Warm | None] | None) -> None:
    """Servers carry no noise, so every warm row is an error rather than a silent base sample."""
    if warm is not None and any(row is not None for row in warm):
        raise ComponentError(f"{spec.name}: a server cannot be warm-started or cooled; use the arm base")


def chunk_of(actions: Any, who: str, horizon: int | None, action_dim: int | None) -> F32:
    """A server's ``actions`` as float32 (horizon, action_dim), checked; None accepts what comes."""
    array: Array = np.asarray(actions)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise ComponentError(f"{who}: answered actions of {array.dtype} {array.shape}; expected (horizon, action_dim)")
    chunk = np.atleast_2d(array).astype(np.float32)
    if action_dim is not None and chunk.shape[1] != action_dim:
        raise ComponentError(f"{who}: answered {chunk.shape[1]} action dimensions where {action_dim} were agreed")
    if horizon is not None and len(chunk) < horizon:
        raise ComponentError(f"{who}: answered {len(chunk)} actions where {horizon} were agreed; lower ?horizon=")
    if not np.isfinite(chunk).all():
        raise ComponentError(f"{who}: answered actions that are not finite (NaN or Inf)")
    return chunk if horizon is None else chunk[:horizon]


def remote_spec(
    name: str,
    chunk: tuple[int, int],
    replan: int | None,
    cameras: Sequence[str],
    kind: Literal["flow", "deterministic"] = "flow",
) -> PolicySpec:
    """The spec of a policy behind a server, for chunks of shape ``(horizon, action_dim)``."""
    horizon, action_dim = chunk
    steps = replan or horizon
    if steps > horizon:
        raise ComponentError(f"{name}: replan={steps} is more than the {horizon} actions of a chunk")
    return PolicySpec(
        name=name,
        kind=kind,
        horizon=horizon,
        action_dim=action_dim,
        replan=steps,
        cameras=tuple(cameras),
        seeded=False,
        fingerprint=f"{name}/h{horizon}/a{action_dim}/r{steps}",
        notes=REMOTE_NOTES,
    )


def last_line(report: Any) -> str:
    """The line of a traceback or error report that says what happened."""
    lines = [line.strip() for line in str(report).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
