"""Parts that do not fit each other, through the commands that a user types: one line, exit code 2, nothing written."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from besttake import registry
from besttake.cli.main import app, main
from besttake.config import load_plan
from besttake.core.probe import probe
from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.pixels import Pixels
from besttake.errors import PlanError
from besttake.progress import Reporter
from besttake.takes.probing import probe_policy
from besttake.types import Demo


class Other:
    """Demonstrations of ``tasks`` by a robot with ``actions`` and ``states`` numbers, ``length`` steps long."""

    name, camera, fps, fingerprint = "other", "wrist", 20.0, "other"
    gripper_dim, gripper_open, eef_dims = 3, -1, (0, 1, 2)

    def __init__(self, tasks=("pick",), actions=4, states=20, length=30, each=2):
        self._made = [self._demo(task, number, actions, states, length) for task in tasks for number in range(each)]

    def _demo(self, task, number, actions, states, length):
        rng = np.random.default_rng(number)
        moves = rng.uniform(-1, 1, (length, actions)).astype(np.float32)
        moves[:, 3] = np.where(np.arange(length) < length // 2, -1, 1)
        return Demo(
            id=f"{task}/{number}",
            task=task,
            frames=rng.integers(0, 255, (length // 5, 48, 48, 3), np.uint8),
            frame_steps=np.arange(length // 5) * 5,
            states=rng.normal(size=(length, states)).astype(np.float32),
            actions=moves,
            instruction="",
            source={},
        )

    def __iter__(self):
        return iter(self._made)


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path / "cache"))

    def make(**shape):
        return str(build(Other(**shape), Pixels(), tmp_path / "library").path)

    return make


def said(capsys, *words):
    """The exit code and the lines on standard error of a command line."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["besttake", *map(str, words)])
        main()
    return ended.value.code, [line for line in capsys.readouterr().err.splitlines() if line.strip()]


PICK = ("--policy", "testbed:half", "--env", "testbed:pick")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"actions": 7}, "actions of 7 numbers, but testbed:half has 4"),
        ({"states": 8}, "states of 8 numbers, but testbed:half has 20"),
    ],
)
def test_the_probe_of_another_robot_is_one_line(made, capsys, shape, words):
    code, lines = said(capsys, "probe", *PICK, "--demos", made(**shape))
    assert code == 2
    assert len(lines) == 1
    assert words in lines[0]


def test_a_later_policy_that_does_not_fit_is_noticed_before_the_first_take(tmp_path, monkeypatch, capsys):
    (tmp_path / "two_armed.py").write_text(
        "from dataclasses import replace\nfrom besttake import registry\n"
        "def make():\n"
        "    policy = registry.policy('testbed:few')\n"
        "    policy.spec = replace(policy.spec, name='two-armed', action_dim=14)\n"
        "    return policy\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(
        "sys.argv",
        ["besttake", "diagnose", "--policy", "testbed:half", "--policy", "python:two_armed:make", "--env",
         "testbed:pick", "--starts", "1", "--seeds", "2", "--arms", "base", "--probe-states", "0",
         "--demos-per-task", "4", "--workers", "1", "-o", "run"],
    )  # fmt: skip
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "two-armed gives actions of 14 numbers, but testbed:pick takes 4" in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("takes/*/*"))


def test_another_robots_pictures_still_score_and_the_missing_fit_is_noted(made, tmp_path):
    out = tmp_path / "run"
    words = ["diagnose", *PICK, "--demos", made(actions=7), "--arms", "base", "--starts", "2", "--seeds", "2"]
    words += ["--workers", "1"]
    done = CliRunner().invoke(app, [*words, "-o", str(out), "-q"])
    assert done.exit_code == 0, done.output
    result = json.loads((out / "result.json").read_text())
    assert any("actions of 7 numbers" in note for note in result["notes"])


def test_rerank_asks_for_actions_and_retrieve_for_states_too(made, tmp_path, capsys):
    words = ["diagnose", *PICK, "--demos", made(states=8), "--starts", "1", "--seeds", "1", "--candidates", "2"]
    words += ["--workers", "1"]
    done = CliRunner().invoke(app, [*words, "--arms", "base,rerank", "-o", str(tmp_path / "run"), "-q"])
    assert done.exit_code == 0, done.output
    code, lines = said(capsys, *words, "--arms", "base,retrieve", "-o", tmp_path / "other")
    assert code == 2
    assert "states of 8 numbers, but testbed:pick has 20" in lines[-1]


