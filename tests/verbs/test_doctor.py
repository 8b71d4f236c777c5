from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from besttake.reporting.terminal.doctor import render
from besttake.verbs import doctor as module
from besttake.verbs.doctor import DoctorResult, Extra, doctor


def printed(result: module.DoctorResult, path: Path) -> str:
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(render(result))
    return console.export_text()


@pytest.fixture(scope="module")
def machine() -> module.DoctorResult:
    return doctor("testbed:half", "testbed")


def test_a_notebook_shows_every_check_and_how_the_parts_fit(machine: DoctorResult) -> None:
    html = machine._repr_html_()
    assert machine.pairing is not None
    assert html.count("<tr>") == 1 + len(machine.checks) + len(machine.pairing.lines)
    assert "more rows" not in html
    assert "<td>pairing</td><td>cameras</td><td></td><td>policy: " in html
    assert "; env: " in html


def test_the_base_install_works_and_every_extra_is_told(machine: module.DoctorResult) -> None:
    assert machine.healthy
    base = [check for check in machine.checks if check.group == "base"]
    assert {"python", "testbed", "encoder pixels"} <= {check.name for check in base}
    names = {check.name for check in machine.checks if check.group == "extras"}
    assert names == {extra.name for extra in module.EXTRAS}
    for check in machine.checks:
        if not check.works:
            assert check.mend, check.name


def test_every_extra_of_the_package_is_looked_for() -> None:
    from importlib.metadata import metadata

    offered = set(metadata("besttake").get_all("Provides-Extra") or ()) - {"dev"}
    assert offered == {extra.name for extra in module.EXTRAS}


def test_what_is_missing_names_the_extra_to_install(tmp_path: Path) -> None:
    check = module._extra(Extra("vision", "pictures", ("no_such_module_here",), "no-such"))
    assert not check.works
    assert check.mend == "pip install 'besttake[vision]'"


def test_an_extra_that_is_there_but_broken_is_told_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_library.py").write_text("raise ImportError('libfoo.so.1: cannot open')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check = module._extra(Extra("vision", "pictures", ("broken_library",), "no-such"))
    assert not check.works
    assert "libfoo.so.1" in check.detail


def test_the_fit_of_a_policy_and_an_env_is_shown(machine: module.DoctorResult, tmp_path: Path) -> None:
    assert machine.pairing is not None
    assert machine.pairing.problem == ""
    text = printed(machine, tmp_path / "log")
    assert "They fit." in text
    assert "pick, push" in text
    assert "base, cooled, rerank, retrieve, shuffled" in text
    assert json.loads(machine.to_json())["pairing"]["problem"] == ""


def test_a_misfit_is_one_line_that_lists_both_sides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dataclasses import replace

    from besttake import registry

    env = registry.env("testbed")
    policy = registry.policy("testbed:half")

    class Other:
        spec = replace(policy.spec, cameras=("overhead",), action_dim=7)

    monkeypatch.setattr(registry, "policy", lambda uri: Other())
    result = module._pairing("other:policy", "testbed")
    assert "overhead" in result.problem
    assert ", ".join(env.spec.cameras) in result.problem
    assert "overhead (MISSING)" in {line[0]: line[1] for line in result.lines}["cameras"]


def test_a_policy_that_cannot_be_built_says_why(tmp_path: Path) -> None:
    result = module._pairing("testbod:half", None)
    assert "did you mean testbed" in result.problem
    assert not module.DoctorResult((), result).healthy
