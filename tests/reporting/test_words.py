"""The terminal, Markdown, HTML, notebook and JSON say the same about a verdict, with the numbers of the result."""

from __future__ import annotations

import json
import re
from functools import cache
from html import unescape

import numpy as np
import pytest
from rich.console import Console

from besttake.core.stats import Estimate
from besttake.measure.arrays import ArmTakes, CellData, Settings
from besttake.measure.cell import measure_cell
from besttake.measure.looks import load_history
from besttake.reporting import html, markdown, result_tables, words
from besttake.reporting.numbers import estimate_points, percent, points
from besttake.reporting.takes import PageTakes
from besttake.reporting.terminal import diagnosis, layout
from besttake.result import Cell, Cost, Relation, Result
from besttake.takes.scores import ScoreName

WORTH = 0.03
RATES = {
    "act": {"base": 0.4, "cooled": 0.75, "retrieve": 0.5},
    "leave": {"base": 1.0, "cooled": 1.0},
    "open": {"base": 0.5, "cooled": 0.55, "retrieve": 0.5},
    "alone": {"base": 0.5},
    "no score": {"base": 0.4, "cooled": 0.45},
    "one take": {"base": 0.5, "cooled": 0.6},
    "identical": {"base": 0.5, "retrieve": 0.6},
}
"""Success of each arm, by case; the score is right more often than not."""


def data_of(name: str, starts: int = 80, seeds: int = 3) -> CellData:
    rng = np.random.default_rng(3)
    arms = {}
    for arm, rate in RATES[name].items():
        y = (rng.random((200, seeds)) < rate)[:starts].astype(float)
        if name == "identical":
            y = np.repeat(y[:, :1], seeds, axis=1)
        s = y + (5.0 if name == "open" else 1.5) * rng.normal(size=(200, seeds))[:starts]
        scores = {} if name == "no score" else {ScoreName("manifold", "full"): s}
        arms[arm] = ArmTakes(y, np.full(y.shape, 50.0), scores)
    units = tuple(("env", "task", i) for i in range(starts))
    planned = starts * seeds * len(arms)
    return CellData("p", "env", "*", units, arms, ("full",), "manifold", planned, 0, deterministic=name == "identical")


@cache
def cell_of(name: str, starts: int = 80) -> Cell:
    seeds = 1 if name == "one take" else 3
    return words.with_headline(measure_cell(data_of(name, starts, seeds), Settings(seeds, seeds, WORTH, "manifold")))


def with_verdict(cell: Cell, **changes: object) -> Cell:
    assert cell.verdict
    return cell.model_copy(update={"verdict": cell.verdict.model_copy(update={"headline": "", **changes})})


def result_of(cell: Cell) -> Result:
    cost = Cost(takes=180, errors=0, steps=1, policy_calls=1, frames_scored=1, frames_encoded=1, seconds={})
    own = [cell.model_copy(update={"group": group}) for group in ("tasks", "other")]
    return Result(
        besttake="", created="", command="", digest="", plan={}, versions={}, library=None, worth=WORTH,
        cells=own, policies=[cell], relation=Relation(reason="few"), cost=cost,
    )  # fmt: skip


