from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from besttake.progress import SafeConsole
from besttake.reporting import words
from besttake.reporting.terminal.verdict import verdict_table
from besttake.result import Cell, Result

LONG = "lerobot:an-organisation-with-a-name/pi0_libero_finetuned_v2"


def shown(run: Path, width: int) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(verdict_table(Result.load(run / "result.json"), width))
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_long_name_leaves_room_for_the_verdict(synthetic: ModuleType, tmp_path: Path, width: int) -> None:
    synthetic.build(tmp_path / "run", synthetic.Shape(policies=(LONG,), tasks=("t",), starts=12))
    head, *lines = shown(tmp_path / "run", width)
    assert "needs" in head
    first = lines[0] if width == 200 else lines[1]  # below the second line of the head
    name = first.split()[0]
    assert len(name) <= max(20, width // 4)
    assert name.startswith("lerobo")
    assert name.endswith("v2")
    assert words.needs_text(Result.load(tmp_path / "run" / "result.json").policies[0]) in first


@pytest.mark.parametrize("width", [60, 80, 100, 130, 400])
def test_no_column_is_dropped_at_any_width(run: Path, width: int) -> None:
    lines = shown(run, width)
    result = Result.load(run / "result.json")
    head, table = " ".join(lines[:4]), " ".join(" ".join(lines).split())
    for title in ("pass@1", "pass@3", "select", "shortest", "cooled", "retrieve", "content", "DFE/floor", "needs"):
        assert title in head
    for cell in (*result.policies, *result.cells):
        assert cell.arms is not None
        assert f"{round(100 * cell.arms.content.value):+d} [" in table
        assert words.needs_text(cell) in table
    assert all(len(line.rstrip()) <= width for line in lines)
    if width == 80:  # a row of the table has two lines, and so has its head; a long need may take a third
        cells = (*result.policies, *result.cells)
        assert 0 <= [bool(line.split()) for line in lines].index(False) - 2 * (1 + len(cells)) <= len(cells)


def test_an_arm_of_ones_own_has_a_column(run: Path) -> None:
    result = Result.load(run / "result.json")

    def with_mine(cell: Cell) -> Cell:
        arms = cell.arms.model_copy(update={"arms": {**cell.arms.arms, "mine:x": cell.arms.arms["cooled"]}})
        return cell.model_copy(update={"arms": arms})

    changed = result.model_copy(
        update={"cells": list(map(with_mine, result.cells)), "policies": list(map(with_mine, result.policies))}
    )
    for width in (80, 400):
        console = Console(width=width, no_color=True)
        with console.capture() as capture:
            console.print(verdict_table(changed, width))
        assert "mine:x" in capture.get()
        assert "mine:x" not in " ".join(shown(run, width))


def test_colours_are_off_when_piped(run: Path, besttake: Any) -> None:
    assert "\x1b" not in besttake("report", run, "--format", "md").stdout
    with SafeConsole().capture() as capture:
        SafeConsole().print(verdict_table(Result.load(run / "result.json"), 80))
    assert "\x1b" not in capture.get()


def test_every_policy_has_its_sentence(run: Path) -> None:
    text = " ".join(" ".join(shown(run, 200)).split())
    for policy in Result.load(run / "result.json").policies:
        assert policy.verdict is not None
        assert " ".join(f"{policy.policy}: {policy.verdict.headline}".split()) in text
