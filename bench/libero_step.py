"""A control step of LIBERO in processor time: compiled, interpreted, by robosuite's own step, and its physics alone.

    python -m bench.libero_step [--rounds 5] [TASK ...]        # needs hf-libero and its assets

The same take, with contacts, is played by each in turn, round after round; the physics alone is MuJoCo's 25 steps with
the commands that the take gave. All end in the same state, or the command fails.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from bench.libero_bits import drifts
from besttake import registry
from besttake.envs.libero.env import LiberoEnv
from besttake.envs.libero.simulator import OscStep
from besttake.types import Start

TASKS = ("libero:object?task=0", "libero:spatial?task=3", "libero:goal?task=7", "libero:10?task=2")
STEPS = 100


def measure(uri: str, rounds: int) -> dict[str, float]:
    """Milliseconds of processor time per control step of each way, the least over rounds."""
    env = registry.env(uri)
    assert isinstance(env, LiberoEnv)
    env.reset(Start(env.spec.tasks[0].name, 0))
    sim, actions, saved = env.simulator(), drifts(STEPS), env.save()
    from besttake.envs.libero import controller as libero_control

    compiled, interpreted = sim._step, OscStep(sim.robosuite, sim._clock)
    assert isinstance(compiled, OscStep)
    if compiled._run is libero_control.run:
        print(f"{uri}: nothing is compiled here; `besttake -v` says why")
    commands: list[Any] = []
    interpreted._run = _recording(libero_control.run, commands)

    def play(step: Callable[[Any], bool]) -> None:
        sim._step = step
        for action in actions:
            env.step(action)

    play(interpreted)
    interpreted._run = libero_control.run
    model, data = sim.robosuite.sim.model._model, sim.robosuite.sim.data._data

    def physics() -> None:
        for command in commands:
            mujoco.mj_step1(model, data)
            data.ctrl[:] = command
            mujoco.mj_step2(model, data)

    ways = {
        "compiled": lambda: play(compiled), "interpreted": lambda: play(interpreted),
        "robosuite's": lambda: play(sim.robosuite_step), "physics alone": physics,
    }  # fmt: skip
    taken: dict[str, float] = {}
    ends = set()
    for _ in range(rounds):
        for name, way in ways.items():
            env.restore(saved)
            began = time.process_time()
            way()
            spent = (time.process_time() - began) / STEPS * 1e3
            taken[name] = min(spent, taken.get(name, np.inf))
            ends.add((data.qpos.tobytes(), data.qvel.tobytes()))
    env.close()
    assert len(ends) == 1, "they end in different states"
    return taken


def _recording(run: Any, commands: list[Any]) -> Any:
    """``run``, one physics step at a time, with the commands of each kept."""

    def one_at_a_time(model: Any, data: Any, arm: Any, count: int, begun: bool) -> None:
        for number in range(count):
            run(model, data, arm, 1, begun and number == 0)
            commands.append(data.ctrl.copy())

    return one_at_a_time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="URIs with one task each (default: one of each suite)")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    for uri in asked.tasks or TASKS:
        taken = measure(uri, asked.rounds)
        gain = taken["interpreted"] / taken["compiled"]
        each = ", ".join(f"{name} {spent:.2f}" for name, spent in taken.items())
        print(f"{uri}: ms per control step: {each}; compiled {gain:.2f}x interpreted", flush=True)


if __name__ == "__main__":
    main()
