"""LIBERO and LIBERO-Occ: ``libero:spatial|object|goal|10|90``, ``libero-occ:spatial|object|goal|10``.

Starts 0..49 are the benchmark's fixed initial states. Higher indexes are placed by LIBERO's own sampler, seeded by
the index: `spec.tuning` and scripted demonstrations take theirs from there, so that nothing is chosen or learned on
a start that is evaluated.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from besttake.envs.libero_setup import OCCLUDED_VARIABLE, Paths, find_assets, import_libero, locate
from besttake.envs.libero_sim import LiberoSim, Snapshot
from besttake.envs.libero_starts import load_init_states
from besttake.errors import ComponentError
from besttake.options import whole
from besttake.types import F32, U8, EnvSpec, Observation, Start, Step, TaskSpec

Convention = Literal["lerobot", "openpi"]

SUITES = ("spatial", "object", "goal", "10", "90")
FIXED_STARTS = 50
TUNING_STARTS = range(1000, 1050)

_HORIZONS: dict[Convention, dict[str, int]] = {
    "lerobot": {"spatial": 280, "object": 280, "goal": 300, "10": 520, "90": 400},
    "openpi": {"spatial": 220, "object": 280, "goal": 300, "10": 520, "90": 400},
}
_CAMERAS = {"agentview": "agentview", "wrist": "robot0_eye_in_hand"}
_SETTLE_STEPS = 10
_OPENPI_SIZE = 224


@dataclass(frozen=True)
class LiberoTask:
    """A task on disk; ``init`` is None where every start comes from LIBERO's sampler."""

    spec: TaskSpec
    bddl: Path
    init: Path | None


def make(
    suite: str,
    *,
    task: str | None = None,
    convention: str = "lerobot",
    size: int | str = 256,
    horizon: int | str | None = None,
    state: str = "proprio",
    init: str | None = None,
) -> LiberoEnv:
    """``libero:SUITE``, or ``libero:FILE.bddl?init=FILE`` for a task of your own.

    ``task`` narrows to names or indexes, separated by commas; ``size`` is the edge of the pictures rendered;
    ``state=objects`` appends ground truth to the state, for policies that do not look.
    """
    paths, chosen, seen = locate(), _convention(convention), _objects(state)
    if suite.endswith(".bddl"):
        tasks = [_own_task(Path(suite), Path(init) if init else None, whole("libero", "horizon", horizon or 300))]
        return LiberoEnv(f"libero:{Path(suite).stem}", tasks, paths, chosen, whole("libero", "size", size), seen)
    name = _suite(suite, SUITES, "libero")
    steps = whole("libero", "horizon", horizon or _HORIZONS[chosen][name])
    tasks = [
        _task(each, f"libero_{name}", steps, paths.bddl / f"libero_{name}", paths.init / f"libero_{name}")
        for each in _select(_task_names(paths, f"libero_{name}"), task, f"libero:{name}")
    ]
    return LiberoEnv(f"libero:{name}", tasks, paths, chosen, whole("libero", "size", size), seen)


def make_occluded(
    suite: str,
    *,
    task: str | None = None,
    convention: str = "lerobot",
    size: int | str = 256,
    horizon: int | str | None = None,
    state: str = "proprio",
) -> LiberoEnv:
    """``libero-occ:SUITE``: the BDDL and init files of LIBERO-Occ, found under ``BESTTAKE_LIBERO_OCC``."""
    name = _suite(suite, SUITES[:-1], "libero-occ")
    named = os.environ.get(OCCLUDED_VARIABLE)
    folder = f"libero_{name}_occluded"
    if named is None or not (Path(named) / "bddl_files" / folder).is_dir():
        where = "is not set" if named is None else f"= {named} holds no bddl_files/{folder}"
        raise ComponentError(
            f"libero-occ:{name}: {OCCLUDED_VARIABLE} {where}; point it at LIBERO-Occ's benchmark files"
        )
    paths, chosen, seen = locate(), _convention(convention), _objects(state)
    steps = whole("libero", "horizon", horizon or _HORIZONS[chosen][name])
    tasks = [
        _task(each, folder, steps, Path(named) / "bddl_files" / folder, Path(named) / "init_files" / folder)
        for each in _select(_task_names(paths, f"libero_{name}"), task, f"libero-occ:{name}")
    ]
    return LiberoEnv(f"libero-occ:{name}", tasks, paths, chosen, whole("libero", "size", size), seen)


