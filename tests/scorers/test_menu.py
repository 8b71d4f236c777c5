"""The scorer that needs neither training nor demonstrations, against its formula by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from besttake import registry
from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.hog import Hog
from besttake.scorers.base import Footage
from besttake.testing import check_scorer
from besttake.testing.methods import _footage, _SquareDemos


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(_SquareDemos(), Hog(), tmp_path_factory.mktemp("libraries") / "squares")


@pytest.fixture(scope="module")
def takes(squares: Library) -> list[Footage]:
    return _footage(squares)


def scores(uri: str, takes: list[Footage], library: Library) -> np.ndarray:
    return np.array([score.values for score in registry.scorer(uri).score(takes, library.view("check"))], np.float64)


def test_it_keeps_the_contract() -> None:
    assert {"batch", "length"} <= set(check_scorer(registry.scorer("smoothness")))


def test_smoothness_is_minus_the_mean_squared_change(takes: list[Footage], squares: Library) -> None:
    got = scores("smoothness", takes, squares)
    for take, values in zip(takes, got, strict=True):
        for end, value in zip(take.ends[:2], values[:2], strict=True):
            changes = [
                (take.actions[t + 1, k] - take.actions[t, k]) ** 2  # type: ignore[index]
                for t in range(end - 1)
                for k in range(7)
            ]
            assert value == pytest.approx(-np.mean(changes), rel=1e-6)
