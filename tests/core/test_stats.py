import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import PAIRS, draw
from scipy import stats as sps

from besttake.core import stats as t
from besttake.core.headroom import start_headroom
from besttake.core.select import start_auc, start_gain

values = st.lists(st.sampled_from([-2 / 3, -1 / 3, 0.0, 0.0, 1 / 3, 2 / 3]), min_size=1, max_size=40)


@pytest.mark.parametrize(("wins", "size"), [(3, 20), (10, 20), (47, 60)])
def test_on_zeros_and_ones_the_interval_is_that_of_jeffreys(wins, size):
    x = np.r_[np.ones(wins), np.zeros(size - wins)]
    found = t.mean_interval(x, t.unit_scale(), draws=200_000)
    expected = sps.beta.ppf([0.025, 0.975], wins + 0.5, size - wins + 0.5)
    np.testing.assert_allclose([found.low, found.high], expected, atol=0.003)


@pytest.mark.parametrize(("wins", "size", "share"), [(6, 20, 0.15), (3, 3, 0.3), (0, 5, 0.1), (30, 80, 0.3)])
def test_on_zeros_and_ones_the_test_is_that_of_clopper_and_pearson(wins, size, share):
    x = np.r_[np.ones(wins), np.zeros(size - wins)]
    expected = sps.binomtest(wins, size, share, alternative="greater").pvalue
    assert t.p_not_above(x, share, 0.0, draws=200_000) == pytest.approx(expected, abs=0.004)
    expected = sps.binomtest(wins, size, share, alternative="less").pvalue
    assert t.p_not_below(x, share, 1.0, draws=200_000) == pytest.approx(expected, abs=0.004)


@settings(deadline=None, max_examples=50)
@given(values)
def test_an_interval_holds_its_value_and_stays_in_range(x):
    found = t.mean_interval(x, t.gain_scale(3), draws=500)
    assert -2 / 3 - 1e-12 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 2 / 3 + 1e-12
    assert found.n == len(x)


@settings(deadline=None, max_examples=50)
@given(values, st.integers(0, 2**32 - 1))
def test_the_same_seed_gives_the_same_interval_whatever_the_order_of_starts(x, seed):
    shuffled = np.random.default_rng(seed).permutation(x)
    assert t.mean_interval(x, t.gain_scale(3), rng=seed, draws=200) == t.mean_interval(
        shuffled, t.gain_scale(3), rng=seed, draws=200
    )


def test_starts_without_a_value_are_left_out_and_nothing_is_not_a_number():
    assert t.mean_interval([np.nan, 0.5, 0.5], t.unit_scale()).n == 2
    empty = t.mean_interval([np.nan], t.unit_scale())
    assert (empty.value, empty.low, empty.high, empty.n) == (None, None, None, 0)
    assert empty.reason


def test_gains_of_every_possible_start_stay_in_the_range():
    for k in range(2, 7):
        for n in range(2, k + 1):
            for c in range(k + 1):
                y = np.r_[np.ones(c), np.zeros(k - c)][None]
                best, worst = (start_gain(y, sign * y, n)[0] for sign in (1, -1))
                assert best <= t.gain_scale(n, k).hi + 1e-12
                assert worst >= t.gain_scale(n, k).lo - 1e-12


