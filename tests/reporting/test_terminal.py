from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from besttake.progress import SafeConsole
from besttake.reporting.table import Column, Entry, Table
from besttake.reporting.terminal import Part, diagnosis, layout, notes
from besttake.result import Result


def printed(parts: list[Part], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(layout(parts, width))
    return console.export_text().splitlines()


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


def test_colours_are_off_when_piped(run: Path, besttake: Any) -> None:
    assert "\x1b" not in besttake("report", run, "--format", "md").stdout
    with SafeConsole().capture() as capture:
        SafeConsole().print(layout(diagnosis(Result.load(run / "result.json")), 80))
    assert "\x1b" not in capture.get()
