"""The way of a take and the way of a verdict are short, and docs/architecture.md names every file on them.

One real diagnosis is traced: whenever it passes one of the stations below, in the command or in a worker process, the
files on the call stack are noted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STATIONS = {
    "takes/pool.py WorkerPool.send", "testbed/env.py TestbedEnv.step", "testbed/policy.py TestbedPolicy.sample",
    "takes/take_table.py TakeTable.add", "core/verdict.py ask", "core/verdict.py recommend", "core/verdict.py optimism",
    "reporting/words.py headline",
}  # fmt: skip
TRACER = """
import os, sys, threading
stations, seen = set(os.environ["STATIONS"].split(",")), set()
def name(code):
    return code.co_filename.rpartition("/besttake/")[2]
def trace(frame, event, argument):
    if event != "call" or f"{name(frame.f_code)} {frame.f_code.co_qualname}" not in stations:
        return
    stack = []
    while frame is not None:
        stack += [name(frame.f_code)] if "/besttake/" in frame.f_code.co_filename else []
        frame = frame.f_back
    if tuple(stack) not in seen:
        seen.add(tuple(stack))
        with open(os.environ["STACKS"], "a") as file:
            print(*stack, file=file)
sys.setprofile(trace)
threading.setprofile(trace)
"""


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The files of every call stack at a station, innermost first."""
    folder = tmp_path_factory.mktemp("walks")
    (folder / "sitecustomize.py").write_text(TRACER)
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    env = {**os.environ, "PYTHONPATH": path, "STACKS": str(folder / "stacks"), "STATIONS": ",".join(STATIONS)}
    plan = ["--policy", "testbed:half", "--env", "testbed:pick", "--starts", "2", "--arms", "base,cooled"]
    plan += ["--demos-per-task", "2", "--probe-states", "0", "--check-states", "0", "--workers", "1"]
    command = [sys.executable, "-m", "besttake", "diagnose", *plan, "-o", str(folder / "run")]
    subprocess.run(command, env=env, check=True, capture_output=True)
    return [line.split() for line in (folder / "stacks").read_text().splitlines()]


def named(section: str) -> set[str]:
    """The files that a section of the page names."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    own = text[text.index(f"## {section}") :].split("\n## ")[0]
    return set(re.findall(r"`([\w/]+\.py)", own))


@pytest.mark.slow
def test_a_take_passes_at_most_twenty_files_from_the_command_line_to_its_row(stacks: list[list[str]]) -> None:
    # Where no library is cached, one is built first, by the same workers.
    ways = [stack for stack in stacks if {"takes/engine.py", "takes/worker.py"} & set(stack)]
    assert {stack[0] for stack in ways} == {name.split()[0] for name in STATIONS if name.startswith("t")}
    files = {file for stack in ways for file in stack}
    print(len(files), *sorted(files))
    assert len(files) <= 20
    assert files <= named("The life of one take")


@pytest.mark.slow
def test_a_verdict_passes_at_most_eight_files_from_the_rows_to_the_sentence(stacks: list[list[str]]) -> None:
    ways = [stack for stack in stacks if stack[0].startswith(("core/", "reporting/"))]
    assert {stack[0] for stack in ways} == {"core/verdict.py", "reporting/words.py"}
    files = {file for stack in ways for file in stack if file.startswith(("core/", "measure/", "reporting/"))}
    print(len(files), *sorted(files))
    assert len(files) <= 8
    assert files <= named("The life of a verdict")
