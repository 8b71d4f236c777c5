"""Any benchmark of vla-eval, run in this process: ``vla-eval:MODULE:CLASS?args``, and ``vla-eval:coke-can``.

In ``vla-eval:libero:LIBEROBenchmark?suite=libero_object&send_state=true``, ``libero`` is short for the module
``vla_eval.benchmarks.libero.benchmark``. These classes render every camera at every step.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from besttake.conventions import GOOGLE_ROBOT, LIBERO, Convention
from besttake.envs.base import (
    DeclaredFacts,
    check_action,
    check_cameras,
    check_task,
    checked_flag,
    choose_gl,
    declared,
    global_seed,
    named_task,
)
from besttake.envs.libero.install import import_libero, locate
from besttake.errors import ComponentError, MissingExtra, one_line
from besttake.files import short_hash, version
from besttake.options import Reader, value
from besttake.types import F32, U8, EnvSpec, Observation, Start, Step, TaskSpec

# SimplerEnv's published grid for the Google robot's coke can: 5 x 5 positions of the can, one pose of the robot.
COKE_CAN: Mapping[str, Any] = {
    "task_name": "google_robot_pick_coke_can",
    "env_name": "GraspSingleOpenedCokeCanInScene-v0",
    "scene_name": "google_pick_coke_can_1_v4",
    "max_episode_steps": 80,
    "gripper_mode": "sticky",
    "seed": 0,
    "control_mode": (
        "arm_pd_ee_delta_pose_align_interpolate_by_planner_gripper_pd_joint_target_delta_pos_interpolate_by_planner"
    ),
    "init_config": {
        "robot_x": [0.35, 0.35, 1],
        "robot_y": [0.20, 0.20, 1],
        "robot_rot_quat": [0, 0, 0, 1],
        "obj_x": [-0.35, -0.12, 5],
        "obj_y": [-0.02, 0.42, 5],
    },
}
_ORIENTATIONS = {"horizontal": "lr_switch", "vertical": "laid_vertically", "standing": "upright"}
_GRID = 25


def make(
    target: str, *, task: str | None = None, score_camera: str | None = None, action_dim: int | str | None = None,
    render: str | None = None, **others: Any,
) -> VlaEvalEnv:  # fmt: skip
    """Make the benchmark ``target``, ``MODULE:CLASS``; ``render`` (gpu or cpu) goes to its ``configure_render``.

    Of ``others``, those in `DeclaredFacts` are read here (``starts``, the number of episode indexes used as starts, is
    the benchmark's own by default, else 50); the rest (YAML values) goes to the benchmark's constructor.
    """
    read = Reader(f"vla-eval:{target}")
    facts, rest = declared(read, others)
    known = Convention()
    module, _, name = target.partition(":")
    arguments = {key: value(text) for key, text in rest.items()}
    if target == "coke-can":
        module, name, arguments = "simpler", "SimplerEnvBenchmark", coke_can(**arguments)
        known = GOOGLE_ROBOT
        facts = replace(facts, starts=facts.starts or _GRID)
    if name == "LIBEROBenchmark":
        known = replace(LIBERO, size="256 x 256")
    if not name:
        raise ComponentError(f"{read.uri}: name a benchmark as MODULE:CLASS, e.g. libero:LIBEROBenchmark")
    benchmark = _find(module, name)
    if render:
        benchmark.configure_render(read.choice("render", render, sorted(benchmark.render_backends)))
    label = read.uri + (f"?{urlencode(sorted(rest.items()), quote_via=quote)}" if rest else "")
    env = VlaEvalEnv(label, benchmark, arguments, facts, known)
    try:
        env.describe(task, score_camera, read.optional_whole("action_dim", action_dim))
    except ComponentError:
        env.close()
        raise
    return env


def coke_can(*, orientation: str = "horizontal", overlay: str | None = None, **more: Any) -> dict[str, Any]:
    """Arguments of vla-eval's SimplerEnv benchmark for the 25 starts of one orientation of the can.

    ``overlay`` is the path of SimplerEnv's ``google_coke_can_real_eval_1.png`` for visual matching.
    """
    known = Reader("vla-eval:coke-can").choice("orientation", orientation, _ORIENTATIONS)
    build: dict[str, Any] = {"robot": "google_robot_static", "control_freq": 3, "sim_freq": 513}
    build[_ORIENTATIONS[known]] = True
    if overlay:
        build |= {"rgb_overlay_path": overlay, "rgb_overlay_cameras": ["overhead_camera"]}
    return {**COKE_CAN, "env_build_kwargs": build, **more}


class VlaEvalEnv:
    """A vla-eval benchmark as a BestTake env: the index of a start is its ``episode_idx``.

    It can be used once `describe` has made the ``spec``.
    """

    spec: EnvSpec

    def __init__(
        self, name: str, benchmark: Any, arguments: dict[str, Any], facts: DeclaredFacts, known: Convention
    ) -> None:
        self._name, self._class, self._arguments, self._facts, self._known = name, benchmark, arguments, facts, known
        self._loop = asyncio.new_event_loop()
        self._benchmark = self._construct()
        self._tasks: dict[str, dict[str, Any]] = {}
        self._started: str | None = None
        self._steps, self._over = 0, False

    def describe(self, wanted: str | None, score_camera: str | None, action_dim: int | None) -> None:
        """Work out the spec. This starts an episode, because only an observation shows cameras and state."""
        self._tasks = _named(self._benchmark.get_tasks(), wanted, self._name)
        about, facts = self._benchmark.get_metadata(), self._facts
        horizon = facts.horizon or about.get("max_steps")
        if not horizon:
            raise ComponentError(f"{self._name}: the benchmark sets no limit of steps; add horizon=…")
        self._start(next(iter(self._tasks)), 0)
        seen = self._run(self._benchmark.get_observation())
        cameras = tuple(_pictures(seen))
        if not cameras:
            raise ComponentError(f"{self._name}: its observations hold no pictures, so takes cannot be scored")
        tasks = tuple(
            TaskSpec(name, str(task.get("suite", self._class.__name__)), str(task.get("name", name)), int(horizon))
            for name, task in self._tasks.items()
        )
        starts = range(facts.starts or int(about.get("max_episodes_per_task", 50)))
        scored = score_camera or ("wrist" if "wrist" in cameras else cameras[0])
        self.spec = EnvSpec(
            self._name, tasks, starts, action_dim or self._action_dim(), _state(seen).size, cameras, scored,
            **facts.body, goes_on=False, at_once=2, fps=facts.fps or 10.0,
            fingerprint=short_hash(f"{self._name} {sorted(self._arguments.items())} {version('vla-eval', '')}"),
            notes=("every camera is rendered at every step, as vla-eval does",), convention=self._known,
        )  # fmt: skip

    def reset(self, start: Start) -> None:
        """Start the episode of that index, which also seeds the global generators, since benchmarks draw from them."""
        check_task(self.spec, start.task)
        if self._facts.rebuild:
            self._benchmark.cleanup()
            self._benchmark = self._construct()
            self._tasks = {**self._tasks, **_named(self._benchmark.get_tasks(), None, self._name)}
        self._start(start.task, start.index)

    def step(self, action: F32) -> Step:
        """Execute one action. Success is the benchmark's result at the end of the episode or at the step limit."""
        check_action(self.spec, action)
        if self._started is None or self._over:
            raise ComponentError(f"{self._name}: reset comes before step, and again after the episode has ended")
        self._run(self._benchmark.apply_action({"actions": np.asarray(action, np.float32)}))
        self._steps += 1
        self._over = bool(self._run(self._benchmark.is_done())) or self._steps >= self.spec.tasks[0].horizon
        success = self._run(self._benchmark.get_result()).get("success", False) if self._over else False
        return Step(success=checked_flag(self.spec.name, success), done=self._over)

    def observe(self, cameras: Sequence[str]) -> Observation:
        """The images of ``cameras`` and the state in the benchmark's observation (empty if it has none)."""
        if self._started is None:
            raise ComponentError(f"{self._name}: reset comes before observe")
        check_cameras(self.spec, cameras)
        seen = self._run(self._benchmark.get_observation())
        pictures = _pictures(seen)
        instruction = str(seen.get("task_description") or self._tasks[self._started].get("name", ""))
        return Observation({camera: pictures[camera] for camera in cameras}, _state(seen), instruction)

    def close(self) -> None:
        """Free the benchmark."""
        if not self._loop.is_closed():
            self._benchmark.cleanup()
            self._loop.close()

    def _start(self, task: str, index: int) -> None:
        from vla_eval.recording import NullEpisodeRecorder

        with global_seed(index):
            self._run(self._benchmark.start_episode({**self._tasks[task], "episode_idx": index}, NullEpisodeRecorder()))
        self._started, self._steps, self._over = task, 0, False

    def _construct(self) -> Any:
        try:
            return self._class(**self._arguments)
        except (TypeError, ValueError, AssertionError) as error:
            raise ComponentError(f"{self._name}: {one_line(error)}") from error

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self._loop.run_until_complete(work)
        except ModuleNotFoundError as error:
            raise ComponentError(f"{self._name}: needs {error.name}, which is not installed; see vla-eval") from error

    def _action_dim(self) -> int:
        try:
            return sum(int(part.dims) for part in self._benchmark.get_action_spec().values())
        except NotImplementedError:
            problem = "does not say how many numbers an action has; add action_dim=…"
            raise ComponentError(f"{self._name}: {problem}") from None


def _find(module: str, name: str) -> Any:
    try:
        importlib.import_module("vla_eval")
    except ModuleNotFoundError as error:
        raise MissingExtra("vla-eval", "vla-eval", "vla-eval:…") from error
    choose_gl()
    if "libero" in module:
        # LIBERO's first import asks a question on the terminal unless there is a configuration file.
        with suppress(MissingExtra):
            import_libero(locate())
    for path in (f"vla_eval.benchmarks.{module}.benchmark", module):
        try:
            return _defined(importlib.import_module(path), name)
        except ModuleNotFoundError as error:
            if error.name is None or not path.startswith(error.name):
                raise ComponentError(f"vla-eval:{module}:{name} needs {error.name}, which is not installed") from error
        except AttributeError:
            raise ComponentError(f"vla-eval:{module}:{name}: module {path} defines no benchmark {name}") from None
    raise ComponentError(f"vla-eval:{module}:{name}: no module {module} and no vla_eval.benchmarks.{module}")


def _defined(module: Any, name: str) -> Any:
    """The benchmark class ``name``, which ``module`` itself must define and not only import; else AttributeError."""
    from vla_eval.benchmarks.base import Benchmark

    benchmark = getattr(module, name)
    is_defined_here = isinstance(benchmark, type) and benchmark.__module__ == module.__name__
    if not is_defined_here or not issubclass(benchmark, Benchmark):
        raise AttributeError(name)
    return benchmark


def _named(tasks: Sequence[dict[str, Any]], wanted: str | None, where: str) -> dict[str, dict[str, Any]]:
    named: dict[str, dict[str, Any]] = {}
    for index, task in enumerate(tasks):
        name = str(task.get("name", f"task {index}"))
        named[name if name not in named else f"{name} ({index})"] = task
    if wanted is None:
        return named
    name = named_task(wanted, list(named), where)
    return {name: named[name]}


def _pictures(seen: Mapping[str, Any]) -> dict[str, U8]:
    pictures = {str(camera): image for camera, image in dict(seen.get("images", {})).items() if np.ndim(image) == 3}
    return {camera: np.ascontiguousarray(np.asarray(image).astype(np.uint8)) for camera, image in pictures.items()}


def _state(seen: Mapping[str, Any]) -> F32:
    states = [seen[key] for key in ("states", "state") if seen.get(key) is not None]
    return np.asarray(states[0] if states else [], np.float32).ravel()
