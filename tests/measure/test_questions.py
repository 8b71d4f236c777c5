import numpy as np
from evidence import gather
from scipy.stats import binomtest

from besttake.core import verdict
from besttake.measure.arrays import ScoredTakes
from besttake.measure.until import CellTracks
from besttake.measure.verdict import questions_of


def test_every_value_is_that_of_its_start_by_hand():
    base = ScoredTakes([[1, 0, 0], [1, 1, 1], [0, 0, 0]], [[0.1, 0.9, 0.2], [1, 2, 3], [3, 2, 1]], [[9, 5, 7]] * 3)
    cooled = ScoredTakes([[1, 1, 0], [1, 1, 1], [0, 0, 0]], [[0.5, 0.4, 0.6], [1, 2, 3], [3, 2, 1]])
    retrieve = ScoredTakes([[1, 1, 1], [1, 0, 1], [0, 0, 1]], [[1, 2, 3], [1, 3, 2], [1, 2, 3]])
    shuffled = ScoredTakes([[1, 1, 1], [1, 1, 1], [0, 0, 0]])
    found = gather(base, cooled=cooled, retrieve=retrieve, shuffled=shuffled)
    third = 1 / 3
    np.testing.assert_allclose(found.headroom, [2 * third, 0, 0])
    np.testing.assert_allclose(found.gain, [-third, 0, 0])
    np.testing.assert_allclose(found.shortest, [-third, 0, 0])
    np.testing.assert_allclose(found.retrieve, [2 * third, -third, third])
    np.testing.assert_allclose(found.cooled, [third, 0, 0])
    np.testing.assert_allclose(found.content, [third, -third, third])
    np.testing.assert_allclose(found.beyond_shuffled, [0, -third, third])
    np.testing.assert_allclose(found.combine, [1, -1, 1])
    np.testing.assert_allclose(found.retrieve_selection, [0, -2 * third, 2 * third])


def test_a_start_without_all_its_takes_changes_no_answer_that_was_given_before_it():
    moved = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        y = (rng.random((160, 5)) < rng.beta(0.5, 0.5, (160, 1))).astype(float)
        scores = 2 * y + rng.normal(size=y.shape)
        whole = CellTracks.of({"base": ScoredTakes(y, scores)}, np.arange(160), 3, 0.03)
        gone = y.copy()
        gone[120:][rng.random((40, 5)) < 0.4] = np.nan
        later = CellTracks.of({"base": ScoredTakes(gone, scores)}, np.arange(160), 3, 0.03)
        for seen in range(20, 121):
            assert whole.findings({"base": seen}) == later.findings({"base": seen})
        moved += bool(np.isnan(gone).any())
    assert moved == 12


def test_starts_with_too_few_takes_rule_no_gain_out():
    rng, runs, starts = np.random.default_rng(0), 200, 80
    naive = wrong = 0
    for _ in range(runs):
        # 28 % of the starts are mixed, at an even chance: the headroom of 3 takes is 3/8 of that, above 10 points.
        p = np.where(rng.random((starts, 1)) < 0.28, 0.5, np.round(rng.random((starts, 1))))
        y = (rng.random((starts, 3)) < p).astype(float)
        y[rng.random(starts) < 0.7, 1:] = np.nan
        (headroom,) = questions_of({"base": ScoredTakes(y)}, 3)
        wrong += headroom.ask(0.1, draws=400).answer == "no"
        naive += verdict.ask(headroom.values, headroom.scale, 0.1, draws=400).answer == "no"
    assert binomtest(wrong, runs, 0.05, alternative="greater").pvalue > 0.01
    assert binomtest(naive, runs, 0.05, alternative="greater").pvalue < 1e-6
