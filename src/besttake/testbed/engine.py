"""MuJoCo, imported without a GL library: the testbed casts rays and never opens a GL context."""

from __future__ import annotations

import os
import sys
from types import ModuleType


def _without_gl() -> ModuleType:
    """Import mujoco with GL disabled, unless it is already loaded or the user has chosen a GL back end.

    The environment variable is removed again, so that a simulator that uses GL (LIBERO) can later choose its own back
    end in this process and in its children.
    """
    disable = "mujoco" not in sys.modules and "MUJOCO_GL" not in os.environ
    if disable:
        os.environ["MUJOCO_GL"] = "disable"
    try:
        import mujoco
    finally:
        if disable:
            del os.environ["MUJOCO_GL"]
    return mujoco  # type: ignore[no-any-return]


mujoco = _without_gl()
