"""README and start page quote what `besttake demo` says on every x86-64 CPU, to the digit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_plans import SAME_BITS

ROOT = Path(__file__).parents[2]
README, START = (ROOT / "README.md").read_text(), (ROOT / "docs" / "start.md").read_text()
HEAD = "| policy | success | what to do | gain in points | cost |"
CHEAPER = "cheaper, cannot tell yet: "
FIRST_WORD = {"base": "keep", "cooled": "cool", "retrieve": "retrieve"}


@pytest.fixture(scope="module")
def result(besttake: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the demo writes, its policies and their options by name."""
    if not SAME_BITS:
        pytest.skip("the quoted numbers are those of x86-64 CPUs")
    out = tmp_path_factory.mktemp("demo") / "run"
    printed = besttake("demo", "-q", "-o", out).stdout.replace(str(out), "runs/demo")
    policies = json.loads((out / "result.json").read_text())["policies"]
    return {"printed": printed} | {each["policy"].removeprefix("testbed:"): each for each in policies}


def rows() -> Iterator[tuple[str, list[str]]]:
    """The rows of README's table, each with its policy, which is not repeated where it has several."""
    policy = ""
    for line in README.split(HEAD)[1].split("\n\n")[0].splitlines()[2:]:
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        policy = first.strip("`") or policy
        yield policy, cells


def points(estimate: dict[str, float], digits: int) -> str:
    low, high = (f"{100 * estimate[side]:.{digits}f}" for side in ("low", "high"))
    return f"{100 * estimate['value']:+.{digits}f} [{low}, {high}]"


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "cells"), list(rows()))
def test_the_readme_quotes_the_option_that_the_demo_names(policy: str, cells: list[str], result: Any) -> None:
    success, what, gain, cost = cells
    verdict = result[policy]["verdict"]
    name = verdict["cheaper" if what.startswith(CHEAPER) else "option"]
    named = next(each for each in verdict["options"] if each["name"] == name)
    # The recommended option has the numbers that are corrected for the choice.
    own = verdict if name == verdict["option"] else named
    assert gain == points(own["gain"], 1)
    assert what.removeprefix(CHEAPER).startswith(FIRST_WORD[named["arm"]])
    assert f"{named['takes']} takes" in what
    assert f"{named['takes']} takes" in cost
    if success:
        before, after = result[policy]["headroom"]["pass_1"]["value"], verdict["success"]["value"]
        assert success == f"from {100 * before:.0f} % to {100 * after:.0f} %"


@pytest.mark.slow
def test_the_readme_quotes_all_that_the_demo_prints(result: Any) -> None:
    (quote,) = (block for block in README.split("```\n") if block.startswith("testbed:half "))
    assert [line.rstrip() for line in result["printed"].splitlines()] == quote.splitlines()
    arms, room = result["half"]["arms"]["arms"], result["half"]["headroom"]
    gains = {name: f"{100 * arms[name]['gain']['value']:.0f}" for name in ("cooled", "retrieve")}
    found, all_of_it = (f"{100 * one['value']:.0f}" for one in (arms["base"]["selected"]["gain"], room["headroom"]))
    assert f"in {100 * room['pass_n']['value']:.0f} % of starts" in README
    assert f"finds {found} of those {all_of_it} points" in README
    assert f"retrieval gains {gains['retrieve']} points, but {gains['cooled']} of these" in README


@pytest.mark.slow
def test_the_start_page_quotes_a_sentence_of_the_demo(result: Any) -> None:
    quote = " ".join(line.removeprefix(">").strip() for line in START.splitlines() if line.startswith(">"))
    policy, _, sentence = quote.removeprefix("**testbed:").partition("**: ")
    assert sentence == result[policy]["verdict"]["headline"]
