from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from besttake.reporting.terminal.verdict import verdict_table
from besttake.result import Result

LONG = "lerobot:an-organisation-with-a-name/pi0_libero_finetuned_v2"


def shown(run: Path, width: int) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(verdict_table(Result.load(run / "result.json"), width))
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_long_name_leaves_room_for_the_verdict(synthetic: ModuleType, tmp_path: Path, width: int) -> None:
    synthetic.build(tmp_path / "run", synthetic.Shape(policies=(LONG,), tasks=("t",), starts=12))
    head, first, *_ = shown(tmp_path / "run", width)
    assert "needs" in head
    name = first.split()[0]
    assert len(name) <= max(20, width // 4)
    assert name.startswith("lerobo")
    assert name.endswith("v2")
    answer = Result.load(tmp_path / "run" / "result.json").policies[0].verdict
    assert answer is not None
    assert answer.reuse.answer in first


def test_every_policy_has_its_sentence(run: Path) -> None:
    text = " ".join(" ".join(shown(run, 200)).split())
    for policy in Result.load(run / "result.json").policies:
        assert policy.verdict is not None
        assert " ".join(f"{policy.policy}: {policy.verdict.headline}".split()) in text
