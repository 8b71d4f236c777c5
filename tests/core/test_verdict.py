import evidence
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from besttake.core import verdict as v
from besttake.core.sequential import Looks
from besttake.core.stats import difference_scale, gain_scale

S = 400
YES, NO = np.r_[np.full(160, 1 / 3), np.zeros(S - 160)], np.zeros(S)
# Mean of two points, spread so wide that nothing is settled.
OPEN = np.r_[np.full(100, 2 / 3), np.full(88, -2 / 3), np.zeros(S - 188)]
ROOM_OPEN = np.r_[np.full(15, 2 / 3), np.zeros(S - 15)]
ANSWERS = {"yes": YES, "no": NO, "open": OPEN}


def decide(**given):
    given = {"headroom": YES, **given}
    return evidence.decide(evidence.Evidence(**given), draws=1000)


@pytest.mark.parametrize(("name", "values"), ANSWERS.items())
def test_the_building_blocks_get_the_answers_they_are_made_for(name, values):
    for scale in (gain_scale(3), difference_scale(3)):
        assert v.ask(values, scale, 0.03).answer == name


@pytest.mark.parametrize(
    ("headroom", "gain", "answer", "reason"),
    [
        (NO, NO, "no", "no-headroom"),
        (YES, YES, "yes", ""),
        (ROOM_OPEN, YES, "yes", ""),
        (YES, NO, "no", ""),
        (YES, OPEN, "open", ""),
        (YES, None, "open", "no-score"),
        (NO, None, "no", "no-headroom"),
    ],
)
def test_more_takes_help_where_the_score_finds_what_they_hold(headroom, gain, answer, reason):
    found = decide(headroom=headroom, gain=gain).takes
    assert (found.answer, found.reason) == (answer, reason)


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        ({}, "not measured", "not-run"),
        ({"cooled": YES}, "not measured", "not-run"),
        ({"retrieve": YES, "cooled": NO, "content": YES}, "yes", ""),
        ({"retrieve": YES, "cooled": YES, "content": NO}, "no", ""),
        ({"retrieve": YES, "cooled": YES, "content": OPEN}, "open", ""),
        ({"retrieve": YES}, "open", "no-control"),
        ({"retrieve": NO}, "no", "no-control"),
    ],
)
def test_demonstrations_help_where_they_add_something_at_equal_noise(given, answer, reason):
    """Without the control, a gain of retrieval is not credited to what was retrieved."""
    found = decide(**given).demonstrations
    assert (found.answer, found.reason) == (answer, reason)


@pytest.mark.parametrize(
    ("pair", "alone", "answer"),
    [
        (None, None, "not measured"),
        (YES, YES, "yes"),
        (YES, NO, "no"),
        (NO, YES, "no"),
        (OPEN, NO, "no"),
        (OPEN, YES, "open"),
        (YES, OPEN, "open"),
    ],
)
def test_both_have_to_beat_either_alone(pair, alone, answer):
    assert decide(combine=pair, retrieve_selection=alone).both.answer == answer


def test_identical_takes_have_nothing_to_reuse():
    found = decide(headroom=np.zeros(3), gain=np.zeros(3), deterministic=True).takes
    assert (found.answer, found.reason) == ("no", "identical-takes")


def test_one_take_per_start_does_not_deny_headroom():
    found = decide(headroom=np.zeros(S), n=1).takes
    assert (found.answer, found.reason) == ("open", "one-take")
    assert decide(headroom=np.zeros(S), n=2, takes=np.ones(S, int)).takes.answer == "open"


def test_on_a_window_that_leaks_a_gain_that_the_shortest_take_matches_decides_nothing():
    found = decide(gain=YES, shortest=YES, leak_free=False).takes
    assert (found.answer, found.reason) == ("open", "length-leak")
    assert decide(gain=YES, shortest=NO, leak_free=False).takes.answer == "yes"
    assert decide(gain=YES, shortest=YES).takes.answer == "yes"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=60))
def test_whatever_is_measured_the_verdict_is_sound(starts):
    """Random starts: successes of three takes, whether the choice is right, and an arm's difference in thirds."""
    share = np.array([c / 3 for c, _, _ in starts])
    mixed = (share > 0) & (share < 1)
    headroom = np.where(mixed, 1 - share, 0.0)
    gain = np.where(mixed, np.array([right for _, right, _ in starts]) - share, 0.0)
    arm = np.array([d for _, _, d in starts]) / 3
    found = decide(headroom=headroom, gain=gain, retrieve=arm, cooled=-arm, content=arm)
    assert found.takes.answer != "yes" or gain.mean() >= 0.03 - 1e-9
    assert found.demonstrations.answer != "yes" or arm.mean() >= 0.03 - 1e-9
    for part in (found.takes, found.demonstrations):
        assert part.gain.low <= part.gain.value + 1e-9
        assert part.gain.value <= part.gain.high + 1e-9


def test_a_run_that_was_looked_at_before_is_decided_by_the_test_for_repeated_looks():
    rng = np.random.default_rng(0)
    gain = rng.permutation(np.r_[np.full(14, 1 / 3), np.zeros(46)])
    asked = evidence.Evidence(headroom=gain, gain=gain)
    once = evidence.decide(asked)
    again = evidence.decide(asked, looks=Looks(np.arange(60), (20, 40)))
    assert evidence.decide(asked, looks=Looks(np.arange(60))) == once
    assert (once.takes.answer, again.takes.answer) == ("yes", "open")
    assert again.takes.gain == once.takes.gain
    kept = evidence.decide(asked, looks=Looks(np.arange(60), (40,), answered={"gain": once.questions["gain"]}))
    assert kept.takes.answer == "yes"


@pytest.mark.parametrize(("name", "values"), ANSWERS.items())
def test_a_later_look_finds_what_a_first_one_finds_where_there_is_plenty_of_evidence(name, values):
    shuffled = np.random.default_rng(2).permutation(values)
    looks = Looks(np.arange(S), (20,))
    for scale, stake in ((gain_scale(3), 0.75), (difference_scale(3), 2 / 3)):
        assert v.ask_again(shuffled, scale, 0.03, looks, stake).answer == name
