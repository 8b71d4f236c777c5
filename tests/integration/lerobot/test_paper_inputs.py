"""What someone with pi0 and LIBERO data types: README's commands from beginning to end, in the real simulator.

The data have the layouts that people have (tests/demos/writers.py), the checkpoint is a tiny one of the real pi0 class.
No option names a camera or a column. Horizons and counts are small, and the encoder is one that needs no download.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import writers
from typer.testing import CliRunner

from besttake.cli.main import app
from besttake.envs.libero.harness import EVALUATIONS
from besttake.envs.libero.install import import_libero, locate
from besttake.result import Result

ROOT = Path(__file__).resolve().parents[3]
ENV = "libero:spatial?task=0&horizon=10"
INSTRUCTION = "pick up the black bowl between the plate and the ramekin and place it on the plate"
SETS = {
    "HuggingFaceVLA": writers.hugging_face_libero,
    "openpi": writers.openpi_libero,
    "IPEC-COMMUNITY": writers.ipec_libero,
}


@pytest.fixture(scope="module", autouse=True)
def _places(tmp_path_factory):
    shared = Path(os.environ.get("BESTTAKE_SHARED", ROOT.parent / "shared")) / "assets"
    if not shared.is_dir():
        pytest.skip(f"no test assets at {shared}; set BESTTAKE_SHARED")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BESTTAKE_LIBERO_ASSETS", os.environ.get("BESTTAKE_LIBERO_ASSETS", str(shared / "libero")))
        patch.setenv("BESTTAKE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def written(name, directory):
    """The URI of a set of three made-up demonstrations of the task, in the layout ``name``."""
    episodes = [
        replace(writers.episode(number), task=INSTRUCTION.replace(" ", "_"), instruction=INSTRUCTION)
        for number in range(3)
    ]
    return f"lerobot:{SETS[name](directory / 'data', episodes)}"


def besttake(*words, columns=250):
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, [*words, "-q"] if words[0] != "doctor" else list(words))
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.stdout


@pytest.mark.parametrize("layout", SETS)
def test_diagnose_and_reproduce_run_from_beginning_to_end(checkpoint, layout, tmp_path):
    data = written(layout, tmp_path)
    policy, few = f"lerobot:{checkpoint('pi0')}?width=2", ("--starts", "1", "--encoder", "pixels", "--workers", "1")
    run = tmp_path / "diagnosis"
    probed = ("--probe-states", "4", "--check-states", "4", "--seeds", "2")
    besttake("diagnose", "--policy", policy, "--env", ENV, "--demos", data, "-o", str(run), *few, *probed)
    result = Result.load(run / "result.json")
    (cell,) = result.cells
    # Whether arms that retrieve are worth a take is for the check to say; this policy is a random one.
    arms = set(cell.arms.arms)
    assert {"base", "cooled"} <= arms <= {"base", "cooled", "shuffled", "retrieve"}
    assert (cell.takes, cell.errors) == (2 * len(arms), 0)
    assert "retrieve" in arms or any("not run; name them in `arms`" in note for note in result.notes)
    assert cell.selectors.scored["coverage"]["full"].success.value == 0
    # The policy was asked at demonstrated states, shown both of its cameras.
    assert cell.dfe.states == 4
    assert cell.dfe.floor.value > 0
    assert result.library["tasks"] == {INSTRUCTION: 3}

    told = json.loads(
        besttake(
            "reproduce", "table1", "--policy", f"pi0={policy}", "--env", f"spatial={ENV}", "--demos", data,
            "-o",
            str(tmp_path / "table1"), *few, "--stride", "4", "--probe-states", "4", "--arms", "base,retrieve", "--json",
        )
    )  # fmt: skip
    here = {one["column"]: one["here"]["value"] for one in told["numbers"]}
    assert here["pass@1"] == here["retrieve"] == 0
    assert any("the library has 3 demonstrations of a task, the paper's 50" in text for text in told["left_protocol"])


def test_the_lerobot_convention_is_that_of_lerobot_eval():
    import_libero(locate())
    from lerobot.envs.configs import LiberoEnv
    from lerobot.envs.libero import TASK_SUITE_MAX_STEPS

    ours, theirs = EVALUATIONS["lerobot"], LiberoEnv()
    assert {f"libero_{suite}": steps for suite, steps in ours.horizons.items()} == TASK_SUITE_MAX_STEPS
    assert (theirs.observation_height, theirs.observation_width) == (ours.rendered, ours.given)


def test_doctor_says_in_one_screen_that_they_fit(checkpoint, tmp_path):
    data = written("IPEC-COMMUNITY", tmp_path)
    words = ("doctor", "--demos", data, "--policy", f"lerobot:{checkpoint('pi0')}", "--env", "libero:spatial")
    shown = besttake(*words)
    assert "They fit." in shown
    assert "position 3, axis-angle 3, fingers 2" in shown
    assert len(shown.splitlines()) < 50
    narrow = besttake(*words, columns=80)
    (sizes,) = (" ".join(line.split()) for line in narrow.splitlines() if line.startswith("picture size"))
    assert sizes == "picture size 256 x 256 64 x 64 360 x 360"
    assert len(narrow.splitlines()) < 60
    # No word of the table is cut.
    for cell in ("wrist_image", "agentview (found),", "axis-angle", "turned by 180"):
        assert cell in narrow
