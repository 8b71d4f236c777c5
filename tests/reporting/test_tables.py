import io

from rich.console import Console

from besttake.reporting.terminal.tables import notes, table


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
