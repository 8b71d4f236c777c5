"""Flags, YAML keys and docs are one definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from besttake.cli import diagnose, main
from besttake.cli.flags import key_table
from besttake.config import Plan, Retrieval, load_plan


def options(command: str) -> dict[str, Any]:
    return {p.name: p for p in get_command(main.app).commands[command].params}  # type: ignore[attr-defined]


def test_the_tables_in_the_docs_are_made_from_the_plan() -> None:
    text = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    for fields in (Plan.model_fields, Retrieval.model_fields):
        assert "\n".join(key_table(fields)) in text, "python -m besttake.cli.flags"


def test_every_key_of_a_plan_is_a_flag_with_help() -> None:
    flags = options("diagnose")
    for name in (*Plan.model_fields, "noise", "prior", "rule"):
        if name != "retrieval":
            assert flags[name].opts == [f"--{name.replace('_', '-')}"]
            assert flags[name].help


def test_flags_that_were_not_used_leave_the_file_alone_and_zero_is_a_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("policy: p\nenv: e\nseed: 5\nprobe_states: 7\ntrust_remote_code: true\ntask: [a, b]\n")
    plans: list[Plan] = []
    monkeypatch.setattr(diagnose, "run", lambda plan, *_, **__: plans.append(plan))
    arguments = ["diagnose", str(path), "--seed", "0", "--probe-states", "0", "--noise", "0", "--policy", "x"]
    main.app([*arguments, "--policy", "y", "--trust", str(path)], standalone_mode=False)
    (plan,) = plans
    assert (plan.policy, plan.seed, plan.probe_states, plan.retrieval.noise) == (("x", "y"), 0, 0, 0)
    assert plan.trust_remote_code
    assert plan.task == ("a", "b")
    assert plan == load_plan(path, {"seed": 0, "probe_states": 0, "noise": 0, "policy": ["x", "y"]})
