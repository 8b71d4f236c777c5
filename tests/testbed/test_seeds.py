from itertools import combinations

from besttake.testbed.seeds import RANGES


def test_no_start_is_in_two_ranges():
    for (name, one), (other_name, other) in combinations(RANGES.items(), 2):
        assert not set(one) & set(other), (name, other_name)