class LiberoEnv:
    """LIBERO under BestTake's contract; keeps one task's simulator alive at a time."""

    def __init__(
        self,
        name: str,
        tasks: Sequence[LiberoTask],
        paths: Paths,
        convention: Convention,
        size: int,
        objects: bool = False,
    ) -> None:
        find_assets(paths)
        self._tasks = {task.spec.name: task for task in tasks}
        self._paths, self._convention, self._size, self._objects = paths, convention, size, objects
        fixed = all(task.init is not None for task in tasks)
        self._spec = EnvSpec(
            name=name,
            tasks=tuple(task.spec for task in tasks),
            starts=range(FIXED_STARTS) if fixed else range(FIXED_STARTS, 2 * FIXED_STARTS),
            tuning=TUNING_STARTS,
            action_dim=7,
            state_dim=18 if objects else 8,
            cameras=tuple(_CAMERAS),
            score_camera="wrist",
            gripper_dim=6,
            gripper_open=-1,
            eef_dims=(0, 1, 2),
            goes_on=True,
            at_once=2,
            fps=20.0,
            fingerprint=_fingerprint(name, tasks, f"{convention} {objects}", size),
        )
        self._open: _OpenTask | None = None
        self._success = False

    @property
    def spec(self) -> EnvSpec:
        """What this env is and can do."""
        return self._spec

    def reset(self, start: Start) -> None:
        """Go to ``start``: initial state, then ten steps for things to settle."""
        opened = self._task(start.task)
        if start.index < FIXED_STARTS:
            if opened.init is None or not 0 <= start.index < len(opened.init):
                raise ComponentError(f"{self._spec.name}: {start.task} has no fixed start {start.index}")
            opened.sim.restore(opened.pristine)
            opened.sim.set_init_state(opened.init[start.index])
        else:
            opened.sim.hard_reset(start.index)
        opened.sim.settle(_SETTLE_STEPS)
        self._success = False

    def step(self, action: F32) -> Step:
        """One control step. Success is sticky: LIBERO's evaluators stop at the first step at which the goal holds."""
        if action.shape != (7,) or not np.isfinite(action).all():
            raise ComponentError(f"{self._spec.name}: an action must be 7 finite numbers, got {action!r}")
        if self._current.sim.step(np.asarray(action, np.float64)):
            self._success = True
        return Step(success=self._success, done=False)

    def observe(self, cameras: Sequence[str]) -> Observation:
        """State (8,), or (18,) with the goal's poses, and the pictures asked for, upright."""
        sim = self._current.sim
        images = {camera: self._picture(sim, camera) for camera in cameras}
        state = np.concatenate([sim.proprio(), sim.goal_poses()]) if self._objects else sim.proprio()
        return Observation(images, state, self._current.task.spec.instruction)

    def save(self) -> Any:
        """A snapshot that any env of the same URI restores, in this process or another."""
        return {"task": self._current.task.spec.name, "success": self._success, "sim": self._current.sim.save()}

    def restore(self, snapshot: Any) -> None:
        """Put a snapshot back."""
        self._task(snapshot["task"]).sim.restore(snapshot["sim"])
        self._success = snapshot["success"]

    def close(self) -> None:
        """Free the simulator."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def simulator(self) -> LiberoSim:
        """The simulator of the current task, for ground truth (scripted experts)."""
        return self._current.sim

    def bddl(self, task: str) -> Path:
        """The BDDL file of ``task``."""
        return self._tasks[task].bddl

    @property
    def _current(self) -> _OpenTask:
        if self._open is None:
            raise ComponentError(f"{self._spec.name}: reset comes before step, observe and save")
        return self._open

    def _task(self, name: str) -> _OpenTask:
        if name not in self._tasks:
            raise ComponentError(f"{self._spec.name}: no task {name!r}; {_near(name, tuple(self._tasks))}")
        if self._open is None or self._open.task.spec.name != name:
            self.close()
            self._open = _OpenTask(self._tasks[name], import_libero(self._paths))
        return self._open

    def _picture(self, sim: LiberoSim, camera: str) -> U8:
        if camera not in _CAMERAS:
            raise ComponentError(f"{self._spec.name}: no camera {camera!r}; there are {', '.join(_CAMERAS)}")
        upright = sim.render(_CAMERAS[camera], self._size)[::-1, ::-1]
        if self._convention == "openpi":
            return _resize(upright, _OPENPI_SIZE)
        return np.ascontiguousarray(upright)


class _OpenTask:
    """A task's simulator, its initial states, and the scene as a hard reset leaves it."""

    def __init__(self, task: LiberoTask, control_env: Any) -> None:
        self.task = task
        self.init: NDArray[np.float64] | None = load_init_states(task.init) if task.init else None
        try:
            self.sim = LiberoSim(control_env, task.bddl)
        except (OSError, ValueError) as error:
            # MuJoCo reports a missing mesh or texture as ValueError, robosuite as FileNotFoundError.
            reason = str(error).strip().splitlines()
            raise ComponentError(
                f"{task.bddl.name}: LIBERO cannot build the scene, are its assets complete? "
                f"({reason[-1] if reason else type(error).__name__})"
            ) from error
        self.close = weakref.finalize(self, self.sim.close)
        self.sim.hard_reset(seed=0)
        self.pristine: Snapshot = self.sim.save()


