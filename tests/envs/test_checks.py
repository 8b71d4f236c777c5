from __future__ import annotations

import numpy as np
import pytest

from besttake import registry
from besttake.envs.checks import check_action, check_cameras, check_task, declared
from besttake.errors import ComponentError
from besttake.options import Reader

SPEC = registry.env("testbed").spec


def test_what_an_env_does_not_have_is_refused_with_what_it_has() -> None:
    check_task(SPEC, "pick")
    check_cameras(SPEC, ("wrist", "front"))
    check_action(SPEC, np.zeros(4, np.float32))
    with pytest.raises(ComponentError, match="testbed: no task 'fly'; it has pick, push, drawer, stack"):
        check_task(SPEC, "fly")
    with pytest.raises(ComponentError, match="no task 'drawers'; did you mean 'drawer'"):
        check_task(SPEC, "drawers")
    with pytest.raises(ComponentError, match="no camera 'top'; it has wrist, front"):
        check_cameras(SPEC, ("wrist", "top"))
    for wrong in (np.zeros(3), np.full(4, np.nan), np.zeros((1, 4))):
        with pytest.raises(ComponentError, match="an action is 4 finite numbers"):
            check_action(SPEC, wrong.astype(np.float32))


def test_declared_options_are_read_and_the_others_are_left() -> None:
    facts, left = declared(Reader("gym:X"), {"starts": "7", "eef_dims": "0:3", "rebuild": "true", "env_name": "reach"})
    assert (facts.starts, facts.horizon, facts.fps, facts.rebuild) == (7, None, None, True)
    assert facts.body == {"gripper_dim": None, "gripper_open": -1, "eef_dims": (0, 1, 2)}
    assert left == {"env_name": "reach"}
    with pytest.raises(ComponentError, match="gym:X: gripper_open=2 is not one of -1, 1"):
        declared(Reader("gym:X"), {"gripper_open": "2"})
