"""The testbed as an env: ``testbed`` (all four tasks) or ``testbed:pick``, ``testbed:drawer``, …"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from besttake.conventions import TESTBED
from besttake.envs.base import check_cameras, check_task
from besttake.errors import ComponentError
from besttake.testbed import camera as camera_code
from besttake.testbed import scene, seeds
from besttake.testbed import tasks as tasks_code
from besttake.testbed.camera import RayCamera
from besttake.testbed.demonstrations import WRIST_PX
from besttake.testbed.engine import mujoco
from besttake.testbed.fingerprints import fingerprint
from besttake.testbed.tasks import HORIZONS, INSTRUCTIONS, TASKS, Snapshot, World
from besttake.types import F32, EnvSpec, Observation, Start, Step, TaskSpec

FRONT_PX = 160


class TestbedEnv:
    """The testbed's tasks as one env, which holds the world of one task at a time; many envs may be open at once."""

    __test__ = False

    def __init__(self, tasks: tuple[str, ...]) -> None:
        self.spec = _spec_of(tasks)
        self._world: World | None = None

    def reset(self, start: Start) -> None:
        """Go to ``start``, bit for bit the same each time."""
        if start.index < 0:
            raise ComponentError(f"testbed: start {start.index} of {start.task} does not exist; starts count from 0")
        self._world = self._world_of(start.task)
        self._world.reset(start.index)

    def step(self, action: F32) -> Step:
        """Execute one action (4,). Success is sticky once the task has held for two steps; the simulation continues."""
        return Step(success=self._current().step(action), done=False)

    def observe(self, cameras: Sequence[str]) -> Observation:
        """The state and the images of ``cameras``."""
        check_cameras(self.spec, cameras)
        world = self._current()
        images = {name: _camera(world.task, name)(world.data) for name in cameras}
        return Observation(images, world.state(), INSTRUCTIONS[world.task])

    def save(self) -> Snapshot:
        """A snapshot of the whole state, small and picklable."""
        return self._current().save()

    def restore(self, snapshot: Snapshot) -> None:
        """Restore ``snapshot``, saved by this or another testbed env."""
        self._world = self._world_of(snapshot.task)
        self._world.restore(snapshot)

    def close(self) -> None:
        """Release the world."""
        self._world = None

    def _current(self) -> World:
        if self._world is None:
            raise ComponentError("testbed: reset the env to a start before using it")
        return self._world

    def _world_of(self, task: str) -> World:
        if self._world is None or self._world.task != task:
            check_task(self.spec, task)
            return World(task)
        return self._world


@cache
def _camera(task: str, name: str) -> RayCamera:
    """The camera ``name`` of ``task``, shared like the task's model by all worlds."""
    if name == "wrist":
        return RayCamera(scene.model(task), name, WRIST_PX)
    return RayCamera(scene.model(task), name, FRONT_PX, groups=(0, 1, 2, 3, 4), shadows=True)


@cache
def _spec_of(tasks: tuple[str, ...]) -> EnvSpec:
    """The spec of an env of ``tasks``, cached because its fingerprint reads source code."""
    scenes = {task: scene.xml(task) for task in tasks}
    specs = tuple(TaskSpec(task, task, INSTRUCTIONS[task], HORIZONS[task]) for task in tasks)
    return EnvSpec(
        "testbed" if len(tasks) > 1 else f"testbed:{tasks[0]}", specs, seeds.EVALUATION,
        action_dim=tasks_code.ACTION_DIM, state_dim=tasks_code.STATE_DIM, cameras=("wrist", "front"),
        score_camera="wrist", tuning=seeds.TUNING, gripper_dim=3, gripper_open=-1, eef_dims=(0, 1, 2),
        goes_on=True, fps=tasks_code.CONTROL_HZ, convention=TESTBED,
        fingerprint=fingerprint(scenes, mujoco.__version__, code=(tasks_code, camera_code)),
    )  # fmt: skip


def make(rest: str = "") -> TestbedEnv:
    """The env ``testbed:rest``: ``rest`` is a task, or empty for all four."""
    return TestbedEnv(chosen_tasks(rest))


def chosen_tasks(rest: str) -> tuple[str, ...]:
    """The task that a URI names after its colon, or all four."""
    if rest and rest not in TASKS:
        raise ComponentError(f"testbed:{rest}: no such task; choose one of {', '.join(TASKS)}, or testbed for all")
    return (rest,) if rest else TASKS
