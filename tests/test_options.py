from __future__ import annotations

import random

import numpy as np
import pytest

from besttake import options
from besttake.envs.seeding import global_seed
from besttake.errors import ComponentError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("reach-v3", "reach-v3"),
        ("[1, 2]", [1, 2]),
        ("{robot_x: [0.35, 0.35, 1]}", {"robot_x": [0.35, 0.35, 1]}),
        ("@odd", "@odd"),
        (7, 7),
    ],
)
def test_option_values_mean_what_they_look_like(text: object, meant: object) -> None:
    assert options.value(text) == meant


def test_numbers_flags_and_dims_are_checked() -> None:
    assert options.whole("x", "size", "12") == 12
    assert options.flag("x", "rebuild", "true")
    assert not options.flag("x", "rebuild", False)
    assert options.dims("x", "eef_dims", "0,1,2") == (0, 1, 2)
    assert options.dims("x", "eef_dims", None) is None
    assert options.optional_whole("x", "gripper_dim", None) is None
    assert options.optional_whole("x", "gripper_dim", "0") == 0
    for wrong in ("0", "-1", "1.5", "many"):
        with pytest.raises(ComponentError, match="size must be a positive whole number"):
            options.whole("x", "size", wrong)
    with pytest.raises(ComponentError, match="rebuild is true or false"):
        options.flag("x", "rebuild", "perhaps")
    with pytest.raises(ComponentError, match="list of whole numbers"):
        options.dims("x", "eef_dims", "a,b")
    with pytest.raises(ComponentError, match="gripper_dim must be a whole number"):
        options.optional_whole("x", "gripper_dim", "last")


def test_global_generators_are_seeded_and_then_given_back() -> None:
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    expected = (np.random.uniform(), random.random())  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    with global_seed(9):
        inside = (np.random.uniform(), random.random())  # noqa: NPY002
    assert (np.random.uniform(), random.random()) == expected  # noqa: NPY002
    with global_seed(9):
        assert (np.random.uniform(), random.random()) == inside  # noqa: NPY002
