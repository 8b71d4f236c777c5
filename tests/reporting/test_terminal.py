from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from besttake.progress import SafeConsole
from besttake.reporting import words
from besttake.reporting.outputs import diagnosis
from besttake.reporting.table import Column, Entry, Table
from besttake.reporting.terminal import Part, layout, notes
from besttake.result import Cell, Result

LONG = "lerobot:an-organisation-with-a-name/pi0_libero_finetuned_v2"


def printed(parts: list[Part], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(layout(parts, width))
    return console.export_text().splitlines()


def shown(run: Path, width: int) -> list[str]:
    return printed(diagnosis(Result.load(run / "result.json")), width)


def test_names_in_a_table_are_text_and_never_markup() -> None:
    table = Table("", ["policy", Column("starts", right=True)], [("[red]odd[/red]", Entry("12", "best"))])
    lines = printed([table, *notes(["[bold]said"])], 80)
    assert lines[0].split() == ["policy", "starts"]
    assert lines[1].split() == ["[red]odd[/red]", "12"]
    assert lines[1].rstrip().find("12") + 2 == lines[0].rstrip().find("starts") + len("starts")
    assert "note: [bold]said" in lines[-1]


def test_a_narrow_table_loses_its_extra_columns_from_the_right_and_cuts_nothing_else_off() -> None:
    extra = [Column("agreement", extra=True), Column("headroom", extra=True)]
    table = Table("", ["policy", *extra], [("testbed:half", "33.3 % [3.8, 83.1]", "+33.3")])
    assert "headroom" in printed([table], 44)[0]
    assert printed([table], 36)[0].split() == ["policy", "agreement"]
    assert printed([table], 24)[0].split() == ["policy"]
    assert "".join(line.strip() for line in printed([table], 8)) == "policytestbed:half"


@pytest.mark.parametrize("width", [80, 120, 400])
def test_a_row_of_the_diagnosis_takes_one_line(run: Path, synthetic: ModuleType, tmp_path: Path, width: int) -> None:
    synthetic.build(tmp_path / "run", synthetic.Shape(policies=(LONG,), tasks=("t", "u"), starts=12))
    for place in (run, tmp_path / "run"):
        lines, result = shown(place, width), Result.load(place / "result.json")
        cells = [*result.policies, *result.cells]
        assert lines[1 + len(cells)].strip() == ""
        for title in ("pass@1", "pass@3", "needs", "gain"):
            assert title in lines[0]
        for cell in cells:
            assert any(words.needs_text(cell) in line for line in lines[1 : 1 + len(cells)])
        assert all(len(line.rstrip()) <= width for line in lines)


def test_an_arm_of_ones_own_has_a_column(run: Path) -> None:
    result = Result.load(run / "result.json")

    def with_mine(cell: Cell) -> Cell:
        arms = cell.arms.model_copy(update={"arms": {**cell.arms.arms, "mine:x": cell.arms.arms["cooled"]}})
        return cell.model_copy(update={"arms": arms})

    changed = result.model_copy(
        update={"cells": list(map(with_mine, result.cells)), "policies": list(map(with_mine, result.policies))}
    )
    assert "mine:x" in printed(diagnosis(changed), 400)[0]
    assert "mine:x" not in shown(run, 400)[0]


def test_colours_are_off_when_piped(run: Path, besttake: Any) -> None:
    assert "\x1b" not in besttake("report", run, "--format", "md").stdout
    with SafeConsole().capture() as capture:
        SafeConsole().print(layout(diagnosis(Result.load(run / "result.json")), 80))
    assert "\x1b" not in capture.get()


def test_every_policy_has_its_sentence(run: Path) -> None:
    text = " ".join(" ".join(shown(run, 200)).split())
    for policy in Result.load(run / "result.json").policies:
        assert policy.verdict is not None
        assert " ".join(f"{policy.policy}: {policy.verdict.headline}".split()) in text
