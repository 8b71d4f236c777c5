"""The contract of an environment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.envs.base import Env, Restorable
from besttake.errors import ContractError
from besttake.types import F32, Array, EnvSpec, Start


def check_env(env: Env, *, task: str | None = None, steps: int = 12, render: bool = True) -> tuple[str, ...]:
    """Check ``env`` on one task: the names of the checks that held.

    ``render=False`` leaves the cameras out, for simulators on machines that cannot render.
    """
    spec = env.spec
    _check_env_spec(spec)
    name = task or spec.tasks[0].name
    cameras = spec.cameras if render else ()
    first, *others = [Start(name, index) for index in spec.starts[:2]]
    actions = _actions(spec, steps)
    held = ["spec"]

    env.reset(first)
    _check_observation(env, cameras)
    held.append("observe")

    eager = _play(env, first, actions, cameras, look=True)
    _same(eager, _play(env, first, actions, cameras, look=True), f"{spec.name}: reset({first}) twice, same actions")
    held.append("reset")

    _same(eager[-1:], _play(env, first, actions, cameras, look=False), f"{spec.name}: observing changes the physics")
    held.append("lazy")

    if others:
        env.reset(others[0])
        if _equal(_look(env, cameras), eager[0]):
            raise ContractError(f"{spec.name}: starts {first.index} and {others[0].index} of {name} are identical")
        held.append("starts")

    if isinstance(env, Restorable):
        env.reset(first)
        snapshot = env.save()
        for _ in range(2):
            env.restore(snapshot)
            _same(eager, _continue(env, actions, cameras, look=True), f"{spec.name}: restore differs from reset")
        if others:
            env.reset(others[0])
            env.restore(snapshot)
            _same(eager, _continue(env, actions, cameras, look=True), f"{spec.name}: restore after another start")
        held.append("restore")
    return tuple(held)


def _check_env_spec(spec: EnvSpec) -> None:
    if not spec.tasks or not len(spec.starts):
        raise ContractError(f"{spec.name}: no tasks or no starts")
    if spec.score_camera not in spec.cameras:
        raise ContractError(f"{spec.name}: score camera {spec.score_camera!r} is not among {spec.cameras}")
    if set(spec.starts) & set(spec.tuning):
        raise ContractError(f"{spec.name}: tuning starts overlap the starts to evaluate on")
    if spec.gripper_dim is not None and not 0 <= spec.gripper_dim < spec.action_dim:
        raise ContractError(f"{spec.name}: gripper_dim {spec.gripper_dim} is outside the {spec.action_dim} actions")
    if spec.eef_dims is not None and not all(0 <= d < spec.state_dim for d in spec.eef_dims):
        raise ContractError(f"{spec.name}: eef_dims {spec.eef_dims} are outside the {spec.state_dim} state numbers")


def _check_observation(env: Env, cameras: Sequence[str]) -> None:
    spec, seen = env.spec, env.observe(cameras)
    if set(seen.images) != set(cameras):
        raise ContractError(f"{spec.name}: asked for cameras {tuple(cameras)}, got {tuple(seen.images)}")
    if seen.state.shape != (spec.state_dim,) or seen.state.dtype != np.float32:
        raise ContractError(
            f"{spec.name}: state is {seen.state.dtype} {seen.state.shape}, not float32 {spec.state_dim}"
        )
    for camera, image in seen.images.items():
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ContractError(f"{spec.name}: camera {camera} gave {image.dtype} {image.shape}, not uint8 (H, W, 3)")
    if env.observe(()).images:
        raise ContractError(f"{spec.name}: asked for no camera, rendered one all the same")


def _actions(spec: EnvSpec, steps: int) -> F32:
    return np.random.default_rng(3).uniform(-1, 1, (steps, spec.action_dim)).astype(np.float32)


def _play(env: Env, start: Start, actions: F32, cameras: Sequence[str], *, look: bool) -> list[list[Array]]:
    env.reset(start)
    return _continue(env, actions, cameras, look=look)


def _continue(env: Env, actions: F32, cameras: Sequence[str], *, look: bool) -> list[list[Array]]:
    seen = [_look(env, cameras)] if look else []
    for index, action in enumerate(actions):
        step = env.step(action)
        if look or index == len(actions) - 1:
            seen.append([*_look(env, cameras), np.array([step.success, step.done])])
    return seen


def _look(env: Env, cameras: Sequence[str]) -> list[Array]:
    seen = env.observe(cameras)
    return [seen.state.copy(), *(seen.images[c].copy() for c in cameras)]


def _equal(a: list[Array], b: list[Array]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=False))


def _same(a: list[list[Array]], b: list[list[Array]], promise: str) -> None:
    for step, (x, y) in enumerate(zip(a, b, strict=True)):
        if not _equal(x, y):
            raise ContractError(f"{promise}: observation {step} differs")
