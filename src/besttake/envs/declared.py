"""What the URI of a wrapped env declares, because neither Gymnasium nor vla-eval says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from besttake.options import Reader


@dataclass(frozen=True)
class Declared:
    """Options that `gym:` and `vla-eval:` share; None where the URI does not give them. ``rebuild``: at each reset."""

    starts: int | None
    horizon: int | None
    gripper_dim: int | None
    gripper_open: int
    eef_dims: tuple[int, ...] | None
    fps: float | None
    rebuild: bool


def declared(read: Reader, options: Mapping[str, Any]) -> tuple[Declared, dict[str, Any]]:
    """What ``options`` declare, and those that are left for the env's own constructor."""
    left = dict(options)
    fps = left.pop("fps", None)
    facts = Declared(
        starts=read.optional_whole("starts", left.pop("starts", None)),
        horizon=read.optional_whole("horizon", left.pop("horizon", None)),
        gripper_dim=read.optional_whole("gripper_dim", left.pop("gripper_dim", None), least=0),
        gripper_open=int(read.choice("gripper_open", str(left.pop("gripper_open", -1)), ("-1", "1"))),
        eef_dims=read.indexes("eef_dims", left.pop("eef_dims", None)) or None,
        fps=None if fps is None else read.number("fps", fps),
        rebuild=read.flag("rebuild", left.pop("rebuild", False)),
    )
    return facts, left
