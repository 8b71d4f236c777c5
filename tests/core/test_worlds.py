"""The verdict on worlds whose truth is built in: wrong verdicts in at most 5 % of repetitions, right ones in most.

`open` is not wrong. That the error is at most 5 % is tested exactly, at 1 %: of 1000 repetitions 67 may be wrong.
"""

from collections import Counter

import numpy as np
import pytest
from evidence import Evidence, decide, gather
from populations import PAIRS, draw
from scipy import stats as sps

from besttake.core.headroom import start_headroom
from besttake.core.select import start_gain
from besttake.measure.arrays import ScoredTakes

REPS = 1000


def reuse(sample, **other):
    return Evidence(headroom=start_headroom(sample.base), gain=start_gain(sample.base, sample.scores), **other)


def all_arms(rng, pair, starts, ranking=3.0, **shifts):
    """Evidence from all four arms; `shuffled` is what `retrieve` would be without its content."""
    seed = rng.integers(2**32)
    sample = draw(np.random.default_rng(seed), pair, starts, jitter=0.0, **shifts)
    blank = draw(np.random.default_rng(seed), pair, starts, jitter=0.0, **{**shifts, "content": 0.0})
    arms = (sample.base, sample.cooled, blank.retrieve, sample.retrieve)
    base, cooled, shuffled, retrieve = (ScoredTakes(y, ranking * y + rng.normal(size=y.shape)) for y in arms)
    return gather(base, cooled=cooled, shuffled=shuffled, retrieve=retrieve)


def repeat(world, seed):
    rng = np.random.default_rng(seed)
    return [decide(world(rng), draws=1000) for _ in range(REPS)]


def judge(choices, right, at_least):
    counts = Counter(choices)
    assert_rare(sum(v for k, v in counts.items() if k not in (right, "open")), counts)
    assert counts[right] / REPS >= at_least, counts


def assert_rare(wrong, what):
    """At most 5 % of all repetitions, as far as ``wrong`` of these can tell."""
    assert sps.binomtest(wrong, REPS, 0.05, alternative="greater").pvalue >= 0.01, what


@pytest.mark.slow
def test_a_policy_that_fails_systematically_has_nothing_to_reuse():
    def world(rng):
        base = np.repeat(rng.random(120) < 0.6, 3).reshape(120, 3).astype(float)
        return Evidence(headroom=start_headroom(base), gain=start_gain(base, rng.normal(size=base.shape)))

    judge([v.takes.answer for v in repeat(world, 1)], "no", 0.95)


@pytest.mark.slow
def test_a_blind_score_leaves_headroom_unranked():
    def world(rng):
        return reuse(draw(rng, PAIRS["pi0"], 500, ranking=0.0))

    judge([v.takes.answer for v in repeat(world, 2)], "no", 0.5)


@pytest.mark.slow
def test_where_only_calmer_noise_helps_retrieved_actions_get_no_credit():
    def world(rng):
        return all_arms(rng, PAIRS["pi0"], 150, cooling=1.0)

    verdicts = repeat(world, 5)
    # That content adds nothing takes more starts to show than that cooling gains: until then it stays open.
    judge([v.demonstrations.answer for v in verdicts], "no", 0.0)
    assert np.mean([v.questions["cooled"].answer == "yes" for v in verdicts]) >= 0.8


@pytest.mark.slow
def test_where_content_helps_and_the_score_is_blind_the_verdict_is_to_retrieve_alone():
    def world(rng):
        return all_arms(rng, PAIRS["pi0 libero-10"], 150, ranking=0.0, content=1.0)

    verdicts = repeat(world, 6)
    judge([v.demonstrations.answer for v in verdicts], "yes", 0.95)
    assert_rare(sum(v.takes.answer == "yes" for v in verdicts), "a blind score selects")
    assert_rare(sum(v.both.answer == "yes" for v in verdicts), "a blind score combines")


@pytest.mark.slow
def test_where_both_help_they_are_combined():
    def world(rng):
        return all_arms(rng, PAIRS["pi0 libero-10"], 120, content=1.0)

    verdicts = repeat(world, 8)
    judge([v.takes.answer for v in verdicts], "yes", 0.95)
    judge([v.demonstrations.answer for v in verdicts], "yes", 0.95)
    judge([v.both.answer for v in verdicts], "yes", 0.8)


@pytest.mark.slow
def test_where_only_selection_helps_the_verdict_is_neither_to_retrieve_nor_to_combine():
    def world(rng):
        return all_arms(rng, PAIRS["pi05"], 450)

    verdicts = repeat(world, 7)
    judge([v.takes.answer for v in verdicts], "yes", 0.95)
    judge([v.demonstrations.answer for v in verdicts], "no", 0.5)
    judge([v.both.answer for v in verdicts], "no", 0.5)
