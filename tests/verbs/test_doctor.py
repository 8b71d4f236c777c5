from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import metadata
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from besttake import registry
from besttake.demos.build import Options, build
from besttake.encoders.hog import Hog
from besttake.reporting import terminal
from besttake.reporting.terminal import layout
from besttake.types import Demo
from besttake.verbs import doctor as module
from besttake.verbs.doctor import doctor


def test_the_base_install_works_and_every_extra_is_told() -> None:
    tour = doctor()
    assert tour.healthy
    base = [check for check in tour.checks if check.group == "base"]
    assert {"python", "testbed"} <= {check.name for check in base}
    names = {check.name for check in tour.checks if check.group == "extras"}
    assert names == {extra.name for extra in module.EXTRAS}
    for check in tour.checks:
        if not check.works:
            assert check.mend, check.name


def test_every_extra_of_the_package_is_looked_for() -> None:
    offered = set(metadata("besttake").get_all("Provides-Extra") or ()) - {"dev", "docs"}
    assert offered == {extra.name for extra in module.EXTRAS}


class SevenActions:
    """Two demonstrations of the testbed, as of a robot with seven actions."""

    name, camera, fps, fingerprint = "seven", "wrist", 20.0, "seven"
    gripper_dim, gripper_open, eef_dims = 3, -1, (0, 1, 2)

    def __iter__(self) -> Iterator[Demo]:
        for demo in islice(registry.demos("testbed:pick"), 2):
            yield replace(demo, actions=np.pad(demo.actions, ((0, 0), (0, 3))))


def test_demonstrations_of_another_robot_do_not_fit_and_the_command_exits_with_1(tmp_path: Path, call) -> None:
    build(SevenActions(), Hog(), tmp_path / "library", Options(stride=20))
    code, written, _ = call("doctor", "--demos", tmp_path / "library", "--env", "testbed:pick")
    assert code == 1
    assert "actions of 7 numbers, but testbed:pick has 4" in " ".join(written.split())


def test_a_misfit_is_one_line_that_lists_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    env = registry.env("testbed")
    policy = registry.policy("testbed:half")

    class Other:
        spec = replace(policy.spec, cameras=("overhead",), action_dim=7)

    monkeypatch.setattr(registry, "policy", lambda uri, **_: Other())
    result = module.pair("other:policy", "testbed")
    (problem,) = result.problems
    assert "overhead" in problem
    assert ", ".join(env.spec.cameras) in problem
    assert "overhead (MISSING)" in {line.what: line.policy for line in result.lines}["cameras"]


def test_a_policy_that_cannot_be_built_says_why() -> None:
    result = module.pair("testbod:half", None)
    assert "did you mean testbed" in result.problems[0]
    assert not module.DoctorResult((), result).healthy


def test_three_columns_say_whether_a_library_can_be_used_with_a_policy_in_an_env() -> None:
    result = doctor("testbed:half", "testbed:pick", "testbed:pick")
    assert result.healthy
    assert result.pairing is not None
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(layout(terminal.doctor(result), 300))
    text = console.export_text()
    assert "They fit." in text
    assert {line.what: line for line in result.pairing.conventions}["picture size"].env == "48 x 48"
    assert "-1 open, +1 closed" in text
    assert "base, cooled, rerank, retrieve, shuffled" in text
    gripper = next(line for line in result.pairing.conventions if line.what == "gripper command")
    assert gripper.data == gripper.env == "-1 open, +1 closed"
    assert gripper.policy == "unknown"
