import io
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from besttake.reporting import save_figures
from besttake.reporting.axes import Scale, spread, ticks
from besttake.reporting.drawing import Area, Figure, Label, Line, Mark
from besttake.reporting.numbers import count, duration, interval, number, percent, points


def test_every_figure_is_written_as_svg_and_png(run: Path, tmp_path: Path) -> None:
    files = save_figures(run, tmp_path / "figures")
    names = {path.name for path in files}
    for name in ("relation", "fit_error", "ladder-0-testbed_half", "arms-1-testbed_mid", "pass_at_k-0-testbed_half"):
        assert {f"{name}.svg", f"{name}.png"} <= names
    for path in files:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag.endswith("svg")
            assert "var(" not in path.read_text()
        else:
            with Image.open(path) as image:
                assert image.width >= 1380
                assert len(np.unique(np.asarray(image.convert("L")))) > 20


def test_a_mark_stands_at_the_same_place_in_svg_and_png() -> None:
    figure = Figure(100, 50, "a dot", (Mark(70, 20, 6, "s1"), Line([(0, 45), (100, 45)], "ink", 2)))
    with Image.open(io.BytesIO(figure.png(scale=4))) as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    orange = (abs(pixels - [0xD5, 0x5E, 0x00]).sum(-1) < 12).nonzero()
    assert np.mean(orange[1]) / 4 == pytest.approx(70, abs=0.5)
    assert np.mean(orange[0]) / 4 == pytest.approx(20, abs=0.5)
    circle = ET.fromstring(figure.svg()).find("{*}circle")
    assert circle is not None
    assert (circle.get("cx"), circle.get("cy")) == ("70", "20")


def test_see_through_areas_let_the_paper_shine_through() -> None:
    figure = Figure(40, 40, "a band", (Area([(0, 0), (40, 0), (40, 40), (0, 40)], "ink", opacity=0.25),))
    with Image.open(io.BytesIO(figure.png(scale=1))) as image:
        red = int(np.asarray(image)[20, 20, 0])
    assert red == pytest.approx(0.75 * 255 + 0.25 * 0x1D, abs=3)


def test_text_in_a_figure_is_escaped() -> None:
    figure = Figure(10, 10, "<b>", (Label(0, 0, "<i>&", tip='"quoted"'),))
    text = figure.svg()
    assert "<i>" not in text
    assert "&lt;i&gt;&amp;" in text
    assert ET.fromstring(text) is not None


def test_scales_and_ticks_are_round_and_inside() -> None:
    assert ticks(0, 1, 4) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert ticks(-0.07, 0.22, 5) == pytest.approx([0, 0.1, 0.2])
    assert Scale(0, 2, 10, 30)(1) == 20
    assert Scale(0, 2, 10, 30).clip(9) == 30
    assert spread([None, 0.5, float("nan")], low=0, high=0.1)[1] > 0.5


def test_numbers_are_written_as_people_read_them() -> None:
    assert percent(0.6417) == "64.2\N{NO-BREAK SPACE}%"
    assert points(0.112) == "+11.2"
    assert points(-0.0001) == "+0.0"
    assert points(-0.031) == "\N{MINUS SIGN}3.1"
    assert interval(0.08, 0.143, scale=100) == "[8.0, 14.3]"
    assert interval(None, 1) == ""
    assert number(float("nan")) == ""
    assert count(1, "start") == "1 start"
    assert count(2, "policy", "policies") == "2 policies"
    assert duration(75) == "1 min 15 s"
    assert duration(7260) == "2 h 1 min"
