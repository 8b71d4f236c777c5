from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import PAIRS, draw
from scipy import stats as sps

from besttake.core import relation as rel
from besttake.core.headroom import start_headroom
from besttake.core.select import start_gain


def cells(rng, starts=200, ranking=2.5):
    found = []
    for policy in ("a", "b", "c"):
        for group, pair in list(PAIRS.items())[:4]:
            sample = draw(rng, pair, starts, ranking=ranking)
            found.append(
                rel.CellGains(policy, group, start_headroom(sample.base), start_gain(sample.base, sample.scores))
            )
    return found


def cells_at(x, y):
    """Cells of one start each, so that only which cells are drawn can vary."""
    return [rel.CellGains("a", str(j), [h], [g]) for j, (h, g) in enumerate(zip(x, y, strict=True))]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(3, 15))
def test_r_and_rho_are_those_of_scipy_and_have_an_interval_from_eight_cells_on(seed, size):
    rng = np.random.default_rng(seed)
    x = rng.random(size)
    y = x + rng.random(size)
    r, rho = (of(cells_at(x, y), draws=500) for of in (rel.pearson, rel.spearman))
    assert r.value == pytest.approx(sps.pearsonr(x, y).statistic)
    assert rho.value == pytest.approx(sps.spearmanr(x, y).statistic)
    for found in (r, rho):
        assert found.n == size
        if size < 8:
            assert (found.low, found.high, found.reason) == (None, None, "fewer than 8 cells: no interval")
        else:
            assert -1 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize(
    ("x", "y", "why"),
    [
        ([1, 2], [1, 2], "2 cells"),
        ([1, 1, 1], [1, 2, 3], "headroom is the same"),
        ([1, 2, 3], [2, 2, 2], "gain is the same"),
        ([1, 2, np.nan, 4, np.nan], [1, 2, 3, np.nan, 3], "2 cells"),
    ],
)
def test_what_cannot_be_correlated_is_none_with_a_reason(x, y, why):
    for found in (rel.pearson(cells_at(x, y)), rel.spearman(cells_at(x, y))):
        assert found.value is None
        assert found.low is None
        assert why in found.reason


def test_the_line_is_least_squares_and_its_band_holds_it():
    x = np.array([0.1, 0.2, 0.25, 0.3, 0.05, 0.18, 0.12, 0.27])
    y = 0.9 * x + np.array([0.01, -0.01, 0.0, 0.02, 0.0, -0.01, 0.0, 0.01])
    line = rel.fit_line(x, y)
    expected = sps.linregress(x, y)
    assert (line.slope, line.intercept) == pytest.approx((expected.slope, expected.intercept))
    x, low, high = map(np.array, (line.x, line.low, line.high))
    fit = line.intercept + line.slope * x
    assert np.mean((low <= fit + 1e-9) & (fit <= high + 1e-9)) > 0.9
    assert rel.fit_line([1] * 8, range(8)) is None
    assert rel.fit_line(range(7), range(7)) is None


def test_splits_are_what_going_through_all_halves_gives():
    rng = np.random.default_rng(7)
    some = [rel.CellGains("a", str(j), *rng.random((2, 5)) * [[j], [j * j]]) for j in range(1, 4)]
    halves = [(list(h), [i for i in range(5) if i not in h]) for h in combinations(range(5), 2)]
    exact = []
    for splits in product(halves, repeat=3):
        points = [(c.headroom[one].mean(), c.gain[two].mean()) for c, (one, two) in zip(some, splits, strict=True)]
        exact.append(np.corrcoef(*np.array(points).T)[0, 1])
    found = rel.disjoint_splits(some, splits=4000)
    assert found.splits == 4000
    assert found.mean == pytest.approx(np.mean(exact), abs=4 * np.std(exact) / 4000**0.5)
    assert found.sd == pytest.approx(np.std(exact), rel=0.1)
