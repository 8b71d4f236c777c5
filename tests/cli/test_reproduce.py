"""What ``besttake reproduce`` does with takes that failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from besttake.cli import main as cli
from besttake.verbs import reproduce as paper
from besttake.verbs.reproduce import ReproduceResult


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [False, True])
def test_failed_takes_end_a_reproduction_with_an_error_unless_they_are_allowed(
    allowed: bool, tmp_path: Path, monkeypatch: Any, capsys: Any, cache: Path
) -> None:
    made = paper.reproduce

    def with_failures(*arguments: Any, **options: Any) -> ReproduceResult:
        whole = made(*arguments, **options)
        cost = whole.result.cost.model_copy(update={"errors": 2})
        return replace(whole, result=whole.result.model_copy(update={"cost": cost}))

    monkeypatch.setattr(paper, "reproduce", with_failures)
    words = [
        "besttake", "reproduce", "table1", "--policy", "pi0=testbed:half", "--env", "spatial=testbed:pick", "--encoder",
        "hog", "--starts", "2", "--seeds", "2", "--arms", "base", "--probe-states", "0", "-o", str(tmp_path / "run"),
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", [*words, *(["--allow-failed"] if allowed else [])])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert (stop.value.code or 0) == (0 if allowed else 1), capsys.readouterr().err
    if not allowed:
        assert "2 takes failed" in capsys.readouterr().err
