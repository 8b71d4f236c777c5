"""The terminal, Markdown, HTML, notebook and JSON say the same about a verdict, for every code that there is."""

from __future__ import annotations

import json
import re
from functools import cache
from html import unescape
from typing import NamedTuple, get_args

import numpy as np
import pytest
from rich.console import Console

from besttake.core import verdict as core
from besttake.core.estimate import Estimate, Finding, Forecast
from besttake.measure.cell import cell as measure_cell
from besttake.measure.cells import ArmTakes, CellData, Settings
from besttake.measure.looks import looks_at
from besttake.measure.scores import ScoreName
from besttake.measure.verdict import judge
from besttake.reporting import html, markdown, words
from besttake.reporting.takes import PageTakes
from besttake.reporting.terminal.verdict import verdict_table
from besttake.result import ActNow, Cell, CellPath, Cost, Menu, Option, Relation, Result

WORTH = 0.03
ANSWERS = {
    "yes": Finding("yes", Estimate(0.112, 0.08, 0.143, 60), 0.001, 1.0),
    "no": Finding("no", Estimate(0.004, -0.01, 0.018, 60), 0.4, 0.01),
    "open": Finding("undecided", Estimate(0.045, 0.006, 0.09, 60), 0.08, 0.6),
    "matched": Finding("yes", Estimate(0.15, 0.1, 0.2, 60), 0.001, 1.0),
}


class Case(NamedTuple):
    """The answers to the questions, and the code and reason of each part of the verdict that they give."""

    answers: str
    reuse: str
    retrieve: str = "not-measured not-run"
    combine: str = "not-measured not-run"
    window: str = "full"
    deterministic: bool = False
    seeds: int = 3


CASES = {
    "select": Case("headroom=yes gain=yes", "select gain"),
    "unranked": Case("headroom=yes gain=no", "unranked not-ranked"),
    "none": Case("headroom=no gain=no retrieve=no cooled=no content=no", "none no-headroom", "none small-gain"),
    "small": Case("headroom=open gain=no retrieve=no", "none small-gain", "none small-gain"),
    "open": Case(
        "headroom=yes gain=open retrieve=open cooled=open content=open combine=open",
        "undecided open", "undecided open", "undecided open",
    ),
    "no score": Case("headroom=yes cooled=yes", "undecided no-score", "cool cooled-only"),
    "identical": Case(
        "headroom=no gain=no retrieve=open", "none identical-takes", "undecided no-control", deterministic=True
    ),
    "one take": Case("headroom=open cooled=open", "undecided one-take", "undecided cooled-only", seeds=1),
    "leak": Case(
        "headroom=yes gain=yes shortest=matched retrieve=yes cooled=no content=yes", "select gain", "retrieve content"
    ),
    "episode leak": Case(
        "headroom=yes gain=yes shortest=matched retrieve=yes cooled=yes content=no",
        "undecided length-leak", "cool cooling", window="episode",
    ),
    "any chunk": Case(
        "headroom=yes gain=yes retrieve=yes cooled=no content=open beyond_shuffled=no",
        "select gain", "retrieve together",
    ),
    "combine": Case(
        "headroom=yes gain=yes retrieve=yes cooled=no content=yes combine=yes retrieve_selection=yes",
        "select gain", "retrieve content", "yes composes",
    ),
    "by cooling": Case(
        "headroom=yes gain=yes retrieve=no cooled=yes content=open combine=yes combine_content=no",
        "select gain", "cool cooling", "yes composes",
    ),
    "cool or retrieve": Case(
        "headroom=yes gain=no retrieve=open cooled=yes content=open combine_cooled=yes cooled_selection=yes",
        "unranked not-ranked", "cool-or-retrieve choice", "yes composes",
    ),
    "retrieve or cool": Case(
        "headroom=yes gain=no retrieve=yes cooled=open content=open combine=open combine_cooled=no",
        "unranked not-ranked", "cool-or-retrieve choice", "undecided open",
    ),
    "no pair": Case(
        "headroom=yes gain=yes combine=no retrieve_selection=yes", "select gain", combine="no small-gain"
    ),
    "nothing to select": Case(
        "headroom=yes gain=yes cooled=yes combine_cooled=yes cooled_selection=no",
        "select gain", "cool cooled-only", "no small-gain",
    ),
    "neither pair": Case(
        "headroom=yes gain=yes retrieve=yes cooled=yes content=no combine=yes retrieve_selection=no "
        "combine_cooled=no cooled_selection=yes",
        "select gain", "cool cooling", "no small-gain",
    ),
    "one take of two arms": Case(
        "headroom=open retrieve=yes cooled=yes content=open combine=yes combine_cooled=yes",
        "undecided one-take", "cool-or-retrieve choice", "not-measured one-take", seeds=1,
    ),
}  # fmt: skip


