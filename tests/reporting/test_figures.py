import colorsys
import re
import xml.etree.ElementTree as ET
from importlib import resources
from pathlib import Path

import pytest

from besttake.reporting.drawing import PAGE, PRINT, SERIES, Figure, Mark, Polyline
from besttake.reporting.numbers import interval, number, percent, points
from besttake.reporting.writers import write_figures
from besttake.result import Result


def test_every_figure_is_written_as_svg(run: Path, tmp_path: Path) -> None:
    files = write_figures(Result.load(run / "result.json"), tmp_path / "figures")
    names = {path.name for path in files}
    for name in ("relation", "ladder-0-testbed_half", "options-1-testbed_mid"):
        assert f"{name}.svg" in names
    for path in files:
        assert ET.parse(path).getroot().tag.endswith("svg")
        assert "var(" not in path.read_text()


def test_a_figure_has_fixed_colours_in_a_file_and_follows_the_theme_on_a_page() -> None:
    figure = Figure(100, 50, "a dot", (Mark(70, 20, 6, "s1"), Polyline([(0, 45), (100, 45)], "ink", 2)))
    circle = ET.fromstring(figure.svg()).find("{*}circle")
    assert circle is not None
    assert (circle.get("cx"), circle.get("cy")) == ("70", "20")
    assert PRINT["s1"] in (circle.get("style") or "")
    assert "fill:var(--s1)" in figure.svg(PAGE, standalone=False)
    assert figure._repr_svg_() == figure.svg()


@pytest.mark.parametrize("theme", [0, 1, 2, PRINT])
def test_the_colours_of_policies_are_not_those_that_say_something_else(theme: int | dict[str, str]) -> None:
    css = resources.files("besttake.reporting") / "templates" / "page.css"
    roots = [dict(re.findall(r"--([\w-]+):(#\w{6})", root)) for root in css.read_text().splitlines()[:3]]
    colors = roots[theme] if isinstance(theme, int) else theme

    def hue(role: str) -> float | None:
        value = colors[role].lstrip("#")
        hue, strength, _ = colorsys.rgb_to_hsv(*(int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)))
        return hue if strength > 0.25 else None  # a grey has no hue

    meanings = [hue(role) for role in ("accent", "won", "warn") if role in colors]
    for own in filter(None, (hue(f"s{i}") for i in range(SERIES))):
        assert min(abs((own - other + 0.5) % 1 - 0.5) for other in meanings if other is not None) > 15 / 360


def test_numbers_are_written_as_people_read_them() -> None:
    assert percent(0.6417) == "64.2\N{NO-BREAK SPACE}%"
    assert points(0.112) == "+11.2"
    assert points(-0.031) == "\N{MINUS SIGN}3.1"
    assert interval(0.08, 0.143, scale=100) == "[8.0, 14.3]"
    assert interval(None, 1) == ""
    assert number(float("nan")) == ""
