"""The command line answers bad input with one line, exit code 2, and nothing left behind."""

from __future__ import annotations

import json
import sys
from asyncio import CancelledError
from pathlib import Path
from typing import NoReturn

import pytest

from besttake.cli import main as cli
from besttake.errors import BestTakeError

COMMANDS = ("demo", "diagnose", "probe", "report", "rank", "ingest", "plan", "compare", "serve", "reproduce", "doctor")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["besttake", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


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
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, *arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("besttake: ")
    assert message in lines[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["diagnose", "library build", "reproduce"])
def test_help_puts_options_into_groups_and_names_their_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert call(monkeypatch, *command.split(), "--help") == 0
    text = capsys.readouterr().out
    assert "\nPolicy, environment and data:\n" in text
    assert text.index("If the data does not say:") < text.index("\nOptions:\n")
    assert "<" not in text
    assert "x>=" not in text
    assert "…\n" not in text


def test_the_help_fits_one_screen_and_names_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert {*COMMANDS, "runs", "library", "score", "export"} <= {line.split()[0] for line in lines if line}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert call(monkeypatch, command, "--help") == 0
    assert f"  besttake {command}" in capsys.readouterr().out


def test_a_library_is_built_shown_and_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "library")
    assert call(monkeypatch, "library", "build", "testbed:drawer", "-o", out, "--max-demos", "3", "-q") == 0
    assert "3 demonstrations" in capsys.readouterr().out
    assert call(monkeypatch, "library", "show", out, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["demos"] == 3
    assert call(monkeypatch, "library", "check", out) == 0
    assert "is undamaged" in capsys.readouterr().out.replace("\n", " ")
    (tmp_path / "library" / "embeddings.npy").write_bytes(b"x")
    assert call(monkeypatch, "library", "check", out) == 2
    assert "build the library again" in capsys.readouterr().err


@pytest.mark.parametrize("end", [SystemExit, GeneratorExit, CancelledError])
def test_code_of_others_that_leaves_is_one_line_and_no_code_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], end: type[BaseException]
) -> None:
    def leaving(*_: object, **__: object) -> NoReturn:
        raise end(3)

    monkeypatch.setattr("besttake.verbs.plan.plan", leaving)
    assert call(monkeypatch, "plan", "--pass1", "0.6") == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"besttake: {end.__name__}: 3 (test_main.py:")


def test_strict_exits_with_3_while_a_verdict_is_open(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path
) -> None:
    plan = ["--policy", "testbed:half", "--env", "testbed:drawer", "--starts", "1", "--seeds", "2", "--arms", "base"]
    plan += ["--demos-per-task", "4", "--probe-states", "0", "--workers", "1"]
    assert call(monkeypatch, "diagnose", *plan, "-o", str(tmp_path / "run"), "-q", "--strict") == 3
    assert "not decided" in capsys.readouterr().out
    assert call(monkeypatch, "diagnose", *plan, "-o", str(tmp_path / "run"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["cells"][0]["group"] == "drawer"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("leave it out with `skip_bad`", "leave it out with --skip-bad"),
        ("the rule `next`, from `besttake runs show x`", "the rule `next`, from `besttake runs show x`"),
        ("name it with `json`, or `out`", "name it with `json`, or --out"),
    ],
)
def test_errors_name_options_as_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, shown: str
) -> None:
    def fail(*_: object) -> None:
        raise BestTakeError(text)

    monkeypatch.setattr("besttake.verbs.runs.summarise", fail)
    assert call(monkeypatch, "runs", "show", "x") == 2
    assert capsys.readouterr().err == f"besttake: {shown}\n"
