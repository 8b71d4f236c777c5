"""The forecast of further starts: the right order, the right ends, and calibrated on populations unlike each other."""

from __future__ import annotations

import numpy as np
import pytest

from besttake.core.estimate import Forecast
from besttake.core.forecast import BOTH, Futures, forecast, futures, settled_along
from besttake.core.sequential import tracks
from besttake.core.stats import Scale, difference_scale, gain_scale, pick_scale

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


def test_both_is_forecast_by_the_rule_that_decides_it() -> None:
    rng = np.random.default_rng(3)
    scales, stakes = [pick_scale(), gain_scale(3)], [2 / 3, 0.75]
    x = np.empty((160, 12, 2))
    for b, gain in enumerate(rng.uniform(0.0, 0.3, 12)):
        x[:, b, 0] = rng.choice([-1, 0, 1], 160, p=[0.05, 0.9 - gain, 0.05 + gain])
        x[:, b, 1] = rng.choice([-1 / 3, 0, 2 / 3], 160, p=[0.1, 0.6, 0.3])
    forecasted = settled_along(x, BOTH, scales, stakes, 0.03, 0).settled("both")
    real = []
    for b in range(12):
        pair, alone = tracks(x[:, b], scales, stakes, 0.03)
        codes = [{pair.answer(seen), alone.answer(seen)} for seen in range(1, 161)]
        real.append(next((t for t, code in enumerate(codes, start=1) if "no" in code or code == {"yes"}), INF))
    assert forecasted is not None
    np.testing.assert_array_equal(forecasted, real)
    assert np.isfinite(real).sum() > 4


@pytest.mark.slow
def test_the_real_number_lies_in_the_range_in_about_80_percent(capsys: pytest.CaptureFixture[str]) -> None:
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
    with capsys.disabled():
        print(f"\nthe real number lies in the range in {100 * np.mean(hits):.0f} % ({', '.join(lines)})")
    assert 0.73 <= np.mean(hits) <= 0.87
