import io

from rich.console import Console
from rich.text import Text

from besttake.reporting.terminal.tables import Column, notes, stacked, table


def test_names_in_a_table_are_text_and_never_markup() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(table(("policy", "starts"), [("[red]odd[/red]", 12)], right=("starts",)), *notes(["[bold]said"]))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].split() == ["policy", "starts"]
    assert lines[1].split() == ["[red]odd[/red]", "12"]
    assert lines[1].rstrip().endswith("12")
    assert lines[1].rstrip().find("12") + 2 == lines[0].rstrip().find("starts") + len("starts")
    assert "note: [bold]said" in lines[-1]


def test_a_narrow_table_folds_and_cuts_nothing_off() -> None:
    console = Console(file=io.StringIO(), width=24)
    console.print(table(("policy", "agreement", "headroom"), [("testbed:half", "33.3 % [3.8, 83.1]", "+33.3")]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert sorted("".join(text.split())) == sorted("policyagreementheadroomtestbed:half33.3%[3.8,83.1]+33.3")


def test_a_stacked_row_continues_below_its_own_column_and_cuts_nothing_off() -> None:
    console = Console(file=io.StringIO(), width=60)
    columns = [Column("pass@1", [Text("34"), Text("")]), Column("select", [Text("+23 [16,30]"), Text("")], second=True)]
    needs = Column("needs", [Text("retrieve?rule=next, best of 3 takes of them all (open)"), Text("nothing measured")])
    console.print(stacked("policy / task", [Text("testbed:half"), Text("b")], columns, needs, 60))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    column = lines[0].index("needs")
    assert all(len(line) <= 60 for line in lines)
    assert lines[3].startswith(" " * column)
    assert lines[3][column] != " "
    assert "".join(lines[2][column:].split() + lines[3].split()) == "".join(needs.texts[0].plain.split())
    assert len(lines) == 6, "no line for a row whose second columns are empty"