def test_the_cluster_bootstrap_agrees_with_scipy():
    rng = np.random.default_rng(5)
    a = rng.gamma(1.0, size=40)
    b = a + rng.gamma(2.0, size=40)
    (found,) = t.cluster_bootstrap(np.stack([a, b], 1), lambda s: s[..., :1] / s[..., 1:])
    other = sps.bootstrap(
        (a, b),
        lambda x, y, axis: x.mean(axis=axis) / y.mean(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=20_000,
        rng=np.random.default_rng(1),
    ).confidence_interval
    np.testing.assert_allclose([found.low, found.high], [other.low, other.high], atol=0.006)


@pytest.mark.slow
@pytest.mark.parametrize("starts", [20, 60, 200])
def test_the_one_sided_tests_keep_their_level_however_few_starts_are_mixed(starts):
    """At the edge of their nulls: a blind score, rare losses that few starts do not show, rare gains of mean w."""
    rng, reps = np.random.default_rng(starts), 600

    def share(p_value, sample):
        return np.mean([p_value(sample()) <= 0.05 for _ in range(reps)])

    def blind():
        sample = draw(rng, PAIRS["pi05"], starts, ranking=0.0)
        return start_gain(sample.base, sample.scores)

    def rare_losses():
        return rng.choice([1 / 3, -2 / 3, 0.0], p=[0.1, 0.05, 0.85], size=starts)

    def rare_gains():
        return 2 / 3 * (rng.random(starts) < 0.045)

    def above(x):
        return t.p_not_above(x, 0.0, -2 / 3, rng=rng, draws=1000)

    def below(x):
        return t.p_not_below(x, 0.03, 2 / 3, rng=rng, draws=1000)

    most = 0.05 + 3 * np.sqrt(0.05 * 0.95 / reps)
    assert share(above, blind) <= most
    assert share(above, rare_losses) <= most
    assert share(below, rare_gains) <= most


def test_capture_is_undefined_without_headroom_and_bounded_by_one():
    none = t.capture_interval(np.zeros(10), np.zeros(10))
    assert none.value is None
    assert "mixed" in none.reason
    h = np.r_[np.full(12, 1 / 3), np.zeros(8)]
    full = t.capture_interval(h, h)
    assert full.value == pytest.approx(1)
    assert full.high == 1.0
    assert 0.3 < full.low < 1


def test_mean_and_sd_over_seeds_are_those_of_the_seed_means():
    y = np.array([[1, 0, 1], [1, 1, np.nan], [0, 0, 1]])
    per_seed = [2 / 3, 1 / 3, 1.0]
    assert t.over_seeds(y) == pytest.approx((np.mean(per_seed), np.std(per_seed, ddof=1)))
    assert t.over_seeds(y[:, :1])[1] is None


def shown(sample, seeds):
    """The four statistics of the issue: per-start values and their scale."""
    return {
        "headroom": (start_headroom(sample.base), t.headroom_scale(seeds)),
        "gain": (start_gain(sample.base, sample.scores), t.gain_scale(seeds)),
        "content": ((sample.retrieve - sample.cooled).mean(1), t.difference_scale(seeds)),
        "auc": (start_auc(sample.base, sample.scores), t.unit_scale()),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("starts", "seeds", "reps"), [(24, 3, 300), (60, 3, 300), (60, 5, 100), (500, 3, 60)])
def test_intervals_cover_the_truth_as_often_as_they_say(starts, seeds, reps):
    """Per statistic over the paper's eight populations, for a good and a weak score, between 93 and 97 %.

    Monte Carlo error (one sd) of each share is .45 points at 24 and 60 starts with three seeds and .8 to 1 for the
    others, and is allowed for twice over; a single population may stray by the coarseness of few mixed starts.
    """
    covered: dict[str, list[bool]] = {name: [] for name in ("headroom", "gain", "content", "auc")}
    rng = np.random.default_rng(starts + seeds)
    for pair in PAIRS.values():
        for ranking, content in ((3.0, 0.0), (0.8, 0.6)):
            settings_ = {"seeds": seeds, "ranking": ranking, "content": content}
            population = shown(draw(rng, pair, 60_000, **settings_), seeds)
            truth = {k: np.nanmean(v) for k, (v, _) in population.items()}
            for name, (x, scale) in shown(draw(rng, pair, starts * reps // 2, **settings_), seeds).items():
                for one in np.split(x, reps // 2):
                    found = t.mean_interval(one, scale, rng=rng, draws=500)
                    if found.value is not None:
                        covered[name].append(found.low <= truth[name] <= found.high)
    for name, hits in covered.items():
        error = np.sqrt(0.05 * 0.95 / len(hits))
        assert 0.93 - 2 * error <= np.mean(hits) <= 0.97 + 2 * error, (name, np.mean(hits), error)
