"""Correlations over cells whose intervals resample the cells and the starts within them."""

import numpy as np
import pytest
from scipy import stats as sps

from besttake.core import relation as rel


def cells(rng, count, starts, slope=0.8):
    """Cells whose true headroom is spread over [0, .4]; per-start values are noisy, gain follows headroom."""
    found = []
    for j, room in enumerate(rng.uniform(0, 0.4, count)):
        h = np.where(rng.random(starts) < 1.5 * room, 2 / 3, 0.0)
        g = np.where(rng.random(starts) < slope, h, h - (h > 0))
        found.append(rel.CellGains("ab"[j % 2], str(j), h, g))
    return found


def by_hand(some, statistic, draws, rng):
    """The same interval by plain loops: draw cells, then starts of each."""
    values = []
    for _ in range(draws):
        points = []
        for j in rng.integers(len(some), size=len(some)):
            rows = rng.integers(len(some[j].headroom), size=len(some[j].headroom))
            points.append((some[j].headroom[rows].mean(), some[j].gain[rows].mean()))
        x, y = np.array(points).T
        if np.ptp(x) > 0 and np.ptp(y) > 0:
            values.append(statistic(x, y).statistic)
    return np.percentile(values, [2.5, 97.5])


@pytest.mark.parametrize(
    ("found", "statistic"), [(rel.nested_pearson, sps.pearsonr), (rel.nested_spearman, sps.spearmanr)]
)
def test_the_interval_is_that_of_plain_loops(found, statistic):
    some = cells(np.random.default_rng(1), 10, 40)
    low, high = by_hand(some, statistic, 3000, np.random.default_rng(2))
    seen = found(some)
    assert seen.value == pytest.approx(statistic(*_means(some)).statistic)
    assert (seen.low, min(seen.high, 1)) == pytest.approx((low, max(high, seen.value)), abs=0.04)


def test_all_but_r_itself_resample_starts_as_well():
    some = cells(np.random.default_rng(3), 10, 20)
    found = rel.relate(some)
    assert found.r == rel.pearson(*_means(some))
    assert found.r_nested == rel.nested_pearson(some)
    assert found.spearman == rel.nested_spearman(some)
    own, others = ([c for c in some if c.policy == p] for p in "ab")
    assert found.within == {"a": rel.nested_pearson(own), "b": rel.nested_pearson(others)}
    assert found.leave_one_out == {"a": rel.nested_pearson(others), "b": rel.nested_pearson(own)}


def test_the_value_is_never_outside_its_interval():
    """Means on a line, starts of which some gain without headroom: resampled starts only ever lower r."""
    room = [np.r_[np.full(j, 2 / 3), np.zeros(20 - j)] for j in range(1, 13)]
    found = rel.nested_pearson([rel.CellGains("a", str(j), h, h[::-1]) for j, h in enumerate(room)])
    assert found.value == pytest.approx(1)
    assert found.low <= found.value <= found.high


@pytest.mark.slow
def test_with_few_cells_the_interval_covers_where_that_over_cells_alone_does_not():
    """Four cells of 20 starts, gain a varying share of headroom; the truth is r over very many cells and starts."""

    def world(rng, count, starts):
        found = []
        for j, (room, share) in enumerate(zip(rng.uniform(0, 0.4, count), rng.normal(0.6, 0.35, count), strict=True)):
            h = np.where(rng.random(starts) < 1.5 * room, 2 / 3, 0.0)
            g = np.where(rng.random(starts) < 0.5 + 0.5 * np.clip(share, -0.3, 1), h, h - (h > 0))
            found.append(rel.CellGains("a", str(j), h, g))
        return found

    truth = rel.pearson(*_means(world(np.random.default_rng(0), 3000, 3000)), draws=10).value
    rng, hits, reps = np.random.default_rng(2), np.zeros(2), 0
    while reps < 200:
        some = world(rng, 4, 20)
        found = [rel.pearson(*_means(some), draws=2000), rel.nested_pearson(some, draws=1000)]
        if all(e.low is not None for e in found):
            hits += [e.low <= truth <= e.high for e in found]
            reps += 1
    # Monte Carlo error of 200 repetitions: 1.5 points at 95 %.
    assert hits[1] / reps > 0.92
    assert hits[0] / reps < 0.85


def test_cells_that_hardly_differ_have_no_interval():
    """One start of the first cell has headroom, one of the second a gain: most resamples miss one of the two."""
    some = [rel.CellGains("a", str(j), *(np.r_[float(j == k), np.zeros(19)] for k in (0, 1))) for j in range(3)]
    found = rel.nested_pearson(some)
    assert found.value == pytest.approx(-0.5)
    assert found.low is None
    assert "interval" in found.reason


def _means(some):
    return [c.headroom.mean() for c in some], [c.gain.mean() for c in some]
