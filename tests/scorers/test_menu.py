"""Each scorer that needs no training, against its formula by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from besttake import registry
from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.hog import Hog
from besttake.scorers.base import Footage
from besttake.testing import check_scorer
from besttake.testing.methods import _footage, _Squares

PLAIN = ["consensus", "smoothness"]


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(_Squares(), Hog(), tmp_path_factory.mktemp("libraries") / "squares")


@pytest.fixture(scope="module")
def takes(squares: Library) -> list[Footage]:
    return _footage(squares)


def scores(uri: str, takes: list[Footage], library: Library) -> np.ndarray:
    return np.array([score.values for score in registry.scorer(uri).score(takes, library.view("check"))], np.float64)


@pytest.mark.parametrize("uri", PLAIN)
def test_scorers_without_training_keep_the_contract(uri: str) -> None:
    held = check_scorer(registry.scorer(uri))
    assert ("batch" in held) == (uri != "consensus")
    assert "length" in held


def test_consensus_is_the_mean_likeness_to_the_other_takes(takes: list[Footage], squares: Library) -> None:
    got = scores("consensus", takes, squares)
    for i, take in enumerate(takes):
        for w in range(2):
            own = take.embeddings[take.windows[w]]  # type: ignore[index]
            likeness = []
            for j, other in enumerate(takes):
                if j != i:
                    theirs = other.embeddings[other.windows[w]]  # type: ignore[index]
                    likeness.append(np.mean([max(float(a @ b) for b in theirs) for a in own]))
            assert got[i, w] == pytest.approx(np.mean(likeness), abs=1e-6)
    assert np.isnan(got[:, 2]).all()
    assert np.isnan(scores("consensus", takes[:1], squares)).all()


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