@cache
def measured(seeds: int, window: str, deterministic: bool) -> tuple[CellData, Cell]:
    """Random takes and their numbers, which many cases share: to measure them takes longer than all that follows."""
    rng = np.random.default_rng(0)
    y = (rng.random((60, seeds)) < 0.5).astype(float)
    takes = ArmTakes(y, np.full(y.shape, 50.0), {ScoreName("manifold", window): rng.normal(size=y.shape)})
    units = tuple(("env", "task", i) for i in range(60))
    data = CellData("p", "env", "*", units, {"base": takes}, (window,), "manifold", 180, 0, deterministic=deterministic)
    return data, measure_cell(data, Settings(seeds, seeds, WORTH))


def cell_of(name: str, group: str = "*", looked: tuple[int, ...] = ()) -> Cell:
    """A measured cell whose questions are answered as the case says."""
    case = CASES[name]
    data, cell = measured(case.seeds, case.window, case.deterministic)
    findings = {key: ANSWERS[code] for key, code in (pair.split("=") for pair in case.answers.split())}
    parts = {
        "reuse": Forecast(40, 210, 500),
        "retrieve": Forecast(120, None, 500),
        "combine": Forecast(None, None, 500),
    }
    verdict = judge(
        data, findings, case.seeds, looks_at(data.units, (60, case.seeds), [(count, case.seeds) for count in looked]),
        [(count, case.seeds) for count in (*looked, 60)],
        further=lambda decided: {p: f for p, f in parts.items() if getattr(decided, p).reason in ("open", "choice")},
    )  # fmt: skip
    return words.worded(cell.model_copy(update={"verdict": verdict, "group": group}), WORTH)


def option(arm: str, scorer: str | None, answer: str, *, shown: bool = False, not_worse: bool = False) -> Option:
    takes, finding = 3 if scorer else 1, ANSWERS[answer]
    name = f"{arm}, best of 3 by {scorer}" if scorer else arm
    return Option(
        name=name, arm=arm, scorer=scorer, takes=takes, gain=finding.estimate, answer=finding.answer,
        p_not_above_zero=finding.p_not_above_zero, shown=shown, not_worse=not_worse,
    )  # fmt: skip


MENUS = {
    "act": Menu(
        answer="act", best="cooled, best of 3 by coverage", cheaper="cooled",
        options=[
            option("cooled", None, "yes", shown=True, not_worse=True),
            option("cooled", "coverage", "matched", shown=True),
            option("retrieve?rule=frame", None, "open"),
        ],
    ),
    "none": Menu(answer="none", best=None, cheaper=None, options=[option("cooled", None, "no")]),
    "undecided": Menu(
        answer="undecided", best=None, cheaper=None, options=[option("retrieve", None, "open")],
        now=ActNow(option="retrieve", gain=0.045, chance=0.93),
    ),
    "leave": Menu(
        answer="undecided", best=None, cheaper=None, options=[option("retrieve", None, "open")],
        now=ActNow(option=None, gain=0.0, chance=1.0),
    ),
}  # fmt: skip


def result_of(name: str) -> Result:
    cost = Cost(takes=180, errors=0, steps=1, policy_calls=1, frames_scored=1, frames_encoded=1, seconds={})
    return Result(
        besttake="", created="", command="", digest="", plan={}, versions={}, library=None, worth=WORTH,
        cells=[cell_of(name, "tasks"), cell_of(name, "other")], policies=[cell_of(name)],
        relation=Relation(reason="few"), cost=cost,
    )  # fmt: skip


