"""The zoo study's own rules: what it calls right and wrong is what the verdict means."""

import numpy as np
import pytest
from bench.zoo.cells import Cell
from bench.zoo.forecasts import MOST, where
from bench.zoo.tables import TRUTH
from bench.zoo.verdicts import errors, fixed, until_decided, wrong

from besttake.core.stats import Estimate, Finding, Forecast
from besttake.measure.arrays import ScoredTakes
from besttake.measure.verdict import answers_of, questions_of


@pytest.mark.parametrize("gain", [-0.05, 0.0, 0.05])
@pytest.mark.parametrize("content", [-0.05, 0.05])
def test_what_is_right_is_what_the_verdict_says_when_every_mean_is_known(gain, content):
    means = {"headroom": 0.1, "gain": gain, "content": content, "combine": content, "retrieve_selection": gain}
    known = {name: Finding("yes" if mean >= 0.03 else "no", Estimate(mean)) for name, mean in means.items()}
    said = {name: one.answer for name, one in answers_of(known, 3, 3).items()}
    assert said == {name: "yes" if mean(means) >= 0.03 else "no" for name, mean in TRUTH.items()}


@pytest.mark.parametrize(
    ("said", "mean", "is_wrong"),
    [("yes", 0.0, True), ("yes", 0.001, False), ("no", 0.03, True), ("no", 0.029, False), ("open", 0.5, False)],
)
def test_an_answer_is_wrong_when_it_claims_what_is_not_so(said, mean, is_wrong):
    assert wrong(said, mean) is is_wrong


def test_simulated_runs_are_counted_by_question_and_answer():
    rng = np.random.default_rng(0)
    outcomes = (rng.random((200, 3)) < 0.5).astype(float)
    scores = np.where(rng.random((200, 1)) < 0.9, outcomes, rng.random((200, 3)))
    arms = {name: ScoredTakes(outcomes, scores, 1 - outcomes) for name in ("base", "cooled", "retrieve")}
    cell = Cell("p", "t", arms, tuple(questions_of(arms, 3)))
    counts = {"60 starts": fixed([cell], 60, 2)}
    counts["until decided"], (takes,) = until_decided([cell], 2)
    for own in counts.values():
        assert (own["takes", "yes"].said, own["takes", "yes"].wrong) == (2, 0)
        assert ("demonstrations", "yes") not in own
    assert 180 <= takes <= 1500
    assert "| takes | yes | 2, wrong 0 (0.0 %" in errors(counts)


@pytest.mark.parametrize(
    ("low", "high", "real", "said"),
    [(10, 50, 30, "inside"), (10, 50, 5, "below"), (10, 50, np.inf, "above"), (10, None, np.inf, "inside"),
     (None, None, 40, "below"), (None, None, MOST + 1, "inside")],
)  # fmt: skip
def test_a_forecast_without_a_number_means_not_within_the_most(low, high, real, said):
    assert where(Forecast(low=low, high=high, most=MOST), real) == said
