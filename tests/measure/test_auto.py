"""The scorer ``auto``: its scores are those of a scorer chosen on other starts, and never of one that reads length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as sps

from besttake.core import select
from besttake.measure.auto import with_auto
from besttake.measure.cell import cell
from besttake.measure.cells import ArmTakes, CellData, Settings
from besttake.measure.rejection import rejection_of
from besttake.measure.scores import AUTO, ScoreName
from besttake.reporting import words

WINDOWS = ("common", "episode")


def data(starts: int = 60, seed: int = 0, **scorers: np.ndarray) -> CellData:
    """A cell where episodes stop at success; ``scorers`` give their scores in both windows."""
    rng = np.random.default_rng(seed)
    y = (rng.random((starts, 3)) < 0.5).astype(float)
    lengths = np.where(y == 1, rng.integers(20, 80, y.shape), 100).astype(float)
    known = {
        "coverage": rng.random(y.shape),
        "last": np.where(rng.random(y.shape) < 0.8, y, 1 - y) + 0.01 * rng.random(y.shape),
        "length": -lengths,
        "perfect": y + 0.1 * rng.random(y.shape),
        **scorers,
    }
    scores = {ScoreName(name, w): values for name, values in known.items() for w in WINDOWS}
    scores |= {ScoreName(AUTO, w): np.full(y.shape, np.nan) for w in WINDOWS}
    return CellData(
        "p", "e", "g", tuple(("e", "g", i) for i in range(starts)), {"base": ArmTakes(y, lengths, scores)}, WINDOWS,
        AUTO, planned=y.size, errors=0, length=frozenset({"length", "perfect"}),
    )  # fmt: skip


def test_each_start_has_the_scores_of_the_scorer_chosen_on_those_before_it() -> None:
    after = with_auto(data(), 3, np.arange(60))
    base, auto = after.arms["base"], after.auto
    assert auto is not None
    assert auto.menu == ("coverage", "last")
    gains = {name: select.start_gain(base.outcomes, base.scores[ScoreName(name, "common")], 3) for name in auto.menu}
    for i in range(60):
        expected = max(auto.menu, key=lambda name: np.mean(gains[name][:i])) if i >= 10 else "coverage"
        assert auto.menu[auto.chosen[i]] == expected
        for window in WINDOWS:
            np.testing.assert_array_equal(
                base.scores[ScoreName(AUTO, window)][i], base.scores[ScoreName(expected, window)][i]
            )
    assert sum(auto.counts.values()) == 60
    assert auto.final == max(auto.menu, key=lambda name: np.mean(gains[name]))


def test_a_scorer_that_reads_length_is_marked_and_never_chosen() -> None:
    result = cell(with_auto(data(starts=120), 3), Settings(seeds=3, n=3, scorer=AUTO))
    assert result.auto is not None
    assert set(result.auto.chosen) <= {"coverage", "last"}
    assert result.selectors is not None
    length = result.selectors.scored["length"]["episode"]
    assert length.capture.value == pytest.approx(1.0, abs=0.02)
    assert length.leak
    assert not result.selectors.scored["last"]["episode"].leak
    assert result.selectors.scored["auto"]["common"].gain == result.verdict.questions["gain"].estimate  # type: ignore[union-attr]


def test_a_scorer_that_follows_length_is_found_out_without_saying_so() -> None:
    innocent = replace(data(starts=120), length=frozenset())
    scored = cell(with_auto(innocent, 3), Settings(seeds=3, n=3, scorer=AUTO)).selectors.scored  # type: ignore[union-attr]
    assert scored["length"]["episode"].leak
    assert not scored["perfect"]["episode"].leak, "a perfect verifier also prefers short takes, but not among successes"
    assert not scored["coverage"]["episode"].leak


def test_a_scorer_of_length_alone_ties_where_length_is_hidden_and_is_marked_and_never_chosen() -> None:
    innocent = replace(data(starts=12), length=frozenset())
    base = innocent.arms["base"]
    scores = {**base.scores, ScoreName("length", WINDOWS[0]): np.repeat(base.lengths.min(axis=1)[:, None], 3, axis=1)}
    scores |= {name: -own for name, own in scores.items() if name.scorer in ("coverage", "last", "perfect")}
    asked = with_auto(replace(innocent, arms={"base": replace(base, scores=scores)}), 3)
    assert asked.auto is not None
    assert asked.auto.menu == ("coverage", "last", "perfect")
    assert asked.leaks(ScoreName("length", "episode"))
    assert not asked.leaks(ScoreName("length", WINDOWS[0]))
    assert not any(asked.leaks(ScoreName(name, "episode")) for name in asked.auto.menu)


def test_in_order_no_start_is_judged_by_itself_or_a_later_one() -> None:
    order = np.random.default_rng(1).permutation(60)
    straight = with_auto(data(), 3, order).auto
    assert straight is not None
    changed = data()
    last = order[-20:]
    changed.arms["base"].outcomes[last] = 1 - changed.arms["base"].outcomes[last]
    again = with_auto(changed, 3, order).auto
    assert again is not None
    np.testing.assert_array_equal(straight.chosen[order[:41]], again.chosen[order[:41]])


def test_a_cell_that_does_not_ask_for_auto_stays_as_it_is() -> None:
    plain = data()
    scores = {name: s for name, s in plain.arms["base"].scores.items() if name.scorer != AUTO}
    plain = replace(plain, scorer="coverage", arms={"base": replace(plain.arms["base"], scores=scores)})
    assert with_auto(plain, 3) is plain


def test_the_words_say_which_was_chosen_and_what_retrying_costs() -> None:
    result = cell(with_auto(data(starts=200), 3), Settings(seeds=3, n=3, scorer=AUTO))
    chosen, retrying = words.scorer_lines(result)
    assert "auto picked by last at 190 starts, coverage at 10 starts" in chosen
    assert "Use last from now on" in chosen
    rejection = result.rejection
    assert rejection is not None
    assert rejection.scorer == "last"
    assert rejection.takes.value is not None
    assert 1 < rejection.takes.value < 3
    assert "retry until the last score is at least" in retrying
    assert f"{rejection.takes.value:.2f} takes on average" in retrying
    first, final = rejection.curve[0], rejection.curve[-1]
    assert first.takes == pytest.approx(3)
    assert first.success == pytest.approx(result.selectors.scored["auto"]["common"].success.value)  # type: ignore[union-attr]
    assert (final.takes, final.success) == pytest.approx((1, result.headroom.pass_1.value))  # type: ignore[union-attr]


@pytest.mark.slow
def test_retrying_by_the_best_of_eight_useless_scorers_is_rarely_declared_a_gain() -> None:
    rng, count = np.random.default_rng(8), 0
    for seed in range(100):
        useless = {f"useless {i}": rng.random((60, 3)) for i in range(7)}
        one = with_auto(data(seed=seed, last=rng.random((60, 3)), **useless), 3)
        rejection = rejection_of(one, 3)
        assert rejection is not None
        assert rejection.gain.low is not None
        count += rejection.gain.low > 0
    assert sps.binomtest(count, 100, 0.025, alternative="greater").pvalue > 0.01, f"{count} of 100"
