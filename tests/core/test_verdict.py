from functools import cache
from itertools import product

import evidence
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from besttake.core import verdict as v
from besttake.core.sequential import Looks
from besttake.core.stats import difference_scale, gain_scale, headroom_scale

S = 400
YES, NO = np.r_[np.full(160, 1 / 3), np.zeros(S - 160)], np.zeros(S)
# Mean of two points, spread so wide that nothing is settled.
OPEN = np.r_[np.full(100, 2 / 3), np.full(88, -2 / 3), np.zeros(S - 188)]
ANSWERS = {"yes": YES, "no": NO, "undecided": OPEN}


def decide(**given):
    given = {"headroom": YES, **given}
    return evidence.decide(evidence.Evidence(**given), draws=1000)


@pytest.mark.parametrize(("name", "values"), ANSWERS.items())
def test_the_building_blocks_get_the_answers_they_are_made_for(name, values):
    for scale in (gain_scale(3), difference_scale(3)):
        assert v.ask(values, scale, 0.03).answer == name


def test_a_small_sure_gain_is_no():
    assert v.ask(np.r_[np.full(10, 1 / 3), np.zeros(1990)], gain_scale(3), 0.03).answer == "no"


def test_a_large_unsure_gain_is_undecided():
    finding = v.ask([2 / 3, 1 / 3, 0, 0, 0, 0, 0, 0, 0, 0], gain_scale(3), 0.03)
    assert finding.answer == "undecided"


def test_no_mixed_start_among_few_does_not_rule_headroom_out():
    assert v.ask(np.zeros(20), headroom_scale(3), 0.03).answer == "undecided"
    assert v.ask(np.zeros(120), headroom_scale(3), 0.03).answer == "no"


def test_no_start_at_all_is_undecided():
    finding = v.ask([np.nan], gain_scale(3), 0.03)
    assert (finding.answer, finding.estimate.value) == ("undecided", None)


ROOM_OPEN = np.r_[np.full(15, 2 / 3), np.zeros(S - 15)]


@pytest.mark.parametrize(
    ("headroom", "gain", "choice"),
    [
        (NO, NO, "none"),
        (YES, YES, "select"),
        (ROOM_OPEN, YES, "select"),
        (YES, NO, "unranked"),
        (ROOM_OPEN, NO, "none"),
        (YES, OPEN, "undecided"),
        (ROOM_OPEN, OPEN, "undecided"),
        (YES, None, "undecided"),
        (NO, None, "none"),
    ],
)
def test_reuse_follows_its_table(headroom, gain, choice):
    assert v.ask(ROOM_OPEN, headroom_scale(3), 0.03).answer == "undecided"
    found = decide(headroom=headroom, gain=gain).reuse
    assert found.answer == choice
    assert found.cost == 3


def retrieve_table(full, cooled, content):
    if content == "yes" and full != "no" and "yes" in (full, cooled):
        return "retrieve"
    if cooled == "yes":
        return "cool" if "no" in (full, content) else "cool-or-retrieve"
    if full == "yes":
        return "retrieve" if cooled == "no" else "cool-or-retrieve"
    return "none" if full == cooled == "no" else "undecided"


@pytest.mark.parametrize(("full", "cooled", "content"), list(product(ANSWERS, repeat=3)))
def test_retrieve_follows_its_table(full, cooled, content):
    found = decide(retrieve=ANSWERS[full], cooled=ANSWERS[cooled], content=ANSWERS[content]).retrieve
    assert found.answer == retrieve_table(full, cooled, content)
    assert found.cost == 1
    assert found.arm == {"retrieve": "retrieve", "cool": "cooled"}.get(found.answer, found.arm)
    if found.answer == "cool-or-retrieve":
        assert {"retrieve": full, "cooled": cooled}[found.arm] == "yes"


@cache
def retrieve_choice(full, cooled, content):
    return decide(retrieve=ANSWERS[full], cooled=ANSWERS[cooled], content=ANSWERS[content]).retrieve.answer


