"""A run can be trusted: same plan, same bits, whatever happens to it on the way."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from besttake.cli import interrupt
from besttake.errors import ComponentError, Interrupted, RunError
from besttake.takes.key import Row
from besttake.takes.store import Store

PLAN = """
policy: [testbed:half, testbed:mid]
env: testbed
task: pick
arms: [base, retrieve]
starts: 3
seeds: 2
probe_states: 8
check_states: 16
demos_per_task: 6
"""
TAKES = 2 * 2 * 3 * 2
SHAKY = """
from besttake.testbed.env import make as testbed

def make():
    env = testbed("pick")
    reset = env.reset
    def shaky(start):
        if start.index == 1:
            raise RuntimeError("the arm fell off")
        reset(start)
    env.reset = shaky
    return env
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def reference(plan: Path, besttake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    besttake("diagnose", plan, "-o", out, "--workers", "2", "--batch", "16", "-q")
    return out


@pytest.fixture(scope="module")
def undisturbed(reference: Path, besttake) -> str:
    """The digest of a run that nothing disturbed."""
    return digest(reference, besttake)


def digest(run: Path, besttake) -> str:
    shown = json.loads(besttake("runs", "show", run, "--json").stdout)
    assert (shown["done"], shown["missing"], shown["failed"], shown["damaged"]) == (TAKES, 0, 0, 0)
    return str(shown["digest"])


def kept(run: Path) -> dict[object, Row]:
    try:
        with Store.open(run) as store:
            return {row.key: row for row in store.rows()}
    except RunError as error:
        assert "no takes yet" in str(error) or "not a run" in str(error)
        return {}


@pytest.mark.parametrize(
    ("workers", "batch"), [(1, 5), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 16), (2, 1)))]
)
def test_workers_and_batch_change_no_bit(
    plan: Path, undisturbed: str, besttake, tmp_path: Path, workers: int, batch: int
) -> None:
    besttake("diagnose", plan, "-o", tmp_path / "run", "--workers", str(workers), "--batch", str(batch), "-q")
    assert digest(tmp_path / "run", besttake) == undisturbed


@pytest.mark.slow
def test_a_run_killed_at_five_random_moments_ends_with_the_same_bits(
    plan: Path, undisturbed: str, besttake, tmp_path: Path
) -> None:
    out, rng = tmp_path / "run", random.Random(5)
    command = [sys.executable, "-m", "besttake", "diagnose", str(plan), "-o", str(out), "-q"]
    moments = sorted(rng.sample(range(1, TAKES - 8), 5))
    seen: dict[object, Row] = {}
    for moment in moments:
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and len(kept(out)) < moment:
            time.sleep(0.02)
        assert process.poll() is None, "the run ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        now = kept(out)
        assert seen.items() <= now.items(), "a finished take was lost or made twice"
        seen = now
    besttake("diagnose", plan, "-o", out, "-q")
    assert seen.items() <= kept(out).items()
    assert digest(out, besttake) == undisturbed
    assert not list(out.glob("**/*.tmp"))


def test_five_times_ctrl_c_ends_with_one_line_and_the_run_goes_on(
    plan: Path, undisturbed: str, besttake, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "besttake", "diagnose", str(plan), "-o", str(out), "-q"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A test run started in the background of a shell ignores SIGINT, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while process.poll() is None and len(kept(out)) < 3:
        time.sleep(0.02)
    before = kept(out)
    for _ in range(5):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert said.splitlines() == ["besttake: interrupted; finished takes are kept, run the same command to go on"]
    assert before.items() <= kept(out).items()
    besttake("diagnose", plan, "-o", out, "-q")
    assert digest(out, besttake) == undisturbed


SAMPLES_TO_THE_END = """
import atexit, sys, threading
from besttake.cli.interrupt import leave
from besttake.testbed import scene
from besttake.testbed.engine import mujoco

def sample(begun, model):
    data = mujoco.MjData(model)
    while True:
        mujoco.mj_step(model, data)
        begun.set()

atexit.register(print, "tidied up")
for _ in range(4):
    begun = threading.Event()
    threading.Thread(target=sample, args=(begun, scene.model("pick")), daemon=True).start()
    begun.wait()
print("said before", end=", ")
leave(130)
"""


def test_threads_that_are_still_in_a_policy_do_not_crash_a_process_that_ends() -> None:
    """Python's own way to end crashed here nearly every time: it ends threads in the midst of C++ code."""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", SAMPLES_TO_THE_END], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, "said before, tidied up\n", "")


@pytest.mark.slow
def test_failed_takes_are_an_error_unless_they_are_allowed(besttake, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "shaky.py").write_text(SHAKY)
    command = ["diagnose", "--policy", "testbed:half", "--env", "python:shaky:make", "--starts", "2", "--seeds", "2"]
    command += ["--arms", "base", "--probe-states", "0", "--workers", "1", "-q", "-o", str(tmp_path / "run")]
    done = besttake(*command, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("besttake: 2 takes failed, most by RuntimeError: the arm fell off; `besttake runs show ")
    assert f"To try them again: besttake {' '.join(command)} (to accept them, add --allow-failed)" in line
    assert (tmp_path / "run" / "report.html").exists()
    assert besttake(*command, "--allow-failed").returncode == 0


def test_a_run_grows_and_keeps_what_it_has(plan: Path, reference: Path, besttake) -> None:
    before = kept(reference)
    besttake("diagnose", plan, "-o", reference, "--starts", "4", "-q")
    after = kept(reference)
    assert before.items() <= after.items()
    assert len(after) == TAKES * 4 // 3


def test_an_error_that_comes_after_ctrl_c_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def raised(error: Exception) -> BaseException:
        with pytest.raises(BaseException) as caught, interrupt.errors_as_interruption():
            raise error
        return caught.value

    errors = [RuntimeError("release unlocked lock"), ComponentError("initialization failed")]
    assert [raised(error) for error in errors] == errors
    once = interrupt.FirstInterrupt()
    monkeypatch.setattr(interrupt, "_once", once)
    with pytest.raises(KeyboardInterrupt):
        once(signal.SIGINT, None)
    assert [type(raised(error)) for error in errors] == [KeyboardInterrupt] * 2
    said = Interrupted("says what is kept")
    assert raised(said) is said
