"""Each scorer that needs no training, against its formula by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from besttake import registry
from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.hog import Hog
from besttake.scorers.base import Footage
from besttake.testing import check_scorer
from besttake.testing.methods import _footage, _Squares

PLAIN = ["consensus", "last", "actions?steps=3", "smoothness", "state"]


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


def test_state_is_minus_the_distance_to_the_nearest_final_state(takes: list[Footage], squares: Library) -> None:
    demos = list(_Squares())
    every = np.concatenate([demo.states for demo in demos if demo.states is not None])
    finals = [demo.states[-1] for demo in demos if demo.states is not None]
    got = scores("state", takes, squares)
    for take, values in zip(takes, got, strict=True):
        for end, value in zip(take.ends[:2], values[:2], strict=True):
            gaps = [np.sqrt(np.mean(((take.states[end] - f) / every.std(axis=0)) ** 2)) for f in finals]  # type: ignore[index]
            assert value == pytest.approx(-min(gaps), rel=1e-5)


def test_actions_is_minus_the_mean_distance_to_the_nearest_piece(takes: list[Footage], squares: Library) -> None:
    demos = [demo.actions for demo in _Squares() if demo.actions is not None]
    spread = np.concatenate(demos).std(axis=0)
    pieces = [(d[t : t + 3] / spread).ravel() for d in demos for t in range(len(d) - 2)]
    got = scores("actions?steps=3", takes, squares)
    for take, values in zip(takes, got, strict=True):
        for end, value in zip(take.ends[:2], values[:2], strict=True):
            own = [(take.actions[t : t + 3] / spread).ravel() for t in take.steps if t + 3 <= end]  # type: ignore[index]
            assert value == pytest.approx(-cdist(own, pieces).min(axis=1).mean() / np.sqrt(21), rel=1e-5)


def test_last_is_the_likeness_of_the_last_frames_to_the_last_frames(takes: list[Footage], squares: Library) -> None:
    ends = np.concatenate([squares.embeddings[squares.frame_demo == d][-2:] for d in range(4)])
    got = scores("last?frames=2", takes, squares)
    for take, values in zip(takes, got, strict=True):
        for window, value in zip(take.windows[:2], values[:2], strict=True):
            own = take.embeddings[window][-2:]  # type: ignore[index]
            assert value == pytest.approx((own @ ends.T).max(axis=1).mean(), abs=1e-6)