@pytest.mark.parametrize(("full", "cooled", "content"), list(product(ANSWERS, repeat=3)))
def test_an_answer_is_undecided_only_where_more_starts_can_change_it(full, cooled, content):
    ends = [("yes", "no") if answer == "undecided" else (answer,) for answer in (full, cooled, content)]
    choices = {retrieve_choice(*row) for row in product(*ends)}
    assert not choices & {"undecided", "cool-or-retrieve"}
    if retrieve_choice(full, cooled, content) == "undecided":
        assert len(choices) > 1
    if retrieve_choice(full, cooled, content) == "cool-or-retrieve":
        assert choices <= {"cool", "retrieve"}


def test_retrieval_whose_parts_are_not_worth_it_alone_is_still_worth_it():
    verdict = decide(retrieve=YES, cooled=NO, content=NO, beyond_shuffled=NO)
    found = verdict.retrieve
    assert (found.answer, verdict.any_chunk) == ("retrieve", True)
    assert found.reason == "together"
    assert found.gain.value == pytest.approx(YES.mean())


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ({}, "not-measured"),
        ({"cooled": NO}, "none"),
        ({"cooled": OPEN}, "undecided"),
        ({"cooled": YES}, "cool"),
        ({"retrieve": YES}, "undecided"),
        ({"retrieve": OPEN}, "undecided"),
        ({"retrieve": NO}, "none"),
    ],
)
def test_a_missing_arm_is_said_and_never_guessed(given, choice):
    assert decide(**given).retrieve.answer == choice


def test_without_the_control_a_retrieval_gain_is_not_credited_to_retrieval():
    assert decide(retrieve=YES).retrieve.reason == "no-control"


@pytest.mark.parametrize(
    ("pair", "alone", "choice"),
    [
        (None, None, "not-measured"),
        (YES, None, "yes"),
        (YES, YES, "yes"),
        (YES, NO, "no"),
        (NO, YES, "no"),
        (OPEN, YES, "undecided"),
        (YES, OPEN, "undecided"),
    ],
)
def test_combine_needs_to_beat_both(pair, alone, choice):
    assert decide(combine=pair, retrieve_selection=alone).combine.answer == choice


def test_a_pair_that_cooled_takes_may_match_is_flagged():
    assert decide(combine=YES, combine_content=NO).by_cooling
    assert not decide(combine=YES, combine_content=YES).by_cooling
    assert not decide(combine=NO, combine_content=NO).by_cooling


def test_starts_with_different_numbers_of_takes_share_one_verdict():
    counts = np.r_[np.full(S - 1, 5), 3]
    gain = np.r_[YES[:-1], 2 / 3]
    found = decide(headroom=gain, gain=gain, retrieve=YES, takes=counts)
    assert found.reuse.answer == "select"
    assert found.reuse.gain.high <= 2 / 3


def test_identical_takes_have_nothing_to_reuse():
    found = decide(headroom=np.zeros(3), gain=np.zeros(3), deterministic=True).reuse
    assert found.answer == "none"
    assert found.reason == "identical-takes"


def test_one_take_per_start_does_not_deny_headroom():
    found = decide(headroom=np.zeros(S), n=1).reuse
    assert found.answer == "undecided"
    assert found.reason == "one-take"


def test_two_seeds_of_which_each_start_has_one_take_do_not_deny_headroom_either():
    assert decide(headroom=np.zeros(S), n=2, takes=np.ones(S, int)).reuse.answer == "undecided"


def test_a_gain_that_the_shortest_take_matches_is_flagged():
    verdict = decide(gain=YES, shortest=YES)
    assert (verdict.reuse.answer, verdict.leak) == ("select", True)
    assert not decide(gain=YES, shortest=NO).leak


def test_on_a_window_that_leaks_a_matched_gain_decides_nothing():
    verdict = decide(gain=YES, shortest=YES, leak_free=False)
    assert (verdict.reuse.answer, verdict.reuse.reason, verdict.leak) == ("undecided", "length-leak", True)
    assert decide(gain=YES, shortest=NO, leak_free=False).reuse.answer == "select"


