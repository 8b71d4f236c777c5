"""The forecast of further starts: the right order, the right ends, and calibrated on populations unlike each other."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from populations import PAIRS, beta_pass, draw, matched

from besttake.core import planning as p
from besttake.core.planning import Futures, forecast, futures
from besttake.core.select import start_gain
from besttake.core.sequential import tracks
from besttake.core.stats import Forecast, Scale, difference_scale, gain_scale


@pytest.mark.parametrize(("seeds", "n", "factor"), [(3, 3, 2 / 3), (5, 3, 0.26), (5, 5, 0.8), (2, 2, 0.5)])
def test_a_blind_choice_has_the_variance_of_the_formula(seeds, n, factor):
    assert p.blind_variance(1.0, seeds, n) == pytest.approx(factor)
    sample = draw(np.random.default_rng(seeds), PAIRS["pi0"], 60_000, seeds=seeds, ranking=0.0)
    v = beta_pass(*matched(*PAIRS["pi0"]), 2) - PAIRS["pi0"][0]
    found = np.var(start_gain(sample.base, sample.scores, n))
    assert found == pytest.approx(p.blind_variance(v, seeds, n), rel=0.03)


def test_v_from_pass_1_is_typical_of_the_paper():
    shares = []
    for pair in PAIRS.values():
        v = beta_pass(*matched(*pair), 2) - pair[0]
        shares.append(v / (pair[0] * (1 - pair[0])))
        assert p.v_from_pass1(pair[0]) == pytest.approx(0.66 * v / shares[-1])
    assert np.mean(shares) == pytest.approx(0.66, abs=0.01)
    assert (min(shares), max(shares)) == pytest.approx((0.44, 0.85), abs=0.01)
    with pytest.raises(ValueError, match="between 0 and 1"):
        p.v_from_pass1(64)


def test_the_half_width_comes_out_when_that_many_starts_are_run():
    v = beta_pass(*matched(*PAIRS["pi0"]), 2) - 0.642
    starts = p.starts_for_half_width(p.blind_variance(v), 0.05)
    assert starts == ceil(1.959964**2 * 2 / 3 * v / 0.05**2)
    rng = np.random.default_rng(4)
    means = []
    for _ in range(400):
        sample = draw(rng, PAIRS["pi0"], starts, ranking=0.0)
        means.append(start_gain(sample.base, sample.scores).mean())
    assert 1.96 * np.std(means) == pytest.approx(0.05, rel=0.12)


INF = np.inf
GAIN, DIFFERENCE = (gain_scale(3), 0.75), (difference_scale(3), 2 / 3)
POPULATIONS: dict[str, tuple[tuple[Scale, float], list[float], list[float]]] = {
    "gain of 12": (GAIN, [0, 1 / 3, 2 / 3, -1 / 3], [0.6, 0.2, 0.12, 0.08]),
    "gain of 3": (GAIN, [0, 1 / 3, 2 / 3, -1 / 3, -2 / 3], [0.6, 0.18, 0.06, 0.12, 0.04]),
    "no gain": (GAIN, [0, 1 / 3, 2 / 3, -1 / 3, -2 / 3], [0.6, 0.12, 0.08, 0.12, 0.08]),
    "no gain, few mixed starts": (GAIN, [0, 1 / 3, -1 / 3], [0.9, 0.05, 0.05]),
    "content of 9": (DIFFERENCE, [0, 1 / 3, -1 / 3, 1, -1], [0.4, 0.3, 0.17, 0.09, 0.04]),
    "no content": (DIFFERENCE, [0, 1 / 3, -1 / 3], [0.6, 0.2, 0.2]),
    "harm of 7": (DIFFERENCE, [0, 1 / 3, -1 / 3, -1], [0.5, 0.2, 0.25, 0.05]),
    "content of 4": (DIFFERENCE, [0, 1 / 3, -1 / 3], [0.5, 0.31, 0.19]),
}


def test_a_part_is_settled_when_the_rule_of_the_verdict_settles_it() -> None:
    yes = {"headroom": [9], "gain": [INF], "content": [20], "combine": [12], "retrieve_selection": [15]}
    no = {"headroom": [INF], "gain": [30], "content": [40], "combine": [INF], "retrieve_selection": [INF]}
    drawn = Futures({k: np.array(v, float) for k, v in yes.items()}, {k: np.array(v, float) for k, v in no.items()}, 99)
    found = {part: drawn.settled(part) for part in ("takes", "content", "both")}
    assert {part: times.tolist() for part, times in found.items() if times is not None} == {
        "takes": [30], "content": [20], "both": [15],
    }  # fmt: skip
    assert Futures({}, {}, 99).settled("both") is None


def test_a_clear_gain_is_forecast_soon_and_a_gain_at_the_border_late() -> None:
    rng = np.random.default_rng(0)

    def drawn(values: list[float], chances: list[float]) -> Forecast:
        x = rng.choice(values, 20, p=chances)
        return forecast(futures(x[:, None], ["gain"], [GAIN[0]], [GAIN[1]], 0.03, 300).settled("takes"), 300)  # type: ignore[arg-type]

    soon, late = drawn([0, 1 / 3], [0.6, 0.4]), drawn([-1 / 3, 0, 1 / 3], [0.2, 0.55, 0.25])
    assert soon.high is not None
    assert soon.high < 60
    assert late.high is None or late.high > 100


@pytest.mark.slow
def test_the_real_number_lies_in_the_range_in_about_80_percent() -> None:
    most, lines = 400, []
    hits: list[bool] = []
    for name, ((scale, stake), values, chances) in POPULATIONS.items():
        rng = np.random.default_rng(7)
        own: list[bool] = []
        while len(own) < 60:
            pilot = int(rng.choice([20, 40, 60]))
            x = rng.choice(values, pilot + most, p=chances)
            (track,) = tracks(x[:, None], [scale], [stake], 0.03)
            real = min(track.yes, track.no) - pilot
            if real <= 0:
                continue
            drawn = futures(x[:pilot, None], ["gain"], [scale], [stake], 0.03, most)
            ahead = forecast(np.minimum(drawn.yes["gain"], drawn.no["gain"]), most)
            within = real > most if ahead.low is None else ahead.low <= real <= (ahead.high or INF)
            own.append(within)
        hits += own
        lines.append(f"{name}: {100 * np.mean(own):.0f} %")
    assert 0.73 <= np.mean(hits) <= 0.87
