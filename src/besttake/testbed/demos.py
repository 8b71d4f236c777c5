"""Demonstrations of the testbed: ``testbed`` (all tasks) or ``testbed:pick``, recorded when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from typing import get_args

from besttake.options import Reader
from besttake.testbed import camera, expert, scene, seeds
from besttake.testbed import demonstrations as demonstrations_code
from besttake.testbed import tasks as tasks_code
from besttake.testbed.demonstrations import demonstrations
from besttake.testbed.engine import mujoco
from besttake.testbed.env import chosen_tasks
from besttake.testbed.expert import Style
from besttake.testbed.fingerprints import fingerprint
from besttake.testbed.tasks import CONTROL_HZ, INSTRUCTIONS
from besttake.types import Demo


class TestbedDemos:
    """A source that records its demonstrations when it is read; every reading gives the same bits."""

    __test__ = False

    name = "testbed"
    camera = "wrist"
    fps = CONTROL_HZ
    gripper_dim = 3
    gripper_open = -1
    eef_dims = (0, 1, 2)

    def __init__(self, tasks: tuple[str, ...], demos_per_task: int, stride: int, style: Style) -> None:
        self.tasks, self._count, self._stride, self._style = tasks, demos_per_task, stride, style

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the demonstrations: scenes, code and options."""
        scenes = {task: scene.xml(task) for task in self.tasks}
        options = (seeds.LIBRARY.start, self._count, self._stride, self._style)
        code = (tasks_code, expert, demonstrations_code, camera)
        return fingerprint(scenes, mujoco.__version__, *options, code=code)

    def __len__(self) -> int:
        return len(self.tasks) * self._count

    def parts(self) -> list[TestbedDemos]:
        """One source per task."""
        return [TestbedDemos((task,), self._count, self._stride, self._style) for task in self.tasks]

    def __iter__(self) -> Iterator[Demo]:
        return self.of_tasks(lambda _: True)

    def of_tasks(self, wanted: Callable[[str], bool]) -> Iterator[Demo]:
        """Yield the demonstrations whose task is ``wanted``."""
        for task in filter(wanted, self.tasks):
            for demo in islice(demonstrations(task, seeds.LIBRARY, self._style, self._stride), self._count):
                yield Demo(
                    f"{task}/{demo.seed}", task, demo.frames, demo.frame_steps, demo.states, demo.actions,
                    INSTRUCTIONS[task], source={"seed": demo.seed, "style": self._style},
                )  # fmt: skip
                if not wanted(task):
                    break


def make(rest: str, demos_per_task: int | str = 40, stride: int | str = 2, style: str = "std") -> TestbedDemos:
    """The source ``testbed:rest``: ``rest`` is a task, or empty for all four."""
    read = Reader(f"testbed:{rest}" if rest else "testbed")
    count = read.whole("demos_per_task", demos_per_task, most=len(seeds.LIBRARY) // 2)
    chosen: Style = read.choice("style", style, get_args(Style))
    return TestbedDemos(chosen_tasks(rest), count, read.whole("stride", stride), chosen)
