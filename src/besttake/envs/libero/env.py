"""LIBERO and LIBERO-Occ: ``libero:spatial|object|goal|10|90``, ``libero-occ:spatial|object|goal|10``.

Starts 0..49 are the benchmark's fixed initial states. Starts of higher indexes are placed by LIBERO's own sampler,
seeded by the index. `spec.tuning` and scripted demonstrations use those, so that nothing is chosen or learned on a
start of the evaluation. Conventions (flipped pictures, gripper, settling) are in `harness`, the simulator is in
`simulator`, the installation and its files of initial states in `install`.
"""

from __future__ import annotations

import os
import re
import runpy
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from besttake.conventions import EE6D_STATE, LIBERO, POSE
from besttake.envs.base import check_action, check_cameras, check_task, named_task
from besttake.envs.libero import harness
from besttake.envs.libero.harness import CAMERAS, EVALUATIONS, Convention, Evaluation
from besttake.envs.libero.install import OCCLUDED_VARIABLE, Paths, find_assets, import_libero, load_init_states, locate
from besttake.envs.libero.simulator import LiberoSim, SimState
from besttake.errors import ComponentError, one_line
from besttake.files import short_hash, versions
from besttake.options import Reader, names
from besttake.types import F32, EnvSpec, Observation, Start, Step, TaskSpec

SUITES = ("spatial", "object", "goal", "10", "90")
FIXED_STARTS = 50
TUNING_STARTS = range(1000, 1050)

State = Literal["proprio", "objects", "ee6d"]
"""The content of the state: proprioception, proprioception and the poses of the goal's objects, or X-VLA's state."""
_STATE_DIMS: Mapping[State, int] = {"proprio": 8, "objects": 18, "ee6d": 20}
_LAYOUTS: Mapping[State, str] = {"proprio": LIBERO.state, "objects": "", "ee6d": EE6D_STATE}


@dataclass(frozen=True)
class LiberoTask:
    """The files of a task; ``init`` is None if all starts come from LIBERO's sampler."""

    spec: TaskSpec
    bddl: Path
    init: Path | None


@dataclass(frozen=True)
class LiberoView:
    """How a policy sees and controls LIBERO: pictures rendered at ``size`` and resized to ``given`` pixels, ``state``.

    ``absolute``: actions are target poses, not changes.
    """

    convention: Convention
    size: int
    given: int
    state: State = "proprio"
    absolute: bool = False

    @property
    def evaluation(self) -> Evaluation:
        """The settings with which the harness of this convention evaluates LIBERO."""
        return EVALUATIONS[self.convention]


@dataclass(frozen=True)
class LiberoSnapshot:
    """A task of the env, whether it has succeeded, and the whole state of its simulator."""

    task: str
    success: bool
    sim: SimState


def make(
    suite: str, *, task: str | None = None, convention: str = "lerobot", size: int | str | None = None,
    horizon: int | str | None = None, state: str = "proprio", init: str | None = None, control: str = "relative",
) -> LiberoEnv:  # fmt: skip
    """The env ``libero:SUITE``, or ``libero:FILE.bddl?init=FILE`` for a task of your own.

    ``task`` selects tasks by name or index, separated by commas; ``size`` is the side of the pictures (default: the
    convention's); ``state=objects`` appends ground truth to the state, for policies that read no images;
    ``state=ee6d`` and ``control=absolute`` are for X-VLA.
    """
    view = _view(f"libero:{suite}", convention, size, state, control)
    paths = locate()
    if suite.endswith(".bddl"):
        bddl, steps = Path(suite), Reader(f"libero:{suite}").whole("horizon", horizon or 300)
        spec = TaskSpec(bddl.stem, bddl.stem, _instruction(bddl.stem), steps)
        single = LiberoTask(spec, _existing(bddl), Path(init) if init else None)
        return LiberoEnv(f"libero:{bddl.stem}", [single], paths, view)
    name = _suite(f"libero:{suite}", suite, SUITES)
    folders = paths.bddl / f"libero_{name}", paths.init / f"libero_{name}"
    return _suite_env("libero", name, folders, view, task, horizon)


