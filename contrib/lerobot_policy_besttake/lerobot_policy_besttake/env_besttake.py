"""The env type ``besttake``: any env of BestTake in LeRobot's commands, ``--env.type=besttake --env.uri=testbed:pick``.

The seed of an episode is the index of its start: ``lerobot-eval --seed=0`` plays the starts of ``besttake diagnose``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.envs.utils import freeze_after_episode_end
from lerobot.utils.constants import ACTION, OBS_IMAGES, OBS_STATE

from besttake import registry
from besttake.options import names
from besttake.types import EnvSpec, Start, TaskSpec


@EnvConfig.register_subclass("besttake")
@dataclass
class BesttakeEnvConfig(EnvConfig):  # type: ignore[misc]
    """An env of BestTake by its URI. ``cameras``: names with commas (default: the score camera; ``none``: none)."""

    uri: str = "testbed:pick"
    cameras: str = ""

    def __post_init__(self) -> None:
        with registry.opened_env(self.uri) as env:
            self._spec: EnvSpec = env.spec
            wanted = self._wanted()
            env.reset(Start(self._spec.tasks[0].name, self._spec.starts[0]))
            shapes = {camera: picture.shape for camera, picture in env.observe(wanted).images.items()}
        self.fps = round(self._spec.fps)
        self.features = {ACTION: PolicyFeature(FeatureType.ACTION, (self._spec.action_dim,))}
        self.features["agent_pos"] = PolicyFeature(FeatureType.STATE, (self._spec.state_dim,))
        self.features |= {f"pixels/{name}": PolicyFeature(FeatureType.VISUAL, shapes[name]) for name in wanted}
        self.features_map = {ACTION: ACTION, "agent_pos": OBS_STATE}
        self.features_map |= {f"pixels/{name}": f"{OBS_IMAGES}.{name}" for name in wanted}

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """Nothing: `create_envs` makes them."""
        return {}

    def create_envs(self, n_envs: int, use_async_envs: bool = False) -> dict[str, dict[int, Any]]:
        """Envs side by side for each task."""
        side_by_side = use_async_envs and n_envs > 1
        kind = partial(gymnasium.vector.AsyncVectorEnv, context="forkserver") if side_by_side else _sync
        return {
            self.uri: {
                number: kind([freeze_after_episode_end(self._maker(task))] * n_envs)
                for number, task in enumerate(self._chosen())
            }
        }

    def _maker(self, task: TaskSpec) -> Callable[[], Any]:
        return partial(BesttakeGym, self.uri, task, self._wanted(), self.fps)

    def _wanted(self) -> tuple[str, ...]:
        if self.cameras == "none":
            return ()
        return names(self.cameras) or (self._spec.score_camera,)

    def _chosen(self) -> list[TaskSpec]:
        return [each for each in self._spec.tasks if self.task in (None, each.name)]


def _sync(makers: Sequence[Callable[[], Any]]) -> Any:
    return gymnasium.vector.SyncVectorEnv(makers)


class BesttakeGym(gymnasium.Env):  # type: ignore[misc]
    """One task of an env of BestTake as a Gymnasium env with the observations that LeRobot reads."""

    def __init__(self, uri: str, task: TaskSpec, cameras: Sequence[str], fps: int) -> None:
        self._env, self._cameras = registry.env(uri), tuple(cameras)
        self._task, self._start, self._steps = task, -1, 0
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
        self.render_mode = "rgb_array"
        self._env.reset(Start(task.name, self._env.spec.starts[0]))
        box, spec = gymnasium.spaces.Box, self._env.spec
        seen = self._observed()
        parts: dict[str, Any] = {"agent_pos": box(-np.inf, np.inf, (spec.state_dim,), np.float32)}
        if cameras:
            pictures = {name: box(0, 255, picture.shape, np.uint8) for name, picture in seen["pixels"].items()}
            parts["pixels"] = gymnasium.spaces.Dict(pictures)
        self.observation_space = gymnasium.spaces.Dict(parts)
        self.action_space = box(-np.inf, np.inf, (spec.action_dim,), np.float32)

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._task.name

    @property
    def task_description(self) -> str:
        """The instruction."""
        return self._task.instruction

    @property
    def _max_episode_steps(self) -> int:
        return self._task.horizon

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Go to the start whose index is ``seed``; without one, to the next."""
        self._start, self._steps = self._start + 1 if seed is None else seed, 0
        self._env.reset(Start(self._task.name, self._start))
        return self._observed(), {"is_success": False}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One step; an episode ends at success, as LeRobot counts it."""
        step = self._env.step(np.asarray(action, np.float32))
        self._steps += 1
        over = bool(step.done) or self._steps >= self._task.horizon
        return self._observed(), float(step.success), bool(step.success), over, {"is_success": bool(step.success)}

    def render(self) -> Any:
        """What the score camera shows."""
        camera = self._env.spec.score_camera
        return self._env.observe((camera,)).images[camera]

    def close(self) -> None:
        """Free the env."""
        self._env.close()

    def _observed(self) -> dict[str, Any]:
        seen = self._env.observe(self._cameras)
        pictures = {"pixels": dict(seen.images)} if self._cameras else {}
        return {"agent_pos": seen.state, **pictures}