def test_content_that_any_chunk_gives_is_flagged():
    arms = {"retrieve": YES, "cooled": NO, "content": YES}
    assert decide(**arms, beyond_shuffled=NO).any_chunk
    assert not decide(**arms, beyond_shuffled=YES).any_chunk


def test_the_expected_gain_is_that_of_the_choice():
    found = decide(retrieve=OPEN, cooled=YES, content=NO).retrieve
    assert found.gain.value == pytest.approx(YES.mean())
    assert found.gain.low <= found.gain.value <= found.gain.high


def test_the_same_evidence_gives_the_same_verdict():
    assert decide(gain=OPEN, retrieve=YES) == decide(gain=OPEN, retrieve=YES)


def test_points_are_not_taken_for_shares():
    with pytest.raises(ValueError, match=r"0\.03 for 3 points"):
        evidence.decide(evidence.Evidence(headroom=YES), worth=3)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=60))
def test_whatever_is_measured_the_verdict_is_sound(starts):
    """Random starts: successes of three takes, whether the choice is right, and an arm's difference in thirds."""
    share = np.array([c / 3 for c, _, _ in starts])
    mixed = (share > 0) & (share < 1)
    headroom = np.where(mixed, 1 - share, 0.0)
    gain = np.where(mixed, np.array([right for _, right, _ in starts]) - share, 0.0)
    arm = np.array([d for _, _, d in starts]) / 3
    found = decide(headroom=headroom, gain=gain, retrieve=arm, cooled=-arm, content=2 * arm / 2, combine=np.sign(arm))
    assert found.reuse.answer != "select" or gain.mean() >= 0.03 - 1e-9
    assert found.retrieve.answer != "retrieve" or arm.mean() >= 0.03 - 1e-9
    for part in (found.reuse, found.retrieve, found.combine):
        assert part.gain.low <= part.gain.value <= part.gain.high


def test_a_run_that_was_looked_at_before_is_decided_by_the_test_for_repeated_looks():
    rng = np.random.default_rng(0)
    gain = rng.permutation(np.r_[np.full(14, 1 / 3), np.zeros(46)])
    asked = evidence.Evidence(headroom=gain, gain=gain)
    once = evidence.decide(asked)
    again = evidence.decide(asked, looks=Looks(np.arange(60), (20, 40)))
    assert evidence.decide(asked, looks=Looks(np.arange(60), ())) == once
    assert (once.reuse.answer, again.reuse.answer) == ("select", "undecided")
    assert again.reuse.gain.value == pytest.approx(once.reuse.gain.value)
    assert again.reuse.gain.low < once.reuse.gain.low
    assert again.reuse.gain.high > once.reuse.gain.high


def test_starts_are_bet_on_in_the_order_in_which_they_came():
    gain = np.r_[np.full(40, 2 / 3), np.full(25, -2 / 3), np.zeros(10)]
    order = np.random.default_rng(1).permutation(75)
    shuffled = np.empty(75)
    shuffled[order] = gain
    plain = v.ask_again(gain, gain_scale(3), 0.03, Looks(np.arange(75), (20,)), 0.75)
    assert v.ask_again(shuffled, gain_scale(3), 0.03, Looks(order, (20,)), 0.75) == plain
    assert v.ask_again(gain[::-1], gain_scale(3), 0.03, Looks(np.arange(75), (20,)), 0.75) != plain


@pytest.mark.parametrize(("name", "values"), ANSWERS.items())
def test_a_later_look_finds_what_a_first_one_finds_where_there_is_plenty_of_evidence(name, values):
    shuffled = np.random.default_rng(2).permutation(values)
    looks = Looks(np.arange(S), (20,))
    for scale, stake in ((gain_scale(3), 0.75), (difference_scale(3), 2 / 3)):
        assert v.ask_again(shuffled, scale, 0.03, looks, stake).answer == name


def test_a_later_look_at_no_start_is_undecided():
    finding = v.ask_again([np.nan], gain_scale(3), 0.03, Looks(np.arange(1), (1,)), 0.75)
    assert (finding.answer, finding.estimate.value) == ("undecided", None)
