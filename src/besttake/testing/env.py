"""The contract of an environment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.envs.base import Env, Restorable
from besttake.testing.compare import check
from besttake.types import F32, Array, EnvSpec, Start


def check_env(env: Env, *, task: str | None = None, steps: int = 12, render: bool = True) -> tuple[str, ...]:
    """Check that ``env`` keeps the contract of `Env`, and return the names of the properties that hold.

    These are: its spec makes sense; observations have the right shapes; a reset repeats bit for bit; observing does not
    change the physics; two starts differ; and, if it can save its state, restoring equals a reset.

    Args:
        env: The environment to check.
        task: The task to check it on (default: the first).
        steps: Number of random actions to play.
        render: False leaves the cameras out, for machines that cannot render.

    Raises:
        ContractError: A property is violated.
    """
    spec = env.spec
    _check_env_spec(spec)
    name = task or spec.tasks[0].name
    cameras = spec.cameras if render else ()
    first, *others = [Start(name, index) for index in spec.starts[:2]]
    actions = np.random.default_rng(3).uniform(-1, 1, (steps, spec.action_dim)).astype(np.float32)
    held = ["spec"]

    env.reset(first)
    _check_observation(env, cameras)
    held.append("observe")

    # Adapters of other people's envs can build theirs anew at each reset.
    hint = " (rebuild=true in its URI may mend it)" if spec.name.startswith(("gym:", "vla-eval:")) else ""
    eager = _play(env, first, actions, cameras, look=True)
    _same(
        eager, _play(env, first, actions, cameras, look=True), f"{spec.name}: reset({first}) twice, same actions{hint}"
    )
    held.append("reset")

    _same(eager[-1:], _play(env, first, actions, cameras, look=False), f"{spec.name}: observing changes the physics")
    held.append("lazy")

    if others:
        env.reset(others[0])
        differ = not _equal(_look(env, cameras), eager[0])
        check(differ, f"{spec.name}: starts {first.index} and {others[0].index} of {name} are identical")
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
    name, camera, gripper, eef = spec.name, spec.score_camera, spec.gripper_dim, spec.eef_dims
    check(spec.tasks and len(spec.starts), f"{name}: no tasks or no starts")
    check(camera in spec.cameras, f"{name}: score camera {camera!r} is not among {spec.cameras}")
    check(not set(spec.starts) & set(spec.tuning), f"{name}: tuning starts overlap the starts to evaluate on")
    inside = gripper is None or 0 <= gripper < spec.action_dim
    check(inside, f"{name}: gripper_dim {gripper} is outside the {spec.action_dim} actions")
    inside = all(0 <= d < spec.state_dim for d in eef or ())
    check(inside, f"{name}: eef_dims {eef} are outside the {spec.state_dim} state numbers")


def _check_observation(env: Env, cameras: Sequence[str]) -> None:
    name, size, seen = env.spec.name, env.spec.state_dim, env.observe(cameras)
    images, state = seen.images, seen.state
    check(set(images) == set(cameras), f"{name}: asked for cameras {tuple(cameras)}, got {tuple(images)}")
    fits = state.shape == (size,) and state.dtype == np.float32
    check(fits, f"{name}: state is {state.dtype} {state.shape}, not float32 {size}")
    for camera, image in images.items():
        fits = image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
        check(fits, f"{name}: camera {camera} gave {image.dtype} {image.shape}, not uint8 (H, W, 3)")
    check(not env.observe(()).images, f"{name}: asked for no camera, rendered one all the same")


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
        check(_equal(x, y), f"{promise}: observation {step} differs")