def test_rerank_compares_no_chunks_in_other_units(made, tmp_path, capsys, monkeypatch):
    """Demonstrations in parts of a controller's range, and an env in metres: their sizes agree."""
    (tmp_path / "metric.py").write_text(
        "from dataclasses import replace\nfrom besttake import registry\n"
        "from besttake.conventions import METRIC, Convention\n"
        "def make():\n"
        "    env = registry.env('testbed:pick')\n"
        "    env.spec = replace(env.spec, name='metric', action_dim=7, convention=Convention(action=METRIC))\n"
        "    return env\n"
        "def policy():\n"
        "    made = registry.policy('testbed:half')\n"
        "    made.spec = replace(made.spec, action_dim=7)\n"
        "    return made\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    words = ("--policy", "python:metric:policy", "--env", "python:metric:make", "--demos", made(actions=7))
    code, lines = said(capsys, "diagnose", *words, "--arms", "base,rerank", "--starts", "1", "-o", "run")
    assert code == 2
    assert "1 is 5 cm or 0.5 rad, but metric takes changes of position 3 and rotation 3, in metres" in lines[-1]


@pytest.mark.parametrize("command", ["diagnose", "probe", "rank"])
def test_an_encoder_that_did_not_make_the_library_is_refused(made, tmp_path, capsys, command):
    words = {
        "diagnose": ["diagnose", *PICK, "-o", tmp_path / "run"],
        "probe": ["probe", *PICK],
        "rank": ["rank", tmp_path],
    }[command]
    if command == "rank":
        from PIL import Image

        Image.new("RGB", (48, 48)).save(tmp_path / "0.png")
    code, lines = said(capsys, *words, "--demos", made(), "--encoder", "hog")
    assert code == 2
    assert len(lines) == 1
    assert "was embedded by pixels" in lines[0]
    assert "not by hog" in lines[0]
    assert not (tmp_path / "run").exists()


def test_the_librarys_own_encoder_may_be_named(made, capsys):
    done = CliRunner().invoke(app, ["probe", *PICK, "--demos", made(), "--encoder", "pixels", "--states", "4", "-q"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", ["diagnose", "probe", "tune"])
def test_a_task_that_was_not_demonstrated_is_refused(made, tmp_path, capsys, command):
    library = made(tasks=("drawer", "push"))
    words = {
        "diagnose": ["diagnose", *PICK, "--demos", library, "-o", tmp_path / "run"],
        "probe": ["probe", *PICK, "--demos", library],
        "tune": ["library", "tune", library, *PICK],
    }[command]
    code, lines = said(capsys, *words)
    assert code == 2
    assert len(lines) == 1
    assert "0 of the" in lines[0]
    assert "demonstrations of pick" in lines[0]
    assert "drawer, push" in lines[0]
    assert not (tmp_path / "run").exists()
    assert Library.open(library).retrieval is None


def test_tuning_needs_two_demonstrations(made, capsys):
    code, lines = said(capsys, "library", "tune", made(each=1), *PICK)
    assert code == 2
    assert "1 of the 2 demonstrations of pick" in lines[0]


def test_dimensions_that_are_no_numbers_are_one_line(tmp_path, capsys):
    code, lines = said(capsys, "library", "build", "testbed:pick", "-o", tmp_path / "x", "--eef-dims", "0,x")
    assert code == 2
    assert len(lines) == 1
    assert "--eef-dims 0,x: dimensions are whole numbers" in lines[0]


def probed(library, task="pick"):
    plan = load_plan(None, {"policy": "testbed:half", "env": f"testbed:{task}", "probe_states": 50})
    env = registry.env(f"testbed:{task}")
    policy = registry.policy("testbed:half")
    found = probe_policy(policy, Library.open(library), {f"testbed:{task}": env.spec}, plan, Reporter(False))
    return found, found.tasks[f"testbed:{task}", task]


def test_only_states_with_a_whole_chunk_left_are_probed(made):
    library = made(length=30, each=3)
    found, one = probed(library)
    opened = Library.open(library)
    whole = [(d, s) for d in range(3) for s in range(0, 30, 5) if s + 10 <= 30]
    assert len(one.demonstrated) == len(whole)
    for chunk, (demo, step) in zip(one.demonstrated, whole, strict=True):
        np.testing.assert_array_equal(chunk, opened.actions[30 * demo + step : 30 * demo + step + 10])
    said = "demonstration fit of half leaves out the last 9 steps of each demonstration, which no whole chunk follows"
    assert found.notes("half") == [said]
    assert probe(one.samples, one.demonstrated, one.demo, one.floor).states == len(whole)


def test_demonstrations_shorter_than_a_chunk_and_a_missing_floor_are_said(made):
    found, one = probed(made(length=8, each=1))
    assert one.padded
    assert found.notes("half") == [
        "demonstrations of pick are shorter than a chunk of half: their ends were padded",
        "pick has no floor for half: that needs two demonstrations",
    ]


def test_the_probe_command_says_what_its_numbers_lack(made, capsys):
    words = ("probe", *PICK, "--demos", made(length=8, each=1), "--states", "4")
    code, lines = said(capsys, *words)
    assert code == 0
    assert any("their ends were padded" in line for line in lines)
    assert any("has no floor" in line for line in lines)


@pytest.mark.parametrize("text", ["noise: abc", "retrieval: {noise: [1]}", "noise: true"])
def test_a_noise_that_is_no_number_is_told(tmp_path, text):
    file = tmp_path / "plan.yaml"
    file.write_text(f"policy: testbed:half\nenv: testbed\n{text}\n")
    with pytest.raises(PlanError, match="noise is a number between 0 and 1"):
        load_plan(file, {})


def test_empty_keys_of_a_plan_mean_nothing_was_said(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text("policy: testbed:half\nenv: testbed\nretrieval:\nprior: 0.2\nrule:\n")
    assert load_plan(file, {}).retrieval.given() == {"prior": 0.2}


def test_dials_and_rule_go_into_what_a_file_says_of_retrieval(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text("policy: testbed:half\nenv: testbed\nretrieval: {rule: frame, gripper_gating: true, lead: 2}\n")
    flags = load_plan(file, {"prior": 0.2, "rule": None})
    assert flags.retrieval.given() == {"rule": "frame", "gripper_gating": True, "lead": 2, "prior": 0.2}
    file.write_text("policy: testbed:half\nenv: testbed\nnoise: 0.4\nrule: current\n")
    assert load_plan(file, {"rule": "next"}).retrieval.given() == {"noise": 0.4, "rule": "next"}