def flat(text: str) -> str:
    """The words of a page; what stands in backticks elsewhere is code there."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?code>", "", text))).split())


def shown(result: Result) -> dict[str, str]:
    """A result as each reader sees it, white space aside."""
    console = Console(width=4000, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(layout(diagnosis(result, verbose=True), 4000))
    texts = {
        "terminal": capture.get(),
        "markdown": re.sub(r"\\(.)", r"\1", unescape(markdown.render(result))),
        "page": flat(html.report_page(result, PageTakes([])).html()),
        "notebook": flat(result._repr_html_()),
    }
    return {name: " ".join(text.replace("`", "").split()) for name, text in texts.items()}


def plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


@pytest.mark.parametrize("name", RATES)
def test_everything_that_shows_a_verdict_says_the_same(name: str) -> None:
    cell = cell_of(name)
    assert cell.verdict
    result = result_of(cell)
    texts = shown(result)
    for text in texts.values():
        assert plain(words.headline(cell)) in text
    assert all(words.needs_text(cell) in texts[name] for name in ("markdown", "page", "notebook"))
    assert json.loads(result.model_dump_json())["policies"][0]["verdict"]["headline"] == cell.verdict.headline
    for line in words.details(cell):
        assert all(plain(line) in texts[name] for name in ("terminal", "markdown", "page"))
    for answer in words.answers(cell, WORTH):
        assert all(plain(answer.sentence) in texts[name] for name in ("markdown", "page"))


@pytest.mark.parametrize("optimism", [0.0, 0.021, -0.004])
def test_the_corrected_gain_is_the_recommended_options_wherever_options_are_listed(optimism: float) -> None:
    cell = cell_of("act")
    assert cell.verdict
    own = cell.verdict.recommended
    less = {
        name: Estimate(e.value - optimism, e.low - optimism, e.high, e.n)  # type: ignore[operator]
        for name, e in (("gain", own.gain), ("success", own.success))
    }
    cell = words.with_headline(with_verdict(cell, optimism=optimism, **less))
    gain, success = estimate_points(less["gain"]), plain(percent(less["success"].value))
    lines = [line for line in words.details(cell) if "corrected" in line]
    assert [f"by {points(-optimism)} points" in line for line in lines] == [True] * bool(optimism)
    texts = shown(result_of(cell))
    assert gain in words.headline(cell)
    number = estimate_points(less["gain"], "")
    assert f"| {own.name} | 3 | {success} " in texts["markdown"]
    assert f"{number} | shown | recommended |" in texts["markdown"]
    assert f"{own.name} 3 {success}" in texts["page"]
    assert texts["page"].count(number) >= 2, "the figure and the table"


def test_a_best_estimate_that_is_no_gain_once_it_is_corrected_is_not_advised() -> None:
    cell = with_verdict(cell_of("act"), answer="open", optimism=0.6, gain=Estimate(-0.1, -0.3, 0.4, 80))
    assert cell.verdict
    assert words.promises_nothing(cell.verdict)
    assert "is no gain" in words.headline(cell)
    assert " -> " not in result_tables.success(cell)
    (row,) = result_tables.summary(result_of(cell), [cell]).rows
    assert (getattr(row[2], "text", row[2]), row[4]) == ("leave it as it is", "not decided")


@pytest.mark.parametrize(
    ("name", "question", "answer", "reason"),
    [
        ("identical", "takes", "no", "identical-takes"), ("one take", "takes", "open", "one-take"),
        ("no score", "takes", "open", "no-score"), ("identical", "demonstrations", "open", "no-control"),
        ("alone", "demonstrations", "not measured", "not-run"), ("leave", "takes", "no", "no-headroom"),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_an_ordinary_one_says_why(name: str, question: str, answer: str, reason: str) -> None:
    cell = cell_of(name)
    assert cell.verdict
    own = cell.verdict.answers[question]
    assert (own.answer, own.reason) == (answer, reason)
    lines = {line.name: line for line in words.answers(cell, WORTH)}
    assert lines[question].badge == answer
    assert ("less than 3 points" in lines[question].sentence) == (reason == "no-headroom")


def extended(first: int, then: int) -> Cell:
    """The cell of a run that had ``first`` starts when it was first judged, and has ``then`` now."""
    settings = Settings(3, 3, WORTH, "manifold")
    before = result_of(words.with_headline(measure_cell(data_of("act", first), settings)))
    return words.with_headline(measure_cell(data_of("act", then), settings, load_history(before, settings)))


def test_an_extended_run_keeps_its_answers_and_shows_both_estimates() -> None:
    before, now = cell_of("act"), extended(80, 120)
    assert before.verdict
    assert now.verdict
    assert (now.verdict.answer, now.verdict.option) == ("act", before.verdict.option)
    takes = words.answers(now, WORTH)[0]
    assert takes.badge == before.verdict.takes.answer
    assert takes.badge == "yes"
    assert estimate_points(before.verdict.takes.gain) in takes.sentence
    assert estimate_points(now.verdict.takes.gain) in takes.sentence
    assert "7.5 %" in words.error_rate(now)
    assert words.error_rate(before) == ""
    if before.verdict.within:
        standing = next(line for line in words.details(now) if "stands" in line)
        assert "80 starts" in standing
        assert estimate_points(before.verdict.gain) in standing


def test_looking_again_at_the_same_takes_changes_nothing() -> None:
    settings = Settings(3, 3, WORTH, "manifold")
    cell = extended(80, 120)
    again = words.with_headline(measure_cell(data_of("act", 120), settings, load_history(result_of(cell), settings)))
    assert again == cell


def test_a_gain_that_length_explains_carries_a_warning() -> None:
    cell = with_verdict(cell_of("act"), leak=True).model_copy(update={"window": "episode"})
    assert cell.selectors
    assert "shortest" in words.length_warning(cell)
    assert words.length_warning(cell) in words.details(cell)
    assert not words.length_warning(cell.model_copy(update={"window": "full"})), (
        "a window that hides the length needs no warning"
    )