def make_occluded(
    suite: str, *, task: str | None = None, convention: str = "lerobot", size: int | str | None = None,
    horizon: int | str | None = None, state: str = "proprio", control: str = "relative",
) -> LiberoEnv:  # fmt: skip
    """The env ``libero-occ:SUITE``, with the BDDL and init files of LIBERO-Occ under ``BESTTAKE_LIBERO_OCC``."""
    view = _view(f"libero-occ:{suite}", convention, size, state, control)
    name = _suite(f"libero-occ:{suite}", suite, SUITES[:-1])
    root, folder = os.environ.get(OCCLUDED_VARIABLE), f"libero_{name}_occluded"
    if root is None or not (Path(root) / "bddl_files" / folder).is_dir():
        problem = "is not set" if root is None else f"= {root} holds no bddl_files/{folder}"
        hint = "point it at LIBERO-Occ's benchmark files"
        raise ComponentError(f"libero-occ:{name}: {OCCLUDED_VARIABLE} {problem}; {hint}")
    folders = Path(root) / "bddl_files" / folder, Path(root) / "init_files" / folder
    return _suite_env("libero-occ", name, folders, view, task, horizon)


def _suite_env(
    scheme: str, suite: str, folders: tuple[Path, Path], view: LiberoView, wanted: str | None, horizon: Any
) -> LiberoEnv:
    """The env of a suite whose BDDL and init files are in ``folders``; the name of the first is the task group."""
    uri, paths, (bddl, init) = f"{scheme}:{suite}", locate(), folders
    steps = Reader(uri).whole("horizon", horizon or view.evaluation.horizons[suite])
    tasks = []
    known = _task_names(paths, f"libero_{suite}")
    for name in known if wanted is None else [named_task(word, known, uri) for word in names(wanted)]:
        spec = TaskSpec(name, bddl.name, _instruction(name), steps)
        tasks.append(LiberoTask(spec, _existing(bddl / f"{name}.bddl"), init / f"{name}.pruned_init"))
    return LiberoEnv(uri, tasks, paths, view)


class LiberoEnv:
    """LIBERO as a BestTake env, which keeps the simulator of one task at a time."""

    def __init__(self, name: str, tasks: Sequence[LiberoTask], paths: Paths, view: LiberoView) -> None:
        find_assets(paths)
        self._tasks = {task.spec.name: task for task in tasks}
        self._paths, self._view = paths, view
        fixed = all(task.init is not None for task in tasks)
        starts = range(FIXED_STARTS) if fixed else range(FIXED_STARTS, 2 * FIXED_STARTS)
        self.spec = EnvSpec(
            name, tuple(task.spec for task in tasks), starts, action_dim=7, state_dim=_STATE_DIMS[view.state],
            cameras=tuple(CAMERAS), score_camera="wrist", tuning=TUNING_STARTS, gripper_dim=harness.GRIPPER_DIM,
            gripper_open=harness.GRIPPER_OPEN, eef_dims=(0, 1, 2), goes_on=True, at_once=2, fps=20.0,
            fingerprint=_fingerprint(name, tasks, view),
            convention=replace(
                LIBERO, state=_LAYOUTS[view.state], action=POSE if view.absolute else LIBERO.action,
                size=f"{view.given} x {view.given}",
            ),
        )  # fmt: skip
        self._open: _OpenTask | None = None
        self._success = False

    def reset(self, start: Start) -> None:
        """Go to ``start``: its initial state, then ten steps in which objects settle."""
        opened = self._task(start.task)
        if start.index < FIXED_STARTS:
            if opened.init is None or not 0 <= start.index < len(opened.init):
                raise ComponentError(f"{self.spec.name}: {start.task} has no fixed start {start.index}")
            opened.sim.restore(opened.pristine)
            opened.sim.set_init_state(opened.init[start.index])
        else:
            opened.sim.hard_reset(start.index)
        opened.sim.settle(harness.SETTLE_STEPS)
        if self._view.absolute:
            opened.sim.use_absolute_actions()
        self._success = False

    def step(self, action: F32) -> Step:
        """Execute one action. Success is sticky: LIBERO's evaluators stop at the first step at which the goal holds."""
        check_action(self.spec, action)
        # robosuite converts a target rotation in the precision in which it gets it; lerobot-eval uses float32.
        precision = np.float32 if self._view.absolute else np.float64
        self._success = self._current.sim.step(np.asarray(action, precision)) or self._success
        return Step(success=self._success, done=False)

    def observe(self, cameras: Sequence[str]) -> Observation:
        """The upright images of ``cameras``, and the state: (8,), with the goal's poses (18,), or X-VLA's (20,)."""
        check_cameras(self.spec, cameras)
        sim, view = self._current.sim, self._view
        rendered = {camera: sim.render(CAMERAS[camera], view.size) for camera in cameras}
        images = {
            camera: harness.as_evaluated(harness.upright(image), view.given) for camera, image in rendered.items()
        }
        state = sim.ee6d() if view.state == "ee6d" else sim.proprio(folded=view.evaluation.folds)
        if view.state == "objects":
            state = np.concatenate([state, sim.goal_poses()])
        return Observation(images, state, self._current.task.spec.instruction)

    def save(self) -> LiberoSnapshot:
        """A snapshot that any env of the same URI can restore, in this process or another."""
        return LiberoSnapshot(self._current.task.spec.name, self._success, self._current.sim.save())

    def restore(self, snapshot: LiberoSnapshot) -> None:
        """Restore a snapshot."""
        self._task(snapshot.task).sim.restore(snapshot.sim)
        self._success = snapshot.success

    def close(self) -> None:
        """Free the simulator."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def simulator(self) -> LiberoSim:
        """The simulator of the current task, from which scripted experts read ground truth."""
        return self._current.sim

    def bddl(self, task: str) -> Path:
        """The BDDL file of ``task``."""
        return self._tasks[task].bddl

    @property
    def _current(self) -> _OpenTask:
        if self._open is None:
            raise ComponentError(f"{self.spec.name}: reset comes before step, observe and save")
        return self._open

    def _task(self, name: str) -> _OpenTask:
        check_task(self.spec, name)
        if self._open is None or self._open.task.spec.name != name:
            self.close()
            self._open = _OpenTask(self._tasks[name], import_libero(self._paths))
        return self._open


class _OpenTask:
    """A task's simulator, its initial states, and the state of the scene after a hard reset."""

    def __init__(self, task: LiberoTask, control_env: Any) -> None:
        self.task = task
        self.init: NDArray[np.float64] | None = load_init_states(task.init) if task.init else None
        try:
            self.sim = LiberoSim(control_env, task.bddl)
        except (OSError, ValueError) as error:
            # MuJoCo raises ValueError if a mesh or texture is missing, robosuite FileNotFoundError.
            raise ComponentError(
                f"{task.bddl.name}: LIBERO cannot build the scene, are its assets complete? ({one_line(error)})"
            ) from error
        self.close = weakref.finalize(self, self.sim.close)
        self.sim.hard_reset(seed=0)
        self.pristine: SimState = self.sim.save()