def _resize(image: U8, size: int) -> U8:
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(image)).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(picture, np.uint8)


def _task(name: str, group: str, horizon: int, bddl: Path, init: Path) -> LiberoTask:
    return LiberoTask(
        TaskSpec(name, group, _instruction(name), horizon),
        _existing(bddl / f"{name}.bddl"),
        init / f"{name}.pruned_init",
    )


def _own_task(bddl: Path, init: Path | None, horizon: int) -> LiberoTask:
    return LiberoTask(TaskSpec(bddl.stem, bddl.stem, _instruction(bddl.stem), horizon), _existing(bddl), init)


def _existing(bddl: Path) -> Path:
    if not bddl.is_file():
        raise ComponentError(f"BDDL file {bddl} does not exist")
    return bddl


def _instruction(name: str) -> str:
    # LIBERO takes the instruction from the file's name, after the scene where there is one.
    return re.sub(r"^[A-Z_]+SCENE\d+_", "", name).replace("_", " ")


def _task_names(paths: Paths, suite: str) -> tuple[str, ...]:
    # LIBERO's own list sits in a package whose __init__ needs torch; the list itself does not.
    spec = importlib.util.spec_from_file_location(
        "_besttake_libero_tasks", paths.package / "benchmark" / "libero_suite_task_map.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError as error:
        raise ComponentError(f"hf-libero at {paths.package} is damaged: {error}; install it again") from error
    return tuple(module.libero_task_map[suite])


def _select(names: tuple[str, ...], wanted: str | None, where: str) -> tuple[str, ...]:
    if wanted is None:
        return names
    chosen = []
    for word in wanted.split(","):
        if word.isdigit() and int(word) < len(names):
            chosen.append(names[int(word)])
        elif word in names:
            chosen.append(word)
        else:
            raise ComponentError(f"{where}: no task {word!r}; {_near(word, names)}")
    return tuple(chosen)


def _near(word: str, names: Sequence[str]) -> str:
    close = get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {len(names)}, from {names[0]!r} on (or 0..)"


def _suite(suite: str, known: Sequence[str], scheme: str) -> str:
    name = suite.removeprefix("libero_")
    if name not in known:
        raise ComponentError(f"{scheme}:{suite}: no such suite; there are {', '.join(known)}")
    return name


def _convention(name: str) -> Convention:
    for known in get_args(Convention):
        if name == known:
            chosen: Convention = known
            return chosen
    raise ComponentError(f"libero: no convention {name!r}; there are {', '.join(get_args(Convention))}")


def _objects(state: str) -> bool:
    if state not in ("proprio", "objects"):
        raise ComponentError(f"libero: state is proprio or objects, not {state!r}")
    return state == "objects"


def _fingerprint(name: str, tasks: Sequence[LiberoTask], convention: str, size: int) -> str:
    digest = hashlib.sha256(f"{name} {convention} {size}".encode())
    for package in ("hf-libero", "robosuite", "mujoco"):
        try:
            digest.update(f"{package} {version(package)}".encode())
        except PackageNotFoundError:
            digest.update(package.encode())
    for task in tasks:
        digest.update(f"{task.spec.name} {task.spec.horizon}".encode())
        digest.update(task.bddl.read_bytes())
    return digest.hexdigest()[:16]
