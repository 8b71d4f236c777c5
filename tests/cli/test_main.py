"""The command line answers bad input with one line, exit code 2, and nothing left behind."""

from __future__ import annotations

import json
from asyncio import CancelledError
from pathlib import Path
from typing import NoReturn

import pytest

from besttake.errors import BestTakeError

COMMANDS = ("demo", "diagnose", "probe", "report", "rank", "ingest", "plan", "compare", "serve", "reproduce", "doctor")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diagnoze"], "No such command 'diagnoze'"),
        (["diagnose"], "--policy and --env are missing; e.g. --policy testbed:half --env testbed"),
        (["diagnose", "--policy", "testbed:half"], "--env is missing; e.g. --env testbed"),
        (["diagnose", "--policy", "policy.py", "--env", "testbed"], "did you mean python:policy:NAME"),
        (["diagnose", "--policy", "org/pi0", "--env", "testbed"], "did you mean lerobot:org/pi0"),
        (["diagnose", "--policy", "testbed:half", "--env", "Reach-v0"], "did you mean gym:Reach-v0"),
        (["diagnose", "--policy", "python:polcy:make", "--env", "testbed"], "there is no polcy.py in "),
        (["diagnose", "--policy", "python:json:lods", "--env", "testbed"], "json has no 'lods'; did you mean 'loads'?"),
        (["serve", "--policy", "testbed:half", "--env", "testbed"], "--env needs a --session"),
        (["diagnose", "--policy", "policy.py:make", "--env", "testbed"], "did you mean python:policy:make?"),
        (["diagnose", "--policy", "testbed:half", "--env", "gym:Fetch-v4"], "gym:MODULE:Fetch-v4"),
        (["diagnose", "--policy", "testbed:half", "--env", "nowhere"], "no env of kind 'nowhere'"),
        (["diagnose", "--policy", "testbed:x", "--env", "testbed"], "testbed:x"),
        (["diagnose", "--policy", "testbed:half", "--env", "testbed", "--arms", "base,hot"], "arms"),
        (["diagnose", "--policy", "testbed:half", "--env", "testbed", "--seeds", "0"], "--seeds"),
        (["diagnose", "missing.yaml"], "missing.yaml: No such file"),
        (["diagnose", "--policy", "testbed:half", "--env", "testbed", "--worth", "0.03"], "did you mean 3?"),
        (["export", "nowhere", "--csv"], "is not a run"),
        (["export", "nowhere"], "say what to export: --csv"),
        (["runs", "list", "nowhere"], "nowhere is not a directory"),
        (["report", "nowhere"], "result.json is missing"),
        (["report", "nowhere", "--markdown"], "--markdown"),
        (["report", "nowhere", "--format", "pdf"], "choose html, md or json"),
        (["library", "check", "nowhere"], "not a library"),
        (["library", "build", "magic:x", "-o", "out"], "no source of demonstrations of kind 'magic'"),
        (["library", "build", "testbed", "-o", "out", "--pad", "round"], "choose hold or repeat"),
        (["ingest", "nowhere.csv", "--column", "success"], "--column success: write NAME=COLUMN"),
        (["serve", "--policy", "testbed:half", "--cooled", "--retrieve", "x"], "exclude each other"),
        (["serve", "--policy", "testbed:half", "--host", "0.0.0.0"], "give a --token"),
        (["serve", "--policy", "testbed:half", "--protocol", "smoke"], "protocol 'smoke' is unknown"),
    ],
)
def test_bad_input_is_one_line(call, monkeypatch, tmp_path: Path, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, written = call(*arguments)
    assert code == 2
    (line,) = written.strip().splitlines()
    assert line.startswith("besttake: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["diagnose", "library build", "reproduce"])
def test_help_puts_options_into_groups_and_names_their_values(call, command: str) -> None:
    code, text, _ = call(*command.split(), "--help")
    assert code == 0
    assert "\nPolicy, environment and data:\n" in text
    assert text.index("If the data does not say:") < text.index("\nOptions:\n")
    assert "<" not in text
    assert "x>=" not in text
    assert "…\n" not in text


def test_the_help_fits_one_screen_and_names_every_command(call) -> None:
    lines = call("--help")[1].splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert {*COMMANDS, "runs", "library", "score", "export"} <= {line.split()[0] for line in lines if line}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(call, command: str) -> None:
    assert f"  besttake {command}" in call(command, "--help")[1]


def test_a_library_is_built_shown_and_checked(call, tmp_path: Path) -> None:
    out = tmp_path / "library"
    assert "3 demonstrations" in call("library", "build", "testbed:drawer", "-o", out, "--max-demos", "3", "-q")[1]
    assert json.loads(call("library", "show", out, "--json")[1])["demos"] == 3
    assert call("library", "check", out)[0] == 0
    (out / "embeddings.npy").write_bytes(b"x")
    code, _, written = call("library", "check", out)
    assert code == 2
    assert "build the library again" in written


@pytest.mark.parametrize("end", [SystemExit, GeneratorExit, CancelledError])
def test_code_of_others_that_leaves_is_one_line_and_no_code_of_ours(
    call, monkeypatch, end: type[BaseException]
) -> None:
    def leaving(*_: object, **__: object) -> NoReturn:
        raise end(3)

    monkeypatch.setattr("besttake.verbs.plan.plan", leaving)
    code, _, written = call("plan", "--pass1", "0.6")
    assert code == 1
    (line,) = written.strip().splitlines()
    assert line.startswith(f"besttake: {end.__name__}: 3 (test_main.py:")


def test_strict_exits_with_3_while_a_verdict_is_open(call, tmp_path: Path) -> None:
    plan = ["--policy", "testbed:half", "--env", "testbed:drawer", "--starts", "1", "--seeds", "2", "--arms", "base"]
    plan += ["--demos-per-task", "4", "--probe-states", "0", "--workers", "1"]
    code, written, _ = call("diagnose", *plan, "-o", tmp_path / "run", "-q", "--strict")
    assert code == 3
    assert "not decided" in written
    code, written, _ = call("diagnose", *plan, "-o", tmp_path / "run", "--json")
    assert code == 0
    assert json.loads(written)["cells"][0]["group"] == "drawer"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("leave it out with `skip_bad`", "leave it out with --skip-bad"),
        ("the rule `next`, from `besttake runs show x`", "the rule `next`, from `besttake runs show x`"),
        ("name it with `json`, or `out`", "name it with `json`, or --out"),
    ],
)
def test_errors_name_options_as_flags(call, monkeypatch, text: str, shown: str) -> None:
    def fail(*_: object) -> None:
        raise BestTakeError(text)

    monkeypatch.setattr("besttake.verbs.runs.summarise", fail)
    assert call("runs", "show", "x") == (2, "", f"besttake: {shown}\n")


def test_a_warning_of_another_library_is_shown_once(besttake, module, monkeypatch, tmp_path: Path) -> None:
    """Python forgets what it has shown when the filters change, as when an env is made."""
    text = "import warnings\nsaid = 'out of date'\nfor _ in range(3):\n"
    module("old_policy", f"{text}    with warnings.catch_warnings():\n        pass\n    warnings.warn(said)\n")
    monkeypatch.chdir(tmp_path)
    done = besttake("diagnose", "--policy", "python:old_policy:make", "--env", "testbed", check=False)
    assert done.stderr.count("out of date") == 1
