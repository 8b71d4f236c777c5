from itertools import combinations

from besttake.testbed.seeds import EVALUATION, LIBRARY, TRAINING, TUNING


def test_no_start_is_in_two_ranges():
    for one, other in combinations((EVALUATION, TUNING, LIBRARY, TRAINING), 2):
        assert not set(one) & set(other), (one, other)
