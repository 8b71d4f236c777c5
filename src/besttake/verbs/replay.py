"""Replay a library's demonstrations in an env: the same actions from the same start must succeed again.

That is the proof that actions, their conventions and their order are what the env takes them for. It needs the start of
each demonstration: its number (a run, the testbed and scripted experts keep it), or the simulator's own state (LIBERO
and robomimic HDF5 have ``states``) where the env can be put there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from besttake import registry
from besttake.demos.library import Library, check_gripper
from besttake.envs.base import Env, Placeable, checked_step
from besttake.errors import LibraryError, failure, one_line
from besttake.progress import Reporter, as_reporter
from besttake.types import Start


@dataclass(frozen=True)
class ReplayedDemo:
    """One demonstration: the action after which it succeeded again, or None; ``problem`` where it was not replayed."""

    id: str
    task: str
    steps: int
    success_step: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class ReplayResult:
    """What became of each demonstration of ``library`` in ``env``."""

    library: str
    env: str
    demos: tuple[ReplayedDemo, ...]

    @property
    def replayed(self) -> tuple[ReplayedDemo, ...]:
        """Those that could be replayed."""
        return tuple(demo for demo in self.demos if not demo.problem)

    @property
    def succeeded(self) -> int:
        """How many succeeded again."""
        return sum(demo.success_step is not None for demo in self.replayed)

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps({**asdict(self), "succeeded": self.succeeded, "replayed": len(self.replayed)}, indent=1)


def replay(
    library: Library | str | Path, env: str, *, max_demos: int | None = None, progress: bool | Reporter = False
) -> ReplayResult:
    """Replay the demonstrations of ``library`` in ``env`` (a URI), at most ``max_demos`` of each task."""
    opened = library if isinstance(library, Library) else Library.open(library)
    with registry.opened_env(env) as world:
        if opened.head.action_dim != world.spec.action_dim:
            sizes = f"{opened.head.action_dim or 'no'} numbers, but {env} has {world.spec.action_dim}"
            raise LibraryError(f"{opened.path} has actions of {sizes}; name the env it was recorded in")
        check_gripper(opened, world.spec)
        tasks = _tasks(opened, world)
        chosen, seen = [], Counter[str]()
        for number, task in sorted(tasks.items()):
            if max_demos is None or seen[task] < max_demos:
                seen[task] += 1
                chosen.append(number)
        if not chosen:
            raise LibraryError(
                f"{opened.path} has no demonstration of a task of {env}; name the env it was recorded in"
            )
        with as_reporter(progress).stage("replay", len(chosen), "demos") as stage:
            demos = []
            for number in chosen:
                demos.append(_replayed(opened, number, world, tasks[number]))
                stage.advance()
    return ReplayResult(str(opened.path), env, tuple(demos))


def _tasks(library: Library, env: Env) -> Mapping[int, str]:
    """The env's task of each demonstration that has one."""
    tasks: dict[int, str] = {}
    for task in env.spec.tasks:
        rows, matched = library.demos_of(task.name, task.instruction)
        if matched != "all" or len(env.spec.tasks) == 1:
            tasks.update(dict.fromkeys(rows, task.name))
    return tasks


def _replayed(library: Library, number: int, env: Env, task: str) -> ReplayedDemo:
    demo = library.demos[number]
    try:
        if not _begin(library, number, env, task):
            return ReplayedDemo(demo.id, task, demo.length, problem="its data hold no start to replay it from")
        for step, action in enumerate(library.chunk(number, 0, demo.length), start=1):
            success, done = checked_step(env.step(action))
            if success:
                return ReplayedDemo(demo.id, task, demo.length, step)
            if done:
                break
    except LibraryError:
        raise
    except BaseException as error:  # a simulator can fail in any way; the next demonstration may do better
        return ReplayedDemo(demo.id, task, demo.length, problem=one_line(failure(error), 200))
    return ReplayedDemo(demo.id, task, demo.length)


def _begin(library: Library, number: int, env: Env, task: str) -> bool:
    """Put the env where the demonstration began; False where that is not known."""
    source = library.demos[number].source
    start = source.get("start", source.get("seed"))
    if isinstance(start, int) and not isinstance(start, bool):
        env.reset(Start(task, start))
        return True
    if not isinstance(env, Placeable):
        return False
    state = library.start_state(number)
    if state is None:
        return False
    env.place(task, state)
    return True