def flat(text: str) -> str:
    """The words of a page; what stands in backticks elsewhere is code there."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?code>", "", text))).split())


@pytest.mark.parametrize("name", CASES)
def test_everything_that_shows_a_verdict_says_the_same(name: str) -> None:
    result = result_of(name)
    policy = result.policies[0]
    assert policy.verdict
    console = Console(width=4000, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(verdict_table(result, 4000))
    terminal = " ".join(capture.get().split())
    note = re.sub(r"\\(.)", r"\1", unescape(markdown.render(result)))
    page = flat(html.render(result, PageTakes([])))
    notebook = result._repr_html_()
    document = json.loads(result.model_dump_json())["policies"][0]["verdict"]
    headline = " ".join(words.headline(policy).split())
    needs = words.needs_text(policy)
    for shown in (terminal, " ".join(note.split()), page, flat(notebook)):
        assert headline in shown
        assert shown.count(needs) >= 1
    assert document["headline"] == policy.verdict.headline
    assert terminal.count(needs) >= len(result.policies) + len(result.cells)
    for answer in words.answers(policy, WORTH):
        assert document[answer.name]["because"] == answer.because
        assert " ".join(answer.sentence.split()) in page
        assert " ".join(answer.sentence.split()) in " ".join(note.split())
        assert " ".join(answer.because.replace("`", "").split()) in page
    assert len(notebook) < 3000


@pytest.mark.parametrize("name", MENUS)
def test_everything_that_shows_a_menu_says_the_same(name: str) -> None:
    result = result_of("open")
    policy = result.policies[0]
    assert policy.verdict
    verdict = policy.verdict.model_copy(update={"menu": MENUS[name], "headline": ""})
    policy = words.worded(policy.model_copy(update={"verdict": verdict}), WORTH)
    result = result.model_copy(update={"policies": [policy]})
    console = Console(width=4000, no_color=True, highlight=False)
    with console.capture() as capture:
        console.print(verdict_table(result, 4000))
    note = re.sub(r"\\(.)", r"\1", unescape(markdown.render(result)))
    shown = [" ".join(text.split()) for text in (capture.get(), note, flat(html.render(result, PageTakes([]))))]
    lines = words.menu_lines(policy, WORTH)
    assert lines
    for line in (words.headline(policy), *lines):
        assert line.endswith((".", ")"))
        assert not re.search(r"None|nan|  |\.\.", line)
        assert all(" ".join(line.split()) in text for text in shown)


def test_the_headline_names_the_best_option_its_cost_and_a_cheaper_one_that_is_not_shown_to_be_worse() -> None:
    cell = cell_of("open")
    assert cell.verdict
    verdict = cell.verdict.model_copy(update={"menu": MENUS["act"], "headline": ""})
    text = words.headline(cell.model_copy(update={"verdict": verdict}))
    assert text.startswith("Cool the sampling, run 3 takes and keep the best by coverage: +15.0 points")
    assert "3\N{MULTIPLICATION SIGN} the executions" in text
    assert "Cheaper and not shown to be worse: cool the sampling, +11.2 points" in text
    assert "Whether retrieving beats cooling is open" in text


def test_a_best_option_that_does_not_follow_the_answer_about_demonstrations_says_why() -> None:
    """With one take cooling may gain more, with several retrieval: a reader would see a contradiction."""
    option_of = {one: option(one, "coverage", "matched", shown=True) for one in ("retrieve", "cooled")}
    lines = {}
    for arm, best in option_of.items():
        menu = Menu(answer="act", best=best.name, cheaper=None, options=list(option_of.values()))
        lines[arm] = words.menu_lines(with_menu(cell_of("by cooling"), menu), WORTH)
    assert lines["retrieve"][0] == (
        "The best option retrieves although the answer about demonstrations is to cool: that answer compares single \
takes, where cooling gains +11.2 points [8.0, 14.3] and retrieval +0.4 points [−1.0, 1.8]; with 3 takes to \
pick from, retrieval has the highest estimate."
    )
    assert "although" not in " ".join(lines["cooled"])


@pytest.mark.parametrize("which", ["best", "cheaper"])
def test_a_gain_that_is_shown_though_its_interval_holds_zero_says_why(which: str) -> None:
    cell, menu = cell_of("open"), MENUS["act"]
    assert cell.verdict
    usual = menu.option(getattr(menu, which))
    assert usual
    wide = usual.model_copy(update={"gain": Estimate(0.2, -0.04, 0.44, 40), "shown": True})
    lines = {}
    for one in (usual, wide):
        options = [one if option.name == usual.name else option for option in menu.options]
        verdict = cell.verdict.model_copy(update={"menu": menu.model_copy(update={"options": options})})
        lines[one is wide] = " ".join(words.menu_lines(cell.model_copy(update={"verdict": verdict}), WORTH))
    assert "Where an interval holds 0 and the gain is shown all the same" in lines[True]
    assert "holds 0" not in lines[False]


def test_two_pairs_are_one_sentence_with_one_capital() -> None:
    cell = cell_of("open")
    assert cell.verdict
    one = Finding("undecided", Estimate(0.05, -0.02, 0.12, 40))
    questions = {**cell.verdict.questions, **{name: one for names in core.PAIRS.values() for name in names}}
    combine = cell.verdict.combine.model_copy(update={"answer": "undecided", "reason": "open", "arm": ""})
    verdict = cell.verdict.model_copy(update={"questions": questions, "combine": combine})
    text = words.because("combine", cell.model_copy(update={"verdict": verdict}), WORTH)
    assert text.startswith("Against selection alone, ")
    assert "; against selection alone, " in text


@pytest.mark.parametrize(
    ("case", "part", "library"),
    [
        ("leak", "retrieve", True), ("retrieve or cool", "retrieve", True), ("combine", "combine", True),
        ("episode leak", "retrieve", False), ("cool or retrieve", "combine", False), ("select", "reuse", False),
    ],
)  # fmt: skip
def test_whatever_retrieves_says_that_it_needs_a_library(case: str, part: str, library: bool) -> None:
    answer = next(answer for answer in words.answers(cell_of(case), WORTH) if answer.name == part)
    assert ("and a library to search" in answer.sentence) == library


def test_one_line_answers_whether_to_keep_the_shortest_take() -> None:
    lines = {name: words.shortest(cell_of(name)) for name in ("leak", "select", "episode leak")}
    assert lines["select"] == ""
    for name in ("leak", "episode leak"):
        assert lines[name].startswith("Should you keep the shortest take? Only if something tells you when")
        assert "+15.0 points" in lines[name]


@pytest.mark.parametrize("name", CASES)
def test_a_case_gives_the_codes_that_it_is_made_for(name: str) -> None:
    verdict = cell_of(name).verdict
    for part in words.PARTS:
        decision = getattr(verdict, part)
        assert f"{decision.answer} {decision.reason}" == getattr(CASES[name], part)


def test_the_cases_cover_every_code_and_every_warning() -> None:
    verdicts = [cell_of(name).verdict for name in CASES]
    for part, codes in (("reuse", core.Reuse), ("retrieve", core.Retrieve), ("combine", core.Combine)):
        assert {getattr(verdict, part).answer for verdict in verdicts} == set(get_args(codes))
    reasons = {getattr(verdict, part).reason for verdict in verdicts for part in words.PARTS}
    assert reasons == set(get_args(core.Reason))
    for warning in ("leak", "any_chunk", "by_cooling"):
        assert {getattr(verdict, warning) for verdict in verdicts} == {True, False}


@pytest.mark.parametrize("name", CASES)
def test_sentences_are_whole_and_carry_no_stray_values(name: str) -> None:
    cell = cell_of(name)
    for answer in words.answers(cell, WORTH):
        for text in (answer.because, answer.sentence, words.headline(cell)):
            assert text.endswith(".")
            assert text[0].isupper() or text[0] == "`" or text[0].isdigit()
            assert not re.search(r"None|nan|\n|  |\.\.", text)


def test_sentences_name_the_control_that_decided() -> None:
    def why(name: str, part: str) -> str:
        return words.because(part, cell_of(name), WORTH)

    assert "oracle" in why("none", "reuse")
    assert "random take" in why("select", "reuse")
    assert "`cooled`" in why("by cooling", "retrieve")
    assert "selection alone" in why("combine", "combine")
    assert "`shuffled`" in why("any chunk", "retrieve")
    assert "shortest" in why("leak", "reuse")


def test_the_forecast_is_the_same_everywhere() -> None:
    cell = cell_of("open")
    for answer in words.answers(cell, WORTH):
        more = words.further(getattr(cell.verdict, answer.name).further)
        assert more in answer.because
        assert more in answer.sentence
        assert (more in words.headline(cell)) == (answer.name != "combine")


@pytest.mark.parametrize(
    ("forecast", "text"),
    [
        (None, ""),
        (Forecast(40, 210, 500), "40 to 210 more starts are likely to settle it"),
        (Forecast(7, 7, 500), "about 7 more starts are likely to settle it"),
        (Forecast(1, 1, 500), "1 more start is likely to settle it"),
        (Forecast(120, None, 500), "120 or more further starts are needed, perhaps over 500"),
        (Forecast(None, None, 80), "not likely to be settled within 80 more starts"),
        (Forecast(None, None, 0), "there are no more starts"),
    ],
)
def test_a_forecast_is_a_range_or_says_that_it_will_not_do(forecast: Forecast | None, text: str) -> None:
    assert words.further(forecast) == text


def test_a_gain_that_the_interval_shows_and_the_test_does_not_comes_with_its_p_value() -> None:
    assert "gives p = 0.08" in words.because("reuse", cell_of("open"), WORTH)


def test_a_later_look_says_so() -> None:
    assert "Looked at 3 times" in words.because("reuse", cell_of("open", looked=(20, 40)), WORTH)
    assert "Looked at" not in words.because("reuse", cell_of("open"), WORTH)


def test_a_result_of_before_keeps_its_sentences() -> None:
    cell = cell_of("select")
    old = cell.verdict.model_copy(
        update={
            "reuse": cell.verdict.reuse.model_copy(update={"reason": "", "because": "As it was."}),
            "headline": "Old.",
        }
    )
    cell = cell.model_copy(update={"verdict": old})
    assert words.because("reuse", cell, WORTH) == "As it was."
    assert words.headline(cell) == "Old."


def test_an_answer_that_later_starts_moved_shows_both_estimates() -> None:
    cell = cell_of("select")
    assert cell.verdict
    finding = Finding(
        "yes", Estimate(0.021, 0.004, 0.05, 200), 0.001, 1.0, when_answered=Estimate(0.062, n=40)
    )  # fmt: skip
    reuse = cell.verdict.reuse.model_copy(update={"gain": finding.estimate})
    verdict = cell.verdict.model_copy(
        update={"questions": {**cell.verdict.questions, "gain": finding}, "reuse": reuse, "headline": ""}
    )
    cell = words.worded(cell.model_copy(update={"verdict": verdict}), WORTH)
    for text in (words.because("reuse", cell, WORTH), words.headline(cell)):
        assert "shown after 40 starts, at +6.2 points; all starts give +2.1, below what is worth acting on" in text
    assert "all starts give" not in words.because("reuse", cell_of("select"), WORTH)


def test_cooling_without_retrieval_is_judged_and_a_retrieval_that_the_check_left_out_says_so() -> None:
    alone = cell_of("one take")
    assert words.needs_text(alone).endswith("demos: undecided")
    assert "whether to cool is undecided" in words.headline(alone)
    cell = cell_of("select")
    assert cell.verdict
    assert words.needs_text(cell).endswith("demos: not measured")
    left = cell.model_copy(update={"verdict": cell.verdict.model_copy(update={"left_out": True})})
    assert words.needs_text(left).endswith("demos: left out by the check")
    answer = words.answers(left, WORTH)[1]
    assert answer.badge == "left out by the check"
    assert "left retrieval out" in answer.sentence
    assert "left out" in answer.because


def test_nothing_is_said_of_what_was_not_tried() -> None:
    measured, alone = cell_of("none"), cell_of("none")
    assert words.headline(measured) == (
        "Leave it as it is: neither more takes nor retrieval nor calmer sampling is worth it."
    )
    assert alone.verdict
    only = {name: alone.verdict.questions[name] for name in ("headroom", "gain")}
    retrieve = alone.verdict.retrieve.model_copy(update={"answer": "not-measured", "reason": "not-run"})
    verdict = alone.verdict.model_copy(update={"questions": only, "retrieve": retrieve, "headline": ""})
    text = words.headline(alone.model_copy(update={"verdict": verdict}))
    assert text == "Leave it as it is: more takes are not worth it; retrieval was not measured."


def test_where_both_do_not_add_up_the_sentence_names_the_part_that_gains_too_little() -> None:
    def said(name: str) -> tuple[str, str]:
        answer = words.answers(cell_of(name), WORTH)[2]
        return answer.sentence, answer.because

    sentence, why = said("nothing to select")
    assert sentence == "Selection on top of cooling does not gain 3 points (+0.4 points [\N{MINUS SIGN}1.0, 1.8])."
    assert "cooled takes gains +11.2 points [8.0, 14.3], and against cooling alone +0.4 points" in why
    assert why.endswith("1.8], less than the 3 points worth acting on.")
    sentence, _ = said("neither pair")
    assert sentence.startswith("Neither retrieval nor cooling adds up with selection")
    assert "on top of selection does not gain 3 points (+0.4" in said("no pair")[0]


def test_retrieval_that_was_not_run_is_not_said_to_be_open() -> None:
    cell = cell_of("one take")
    assert cell.verdict
    text = words.headline(with_menu(cell, MENUS["act"]))
    assert "retriev" not in text.lower()
    assert "Whether cooling alone gains is undecided" in text
    assert "hether retrieving beats cooling is open" in words.headline(with_menu(cell_of("open"), MENUS["act"]))


def test_two_arms_that_gain_are_shown_to_gain_and_one_is() -> None:
    assert "] and `cooled` +11.2 points [8.0, 14.3] are shown to gain" in words.because(
        "retrieve", cell_of("one take of two arms"), WORTH
    )
    assert "+11.2 points [8.0, 14.3] is shown to gain" in words.because("retrieve", cell_of("cool or retrieve"), WORTH)


def test_a_menu_of_one_option_that_is_ruled_out_is_said_in_the_singular() -> None:
    assert words.menu_lines(with_menu(cell_of("none"), MENUS["none"]), WORTH)[0] == (
        "The only option is ruled out: it does not gain 3 points."
    )


def test_a_run_that_leaves_something_open_does_not_say_that_it_saved_takes() -> None:
    def said(stopped: str, unsettled: list[str]) -> str:
        path = CellPath(stopped=stopped, unsettled=unsettled, takes=90, paper_takes=1500, settled={}, points={})
        return words.path(cell_of("select").model_copy(update={"path": path}))

    decided, hopeless = said("decided", []), said("hopeless", ["retrieve"])
    assert decided.startswith("Everything asked was decided after 90 takes; the paper's 500 starts")
    assert decided.endswith("were saved.")
    assert hopeless.startswith("What is left of budget and starts will hardly decide it; stopped after 90 takes, with")
    assert "saved" not in hopeless


def with_menu(cell: Cell, menu: Menu) -> Cell:
    assert cell.verdict
    return cell.model_copy(update={"verdict": cell.verdict.model_copy(update={"menu": menu, "headline": ""})})


def test_without_a_score_the_headline_tells_the_headroom_and_what_is_missing() -> None:
    cell = cell_of("no score")
    assert cell.verdict
    retrieve = cell.verdict.retrieve.model_copy(update={"answer": "not-measured", "reason": "not-run"})
    verdict = cell.verdict.model_copy(update={"retrieve": retrieve, "menu": None, "headline": ""})
    cell = cell.model_copy(update={"verdict": verdict})
    headroom = words.answers(cell, WORTH)[0]
    assert re.match(
        r"3 takes hold \+.* of headroom, but nothing was measured that picks among them\.$", words.headline(cell)
    )
    assert "which of them to keep is not known" in headroom.sentence
    assert "need demonstrations" in headroom.because


def test_the_shortest_take_is_not_spoken_of_where_takes_have_no_length() -> None:
    outcomes = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]] * 6)
    units = tuple(("env", "task", i) for i in range(12))
    for lengths, asked in ((np.full(outcomes.shape, np.nan), False), (50 - outcomes, True)):
        data = CellData(
            "p", "env", "*", units, {"base": ArmTakes(outcomes, lengths, {})}, ("common",), "manifold", 36, 0
        )
        cell = measure_cell(data, Settings(3, 3, WORTH))
        assert bool(words.shortest(cell)) == asked
