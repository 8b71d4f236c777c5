import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from populations import PAIRS, draw
from scipy import stats as sps

from besttake.core import ranking as r

shapes = st.tuples(st.integers(1, 5), st.integers(1, 5))
cells = shapes.flatmap(
    lambda shape: st.tuples(
        arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, 0.0, 1.0, np.nan])),
        arrays(np.float64, shape, elements=st.sampled_from([0.1, 0.2, 0.3, 0.4, np.nan])),
    )
)


def brute_auc(y, s):
    wins = [b for a, b in zip(y, s, strict=True) if a == 1 and np.isfinite(b)]
    losses = [b for a, b in zip(y, s, strict=True) if a == 0 and np.isfinite(b)]
    pairs = [(a > b) + 0.5 * (a == b) for a in wins for b in losses]
    return float(np.mean(pairs)) if pairs else float("nan")


@settings(deadline=None)
@given(cells)
def test_within_start_auc_compares_takes_of_the_same_start_only(cell):
    y, s = cell
    np.testing.assert_allclose(r.start_auc(y, s), [brute_auc(a, b) for a, b in zip(y, s, strict=True)], atol=1e-12)


@settings(deadline=None)
@given(cells)
def test_pooled_auc_compares_every_success_with_every_failure(cell):
    y, s = cell
    expected, found = brute_auc(y.ravel(), s.ravel()), r.pooled_auc(y, s)
    if np.isnan(expected):
        assert found.value is None
    else:
        assert found.value == pytest.approx(expected)
        assert 0 <= found.low <= found.value + 1e-12 <= found.high + 2e-12 <= 1 + 4e-12


def test_pooled_auc_is_the_mann_whitney_statistic():
    sample = draw(np.random.default_rng(0), PAIRS["pi0"], 300, ranking=1.0)
    y, s = sample.base.ravel(), sample.scores.ravel()
    u = sps.mannwhitneyu(s[y == 1], s[y == 0]).statistic
    assert r.pooled_auc(sample.base, sample.scores).value == pytest.approx(u / ((y == 1).sum() * (y == 0).sum()))


def test_pooled_auc_can_be_high_where_the_score_ranks_nothing_within_starts():
    """A score that only knows which start is easy: the reason why the pooled AUC does not show selection."""
    rng = np.random.default_rng(1)
    p = rng.beta(0.4, 0.4, 2000)
    y = (rng.random((2000, 3)) < p[:, None]).astype(float)
    s = p[:, None] + 1e-3 * rng.random(y.shape)
    assert r.pooled_auc(y, s).value > 0.9
    within = r.within_auc(y, s)
    assert within.low < 0.5 < within.high


def test_nothing_to_rank_is_said_not_computed():
    assert "success and a failure" in r.within_auc([[1, 1], [0, 0]], [[1, 2], [3, 4]]).reason
    assert "ended alike" in r.pooled_auc([[1, 1]], [[1, 2]]).reason


def test_a_perfect_pooled_ranking_keeps_a_lower_bound_below_one():
    y = np.tile([1.0, 0.0, 0.0], (10, 1))
    found = r.pooled_auc(y, y)
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025**0.1)
    assert r.pooled_auc(y, -y).low == 0.0


@pytest.mark.slow
def test_the_pooled_interval_covers_where_both_outcomes_have_enough_starts():
    rng = np.random.default_rng(4)
    hits = []
    for name in ("pi0", "smolvla", "bridge spoon", "openvla"):
        big = draw(rng, PAIRS[name], 100_000, ranking=1.5)
        truth = r.pooled_auc(big.base, big.scores).value
        for _ in range(400):
            sample = draw(rng, PAIRS[name], 60, ranking=1.5)
            found = r.pooled_auc(sample.base, sample.scores)
            hits.append(found.low <= truth <= found.high)
    assert 0.93 - 0.01 <= np.mean(hits) <= 0.97 + 0.01, np.mean(hits)
