"""A control step of LIBERO in processor time: compiled, interpreted, by robosuite's own step, and its physics alone.

    python -m bench.libero_step [--rounds 5] [TASK ...]        # needs hf-libero and its assets
    python -m bench.libero_step --goal [TASK ...]              # what it costs to ask whether the goal holds

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

from bench.libero_bits import TASKS as ALL
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
        "robosuite's": lambda: play(sim.own_step), "physics alone": physics,
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


def goal(uri: str) -> tuple[float, int]:
    """The part of the processor time of a take that goes into asking whether the goal holds, and the steps in which
    nothing that the goal names moved by a bit."""
    env = registry.env(uri)
    assert isinstance(env, LiberoEnv)
    env.reset(Start(env.spec.tasks[0].name, 3))
    simulator = env.simulator().robosuite
    asked, model = 0.0, simulator.sim.model._model
    ask = simulator._check_success

    def timed() -> bool:
        nonlocal asked
        began = time.process_time()
        holds = bool(ask())
        asked += time.process_time() - began
        return holds

    simulator._check_success = timed
    named = {name for state in simulator.parsed_problem["goal_state"] for name in state[1:]}
    bodies = [simulator.obj_body_id[name] for name in named if name in simulator.obj_body_id]
    moving = np.isin(model.body_rootid[model.jnt_bodyid], bodies)
    sizes = np.where(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE, 7, 1)
    places = [range(first, first + size) for first, size in zip(model.jnt_qposadr[moving], sizes[moving], strict=True)]
    numbers = [number for place in places for number in place]
    still, before, began = 0, simulator.sim.data.qpos[numbers], time.process_time()
    for action in drifts(STEPS):
        env.step(action)
        now = simulator.sim.data.qpos[numbers]
        still, before = still + np.array_equal(now, before), now
    part = asked / (time.process_time() - began)
    env.close()
    return part, still


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
    parser.add_argument("--goal", action="store_true", help="measure the question whether the goal holds instead")
    asked = parser.parse_args()
    if asked.goal:
        for uri in asked.tasks or ALL:
            part, still = goal(uri)
            print(f"{uri}: the goal {part:.1%} of a step; nothing it names moved in {still} of {STEPS}", flush=True)
        return
    for uri in asked.tasks or TASKS:
        taken = measure(uri, asked.rounds)
        gain = taken["interpreted"] / taken["compiled"]
        each = ", ".join(f"{name} {spent:.2f}" for name, spent in taken.items())
        print(f"{uri}: ms per control step: {each}; compiled {gain:.2f}x interpreted", flush=True)


if __name__ == "__main__":
    main()
