from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from besttake import registry
from besttake.config import Plan
from besttake.core.retrieve import RetrievalConfig
from besttake.verbs.diagnose.record import Session, _choose


@pytest.mark.parametrize(("named", "said"), [({"arms": "base,retrieve"}, True), ({}, False)])
def test_an_arm_that_was_asked_for_and_cannot_be_run_is_said_at_once(named: dict[str, Any], said: bool) -> None:
    lines: list[str] = []
    policy = SimpleNamespace(spec=replace(registry.policy("testbed:half").spec, warm_start=False))
    plan = Plan(policy="testbed:half", env="testbed", **named)
    setup = SimpleNamespace(plan=plan, envs={}, library=None, retrieval=RetrievalConfig())
    session = Session(cast("Any", SimpleNamespace(note=lines.append)))
    _choose("testbed:half", cast("Any", policy), cast("Any", setup), session)
    assert any("no retrieve arm, it cannot begin from a given chunk" in line for line in lines) == said
