from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from besttake import options
from besttake.envs.base import global_seed
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


READ = options.Reader("x:y")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: READ.whole("size", "0"), "size=0 is not a whole number of at least 1"),
        (lambda: READ.whole("size", "9" * 20), f"size={'9' * 20} is not a whole number of at least 1"),
        (lambda: READ.whole("size", "9", most=8), "size=9 is not a whole number from 1 to 8"),
        (lambda: READ.number("fps", "nan", least=0), "fps=nan is not a number of at least 0"),
        (lambda: READ.flag("rebuild", "perhaps"), "rebuild=perhaps is not true or false"),
        (lambda: READ.choice("style", "odd", ("std", "alt")), "style=odd is not one of std, alt"),
        (lambda: READ.indexes("state", "a,b"), "state=a,b is not a list of indexes such as 0:3,7"),
        (lambda: READ.indexes("state", "0:999999"), "state=0:999999 is not a list of indexes such as 0:3,7"),
        (lambda: READ.mapping("map", "a:"), "map=a: is not a list of pairs such as image:agentview,image2:wrist"),
        (lambda: READ.only({"colour": 1}, ()), "no option colour; known: none"),
    ],
)
def test_every_mistake_is_told_in_one_style(read: Callable[[], object], message: str) -> None:
    with pytest.raises(ComponentError) as caught:
        read()
    assert str(caught.value) == f"x:y: {message}"


def test_options_that_a_factory_does_not_have_are_refused() -> None:
    def make(rest: str, *, size: int = 3) -> None: ...

    options.check_known("x:y", partial(make, "y"), {"size": 3})
    options.check_known("x:y", dict, {"anything": 3})
    with pytest.raises(ComponentError, match="x:y: no option colour; known: size"):
        options.check_known("x:y", partial(make, "y"), {"colour": "red"})


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
