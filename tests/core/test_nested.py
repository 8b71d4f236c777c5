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


@pytest.mark.parametrize(("found", "statistic"), [(rel.pearson, sps.pearsonr), (rel.spearman, sps.spearmanr)])
def test_the_interval_is_that_of_plain_loops(found, statistic):
    some = cells(np.random.default_rng(1), 10, 40)
    low, high = by_hand(some, statistic, 3000, np.random.default_rng(2))
    seen = found(some)
    assert seen.value == pytest.approx(statistic(*_means(some)).statistic)
    assert (seen.low, min(seen.high, 1)) == pytest.approx((low, max(high, seen.value)), abs=0.04)


def share_picked(quality):
    """How often scores ``quality * success + N(0, 1)`` pick a success among three takes with one, and with two."""
    x = np.linspace(-8, 8, 2001)
    weight = sps.norm.pdf(x) * (x[1] - x[0])
    one = np.sum(weight * sps.norm.cdf(x + quality[..., None]) ** 2, axis=-1)
    return one, 1 - np.sum(weight * sps.norm.cdf(x - quality[..., None]) ** 2, axis=-1)


GRID = np.linspace(-4, 8, 400)
PICKED = share_picked(GRID)


def population(rng, count, mean, sd):
    """Cells: success of their starts is Beta(a, b), their score has a quality of its own."""
    success, spread = rng.uniform(0.1, 0.95, count), np.exp(rng.uniform(0, np.log(4), count))
    return success * spread, (1 - success) * spread, rng.normal(mean, sd, count)


def true_places(a, b, quality):
    """Headroom and gain of each cell with infinitely many starts, from the moments of Beta."""
    first = a / (a + b)
    second = first * (a + 1) / (a + b + 1)
    third = second * (a + 2) / (a + b + 2)
    one, two = (np.interp(quality, GRID, picked) for picked in PICKED)
    gain = 3 * (first - 2 * second + third) * (one - 1 / 3) + 3 * (second - third) * (two - 2 / 3)
    return 2 * first - 3 * second + third, gain


def played(rng, places, starts):
    """Three takes of each start of each cell."""
    (a, b, quality), found = places, []
    for j, picked in enumerate(zip(*(np.interp(quality, GRID, p) for p in PICKED), strict=True)):
        successes = rng.binomial(3, rng.beta(a[j], b[j], starts))
        chance = np.array([0, *picked, 1])[successes]
        gain = (rng.random(starts) < chance) - successes / 3
        found.append(rel.CellGains("a", str(j), (successes > 0) - successes / 3, gain))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "sd", "r"), [(2.5, 0.6, 0.95), (1.2, 0.8, 0.48)])
@pytest.mark.parametrize("count", [8, 12, 40])
@pytest.mark.parametrize("starts", [20, 80])
def test_the_interval_covers_the_correlation_over_all_cells_and_starts(mean, sd, r, count, starts):
    truth = np.corrcoef(*true_places(*population(np.random.default_rng(0), 40_000, mean, sd)))[0, 1]
    assert truth == pytest.approx(r, abs=0.01)
    rng, hits, reps = np.random.default_rng(count + starts), 0, 150
    for _ in range(reps):
        found = rel.pearson(played(rng, population(rng, count, mean, sd), starts), draws=500)
        hits += found.low <= truth <= found.high
    # docs/result.md: 93 % or more; the Monte Carlo error of 150 repetitions is 2 points.
    assert hits / reps > 0.88


def _means(some):
    return [c.headroom.mean() for c in some], [c.gain.mean() for c in some]
