"""The zoo study's own rules: what it calls right and wrong is what the verdict means."""

import itertools

import numpy as np
import pytest
from bench.zoo.cells import Cell
from bench.zoo.decide import clear, ideal_takes, wrong
from bench.zoo.forecasts import MOST, where
from bench.zoo.tables import truth

from besttake.core.estimate import Estimate, Finding, Forecast
from besttake.core.verdict import decide
from besttake.measure.questions import ScoredTakes, questions_of

NAMES = ("headroom", "gain", "retrieve", "cooled", "content")
PAIRS = ("combine", "retrieve_selection", "combine_cooled", "cooled_selection")


def means(**changes):
    return {**dict.fromkeys((*NAMES, *PAIRS), 0.0), **changes}


def known(values):
    """The findings of infinitely many starts."""
    return {
        name: Finding("yes" if mean >= 0.03 else "no", Estimate(mean), 0.0 if mean > 0 else 1.0, 0.0)
        for name, mean in values.items()
    }


def test_what_is_right_is_what_the_verdict_says_when_every_mean_is_known():
    for gain, cooled, content in itertools.product((-0.05, 0.0, 0.05), repeat=3):
        for composes in (False, True):
            pair = dict.fromkeys(PAIRS, 0.05 if composes else 0.0)
            values = means(
                headroom=max(gain, 0.04), gain=gain, cooled=cooled, content=content, retrieve=cooled + content, **pair
            )
            decided = decide(known(values), 3)
            assert truth(values) == (decided.reuse.answer, decided.retrieve.answer, decided.combine.answer), values


@pytest.mark.parametrize(
    ("part", "said", "values", "is_wrong"),
    [
        ("reuse", "select", {"gain": 0.0}, True),
        ("reuse", "select", {"gain": 0.001}, False),
        ("reuse", "none", {"gain": 0.03}, True),
        ("reuse", "unranked", {"gain": 0.029}, False),
        ("retrieve", "retrieve", {"retrieve": 0.1, "cooled": 0.1, "content": 0.0}, True),
        ("retrieve", "retrieve", {"retrieve": 0.1, "cooled": 0.0, "content": 0.1}, False),
        ("retrieve", "cool", {"retrieve": 0.1, "cooled": 0.05, "content": 0.05}, True),
        ("retrieve", "cool", {"retrieve": 0.05, "cooled": 0.05, "content": 0.0}, False),
        ("retrieve", "cool-or-retrieve", {"retrieve": 0.0, "cooled": 0.0}, True),
        ("retrieve", "none", {"cooled": 0.03}, True),
        ("combine", "yes", {"combine": 0.1, "retrieve_selection": 0.0}, True),
        ("combine", "no", {"combine_cooled": 0.03, "cooled_selection": 0.03}, True),
    ],
)
def test_an_answer_is_wrong_when_it_claims_what_is_not_so(part, said, values, is_wrong):
    assert wrong(part, said, means(**values)) is is_wrong


def test_a_mean_between_the_borders_is_never_clear():
    assert clear("reuse", means(gain=0.051))
    assert clear("reuse", means(gain=-0.021))
    assert not clear("reuse", means(gain=0.015))
    assert not clear("reuse", means(gain=0.049))


def test_an_ideal_test_needs_fewer_takes_the_larger_the_gain():
    def cell(rate):
        rng = np.random.default_rng(0)
        outcomes = (rng.random((200, 3)) < 0.5).astype(float)
        scores = np.where(rng.random((200, 1)) < rate, outcomes, rng.random((200, 3)))
        arms = {name: ScoredTakes(outcomes, scores, 1 - outcomes) for name in ("base", "cooled", "retrieve")}
        return Cell("p", "t", arms, tuple(questions_of(arms, 3)))

    takes = [ideal_takes(cell(rate), "reuse", ("select", "none", "no")) for rate in (0.3, 0.9)]
    assert 0 < takes[1] < takes[0] < 3000


@pytest.mark.parametrize(
    ("low", "high", "real", "said"),
    [(10, 50, 30, "inside"), (10, 50, 5, "below"), (10, 50, np.inf, "above"), (10, None, np.inf, "inside"),
     (None, None, 40, "below"), (None, None, MOST + 1, "inside")],
)  # fmt: skip
def test_a_forecast_without_a_number_means_not_within_the_most(low, high, real, said):
    assert where(Forecast(low=low, high=high, most=MOST), real) == said