def _view(uri: str, convention: str, size: int | str | None, state: str, control: str) -> LiberoView:
    read = Reader(uri)
    chosen: Convention = read.choice("convention", convention, get_args(Convention))
    layout: State = read.choice("state", state, get_args(State))
    absolute = read.choice("control", control, ("relative", "absolute")) == "absolute"
    usual, rendered = EVALUATIONS[chosen], read.optional_whole("size", size)
    # openpi's policies get 224 pixels whatever size was rendered; the others get pictures as rendered.
    given = rendered if rendered and usual.given == usual.rendered else usual.given
    return LiberoView(chosen, rendered or usual.rendered, given, layout, absolute)


def _suite(uri: str, suite: str, known: Sequence[str]) -> str:
    """The short name of a suite: ``libero_spatial`` is ``spatial``."""
    name = suite.removeprefix("libero_")
    if name not in known:
        raise ComponentError(f"{uri}: no such suite; there are {', '.join(known)}")
    return name


def _existing(bddl: Path) -> Path:
    if not bddl.is_file():
        raise ComponentError(f"BDDL file {bddl} does not exist")
    return bddl


def _instruction(name: str) -> str:
    # LIBERO derives the instruction from the file's name, without the scene at its beginning, if any.
    return re.sub(r"^[A-Z_]+SCENE\d+_", "", name).replace("_", " ")


def _task_names(paths: Paths, suite: str) -> tuple[str, ...]:
    # LIBERO's list of tasks is in a package whose __init__ needs torch; the list itself does not.
    path = paths.package / "benchmark" / "libero_suite_task_map.py"
    try:
        return tuple(runpy.run_path(str(path))["libero_task_map"][suite])
    except OSError as error:
        raise ComponentError(f"hf-libero at {paths.package} is damaged: {error}; install it again") from error


def _fingerprint(name: str, tasks: Sequence[LiberoTask], view: LiberoView) -> str:
    seen = f"{name} {view.convention} {view.state == 'objects'} {view.size}"
    if view.state == "ee6d" or view.absolute:
        seen += f" {view.state} {view.absolute}"
    files = [f"{task.spec.name} {task.spec.horizon}".encode() + task.bddl.read_bytes() for task in tasks]
    return short_hash(seen, versions("hf-libero", "robosuite", "mujoco"), *files)
