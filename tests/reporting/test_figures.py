import xml.etree.ElementTree as ET
from pathlib import Path

from besttake.reporting.drawing import PAGE, PRINT, Figure, Mark, Polyline
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


def test_numbers_are_written_as_people_read_them() -> None:
    assert percent(0.6417) == "64.2\N{NO-BREAK SPACE}%"
    assert points(0.112) == "+11.2"
    assert points(-0.031) == "\N{MINUS SIGN}3.1"
    assert interval(0.08, 0.143, scale=100) == "[8.0, 14.3]"
    assert interval(None, 1) == ""
    assert number(float("nan")) == ""
