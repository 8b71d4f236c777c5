"""The verdict on worlds whose truth is built in: wrong verdicts in at most 5 % of repetitions, right ones in most."""

from collections import Counter

import numpy as np
import pytest
from populations import PAIRS, draw

from besttake.core.headroom import start_headroom
from besttake.core.select import start_gain, start_selected
from besttake.core.verdict import Evidence, decide

REPS = 200
# Repetitions are a sample: with a true error of 5 % this is what 200 of them exceed once in a thousand.
MOST_WRONG = 0.05 + 3.1 * np.sqrt(0.05 * 0.95 / REPS)


def reuse(sample, **other):
    return Evidence(headroom=start_headroom(sample.base), gain=start_gain(sample.base, sample.scores), **other)


def retrieval(sample):
    return Evidence(
        headroom=start_headroom(sample.base),
        retrieve=(sample.retrieve - sample.base).mean(1),
        cooled=(sample.cooled - sample.base).mean(1),
        content=(sample.retrieve - sample.cooled).mean(1),
    )


def both(sample, rng, ranking):
    chosen = start_selected(sample.retrieve, ranking * sample.retrieve + rng.normal(size=sample.retrieve.shape))
    return reuse(
        sample,
        combine=chosen - start_selected(sample.base, sample.scores),
        retrieve_selection=chosen - sample.retrieve.mean(1),
    )


def repeat(world, seed):
    rng = np.random.default_rng(seed)
    return [decide(world(rng), rng=rng, draws=1000) for _ in range(REPS)]


def judge(choices, right, at_least):
    counts = Counter(choices)
    wrong = sum(v for k, v in counts.items() if k not in (right, "undecided"))
    assert wrong / REPS <= MOST_WRONG, counts
    assert counts[right] / REPS >= at_least, counts


def test_a_policy_that_fails_systematically_has_nothing_to_reuse():
    def world(rng):
        base = np.repeat(rng.random(120) < 0.6, 3).reshape(120, 3).astype(float)
        return Evidence(headroom=start_headroom(base), gain=start_gain(base, rng.normal(size=base.shape)))

    judge([v.reuse.choice for v in repeat(world, 1)], "none", 0.95)


@pytest.mark.slow
def test_a_blind_score_leaves_headroom_unranked():
    def world(rng):
        return reuse(draw(rng, PAIRS["pi0"], 500, ranking=0.0))

    judge([v.reuse.choice for v in repeat(world, 2)], "unranked", 0.5)


@pytest.mark.slow
def test_a_gain_that_is_all_length_leak_is_not_a_selection_and_is_flagged():
    def world(rng):
        sample = draw(rng, PAIRS["smolvla"], 500, ranking=0.0)
        lengths = np.where(sample.base == 1, rng.integers(40, 90, sample.base.shape), 100)
        return reuse(sample, shortest=start_gain(sample.base, -lengths))

    verdicts = repeat(world, 3)
    judge([v.reuse.choice for v in verdicts], "unranked", 0.5)
    assert all(v.reuse.length_leak for v in verdicts)


@pytest.mark.slow
def test_without_a_leak_free_window_a_leak_never_reads_as_selection():
    def world(rng):
        base = draw(rng, PAIRS["smolvla"], 120).base
        lengths = np.where(base == 1, rng.integers(40, 90, base.shape), 100)
        gain = start_gain(base, -lengths + rng.normal(size=base.shape))
        return Evidence(headroom=start_headroom(base), gain=gain, shortest=start_gain(base, -lengths), leak_free=False)

    assert {v.reuse.choice for v in repeat(world, 4)} == {"undecided"}


@pytest.mark.slow
def test_where_only_calmer_noise_helps_the_verdict_is_to_cool():
    def world(rng):
        return retrieval(draw(rng, PAIRS["pi0"], 150, cooling=1.0, jitter=0.0))

    judge([v.retrieve.choice for v in repeat(world, 5)], "cool", 0.8)


@pytest.mark.slow
def test_where_content_helps_the_verdict_is_to_retrieve():
    def world(rng):
        return retrieval(draw(rng, PAIRS["pi0 libero-10"], 150, content=1.0, jitter=0.0))

    judge([v.retrieve.choice for v in repeat(world, 6)], "retrieve", 0.8)


@pytest.mark.slow
def test_where_nothing_helps_the_verdict_is_not_to_retrieve():
    def world(rng):
        return retrieval(draw(rng, PAIRS["pi05"], 500, jitter=0.0))

    judge([v.retrieve.choice for v in repeat(world, 7)], "none", 0.5)


@pytest.mark.slow
def test_where_both_help_they_are_combined():
    def world(rng):
        return both(draw(rng, PAIRS["pi0 libero-10"], 250, ranking=3.0, content=1.0, jitter=0.0), rng, 3.0)

    verdicts = repeat(world, 8)
    judge([v.combine.choice for v in verdicts], "yes", 0.8)
    judge([v.reuse.choice for v in verdicts], "select", 0.95)


@pytest.mark.slow
def test_where_retrieval_adds_nothing_to_selection_they_are_not_combined():
    def world(rng):
        return both(draw(rng, PAIRS["pi05"], 400, ranking=3.0, jitter=0.0), rng, 3.0)

    judge([v.combine.choice for v in repeat(world, 9)], "no", 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("starts", [20, 40])
def test_a_blind_score_on_few_mixed_starts_is_seldom_taken_for_a_good_one(starts):
    def world(rng):
        return reuse(draw(rng, PAIRS["pi05"], starts, ranking=0.0))

    choices = Counter(v.reuse.choice for v in repeat(world, 10 + starts))
    assert choices["select"] / REPS <= MOST_WRONG
