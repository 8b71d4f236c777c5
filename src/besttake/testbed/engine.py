"""MuJoCo, imported without a GL library: the testbed casts rays and never opens a GL context."""

from __future__ import annotations

import os
import sys
from types import ModuleType


def _without_gl() -> ModuleType:
    """Import mujoco with GL off, unless it is loaded already or the user has chosen a GL back end.

    The variable is taken away again, so that a simulator that does use GL (LIBERO) chooses its own back end later in
    this process and in its children.
    """
    ours = "mujoco" not in sys.modules and "MUJOCO_GL" not in os.environ
    if ours:
        os.environ["MUJOCO_GL"] = "disable"
    try:
        import mujoco
    finally:
        if ours:
            del os.environ["MUJOCO_GL"]
    return mujoco  # type: ignore[no-any-return]


mujoco = _without_gl()
