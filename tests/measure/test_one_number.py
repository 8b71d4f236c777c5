"""Each quantity has one value and one interval, wherever a result shows it: for random takes, failures and looks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from besttake.core.stats import Estimate
from besttake.measure.arrays import ArmTakes, CellData, Settings
from besttake.measure.cell import measure_cell
from besttake.measure.looks import CellHistory, cell_name
from besttake.reporting import result_tables
from besttake.reporting.table import Entry
from besttake.result import Cell
from besttake.takes.scores import ScoreName

WINDOWS = ("full", "common")
ARMS = ("base", "cooled", "shuffled", "retrieve", "rerank")


def takes(rng: np.random.Generator, starts: int, seeds: int, failed: float, unscored: float) -> ArmTakes:
    """Random takes of an arm, some of which failed to be made or have no score."""
    y = (rng.random((starts, seeds)) < rng.beta(1, 1, (starts, 1))).astype(float)
    y[rng.random(y.shape) < failed] = np.nan
    scores = {
        ScoreName(scorer, window): 2 * y + rng.normal(size=y.shape)
        for scorer in ("manifold", "coverage")
        for window in WINDOWS
    }
    for values in scores.values():
        values[rng.random(y.shape) < unscored] = np.nan
    return ArmTakes(y, np.where(y == 1, 40.0, 60.0) + rng.integers(0, 9, y.shape), scores)


@st.composite
def cells(draw: st.DrawFn) -> tuple[CellData, Settings, CellHistory]:
    """A cell with unequal numbers of takes, what to measure on it, and the earlier looks."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    starts, seeds = draw(st.integers(2, 9)), draw(st.integers(1, 4))
    failed, unscored = draw(st.sampled_from([0.0, 0.2, 0.6])), draw(st.sampled_from([0.0, 0.3, 1.0]))
    arms = {name: takes(rng, starts, seeds, failed, unscored) for name in draw(st.sampled_from([ARMS, ARMS[:2]]))}
    tasks = draw(st.integers(1, 2))
    units = tuple(("env", f"task {i % tasks}", i) for i in range(starts))
    looked = draw(st.sampled_from([[], [1], [1, 2], [starts]]))
    earlier = [(count, draw(st.integers(1, seeds))) for count in looked]
    data = CellData("p", "env", "group", units, arms, WINDOWS, "manifold", starts * seeds * len(arms), 0)
    n = draw(st.integers(min(2, seeds), seeds))
    return data, Settings(seeds, n), CellHistory(tuple(earlier))


def appearances(cell: Cell) -> dict[str, list[Estimate]]:
    """By quantity, every estimate of it that the result holds."""
    headroom, ways, arms, verdict = cell.headroom, cell.selectors, cell.arms, cell.verdict
    assert headroom
    assert ways
    assert arms
    assert verdict
    asked = {name: finding.estimate for name, finding in verdict.questions.items()}
    points = headroom.curve
    picked = ways.scored["manifold"][cell.window]
    shown = {
        "pass@1": [headroom.pass_1, points[0], arms.arms["base"].pass_1, ways.random.success],
        "pass@n": [headroom.pass_n, points[headroom.n - 1], arms.arms["base"].pass_n, ways.oracle.success],
        "headroom": [headroom.headroom, asked["headroom"], ways.oracle.gain],
        "shortest": [ways.shortest.gain, asked["shortest"]],
    }
    if "gain" in asked:
        gains = [picked.gain, asked["gain"]]
        if verdict.takes.reason != "no-score":
            gains.append(verdict.takes.gain)
        if len(cell.tasks) == 1:
            gains.append(cell.tasks[0].gain)
        own = arms.arms["base"].selected
        assert own
        shown["gain"] = [*gains, own.gain, arms.arms["base"].selected_gain]
        shown["selected"] = [picked.success, own.success, ways.by_n[headroom.n - 1]]
    for name, arm in arms.arms.items():
        if name != "base":
            shown[name] = [arm.gain, asked[name]]
            if arm.selected:
                shown[f"{name}_selection"] = [arm.selected.gain, asked[f"{name}_selection"]]
        if f"{name}_selected" in asked:
            shown[f"{name}_selected"] = [arm.selected_gain, asked[f"{name}_selected"]]
    for name, estimate in (("content", arms.content), ("combine", arms.combine)):
        if name in asked:
            shown[name] = [estimate, asked[name]]
    if "content" in asked:
        shown["content"].append(verdict.demonstrations.gain)
    for option in verdict.options:
        if option.takes > 1:
            shown["gain" if option.arm == "base" else f"{option.arm}_selected"].append(option.gain)
        elif option.arm != "base":
            shown[option.arm].append(option.gain)
        if option.takes == 1:
            shown.setdefault(f"{option.arm} success", [arms.arms[option.arm].pass_1]).append(option.success)
    return shown


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cells())
def test_each_quantity_has_one_value_and_one_interval_wherever_it_appears(drawn: tuple) -> None:
    data, how, earlier = drawn
    history = {cell_name(data.policy, data.env, data.group): earlier}
    measured = measure_cell(data, how, history)
    if not data.arms["base"].takes:
        assert measured.verdict is None
        return
    for name, estimates in appearances(measured).items():
        first, *others = (replace(estimate, reason="") for estimate in estimates)
        for other in others:
            assert other == first, name


def test_every_arm_is_measured_against_the_control_that_its_spec_names() -> None:
    rng = np.random.default_rng(5)
    arms = {name: takes(rng, 20, 3, 0.0, 0.0) for name in (*ARMS, "mine", "yours")}
    units = tuple(("env", "task", i) for i in range(20))
    data = CellData("p", "env", "group", units, arms, WINDOWS, "manifold", 420, 0)
    controls = {"rerank": "base", "retrieve": "cooled", "mine": "cooled", "yours": "not run"}
    measured = measure_cell(data, Settings(3, 3, controls=controls))
    assert measured.arms
    assert measured.verdict
    mine, yours, rerank = (measured.arms.arms[name] for name in ("mine", "yours", "rerank"))
    assert mine.beyond_control == measured.verdict.questions["mine_beyond_control"].estimate
    assert mine.beyond_control.value == pytest.approx((arms["mine"].outcomes - arms["cooled"].outcomes).mean())
    assert measured.arms.arms["retrieve"].beyond_control == measured.arms.content
    assert rerank.beyond_control == rerank.gain
    assert yours.beyond_control == Estimate(reason="not measured")
    assert measured.arms.arms["base"].control is None
    names = [name for name in measured.verdict.questions if name.endswith("_beyond_control")]
    assert names == ["mine_beyond_control"]
    shown = {row[0].text: row[3] for row in result_tables.arms(measured).rows if isinstance(row[0], Entry)}
    assert shown["mine − cooled"].value == mine.beyond_control.value
