from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from besttake.core import headroom as h

takes = st.tuples(st.integers(1, 6), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, np.nan]))
)


def brute_pass(row: np.ndarray, k: int) -> float:
    seen = row[~np.isnan(row)]
    if not seen.size:
        return float("nan")
    return float(np.mean([max(s) for s in combinations(seen, min(k, seen.size))]))


@given(takes)
def test_pass_at_k_is_the_mean_of_the_best_over_all_subsets(y):
    for k in range(1, y.shape[1] + 1):
        expected = [brute_pass(row, k) for row in y]
        np.testing.assert_allclose(h.start_pass_at_k(y, k), expected, atol=1e-12)


@given(takes)
def test_headroom_of_a_start_is_its_best_take_minus_its_mean(y):
    for row, value in zip(y, h.start_headroom(y), strict=True):
        if np.isnan(row).all():
            assert np.isnan(value)
        else:
            assert value == pytest.approx(np.nanmax(row) - np.nanmean(row))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: h.pass_at_k([[0, 1]], 0), "k >= 1"),
        (lambda: h.pass_at_k([[0, 2]], 1), "0, 1 or NaN"),
        (lambda: h.pass_at_k([0, 1], 1), "shape"),
        (lambda: h.start_headroom([[0, 1]], 3), "2 seeds"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call, says):
    with pytest.raises(ValueError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
