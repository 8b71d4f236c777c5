"""Proofs that an adapter keeps its contract: ours are tested with these, and so should yours be.

>>> from besttake import registry, testing
>>> testing.check_env(registry.env("testbed:pick"))            # doctest: +SKIP
('spec', 'observe', 'reset', 'lazy', 'starts', 'restore')

Each check raises `ContractError` with one line that says which promise was broken and where.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.encoders.base import Encoder
from besttake.envs.base import Env, Restorable
from besttake.errors import ContractError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Array, EnvSpec, Observation, PolicySpec, Start, Warm


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


def check_policy(
    policy: Policy,
    *,
    observations: Sequence[Observation] | None = None,
    image_size: int = 64,
    atol: float = 0.0,
) -> tuple[str, ...]:
    """Check ``policy`` on observations (made up from its spec when none are given): the checks that held.

    ``atol`` is how far a row may move with the batch it is in; zero asks for the same bits.
    """
    spec = policy.spec
    seen = list(observations or _observations(spec, 5, image_size))
    draws = [Draw(11, "check", start=row, seed=row % 2, chunk=row) for row in range(len(seen))]
    held = ["shape"]

    batch = policy.sample(seen, draws)
    expected = (len(seen), spec.horizon, spec.action_dim)
    if batch.shape != expected or batch.dtype != np.float32:
        raise ContractError(f"{spec.name}: sample gave {batch.dtype} {batch.shape}, its spec says float32 {expected}")
    if not np.isfinite(batch).all():
        raise ContractError(f"{spec.name}: sample gave actions that are not finite")
    if not 1 <= spec.replan <= spec.horizon:
        raise ContractError(f"{spec.name}: replan is {spec.replan}, outside 1..{spec.horizon}")
    if not spec.seeded:
        return tuple(held)

    _close(batch, policy.sample(seen, draws), 0.0, f"{spec.name}: same draws, another result")
    held.append("repeat")
    singles = np.concatenate([policy.sample([o], [d]) for o, d in zip(seen, draws, strict=True)])
    _close(batch, singles, atol, f"{spec.name}: a row alone differs from the row in a batch")
    turned = policy.sample(seen[::-1], draws[::-1])[::-1]
    _close(batch, turned, atol, f"{spec.name}: a row depends on its place in the batch")
    held.append("batch")

    again = policy.sample(seen[:1] * 2, [draws[0], draws[1]])
    same = bool(np.array_equal(again[0], again[1]))
    if same != (spec.kind == "deterministic"):
        told = "ignores the draw" if same else "depends on the draw but calls itself deterministic"
        raise ContractError(f"{spec.name}: {told}")
    held.append("draw")

    if spec.cools:
        held.append(_check_warm(policy, seen, draws, batch, atol))
    return tuple(held)


def check_encoder(encoder: Encoder, *, images: U8 | None = None, atol: float = 1e-5) -> tuple[str, ...]:
    """Check ``encoder`` on images (random ones when none are given): the checks that held."""
    spec = encoder.spec
    pictures = images if images is not None else np.random.default_rng(5).integers(0, 256, (5, 64, 64, 3), np.uint8)
    batch = encoder.encode(pictures)
    if batch.shape != (len(pictures), spec.dim) or batch.dtype != np.float32:
        raise ContractError(f"{spec.name}: encode gave {batch.dtype} {batch.shape}, its spec says dim {spec.dim}")
    norms = np.linalg.norm(batch.astype(np.float64), axis=1)
    if not np.allclose(norms, 1.0, atol=1e-5):
        raise ContractError(
            f"{spec.name}: embeddings are not unit vectors (norms {norms.min():.6f}..{norms.max():.6f})"
        )
    _close(batch, encoder.encode(pictures), 0.0, f"{spec.name}: the same images, another embedding")
    singles = np.concatenate([encoder.encode(pictures[i : i + 1]) for i in range(len(pictures))])
    _close(batch, singles, atol, f"{spec.name}: an image alone differs from the image in a batch")
    if not spec.fingerprint:
        raise ContractError(f"{spec.name}: the spec has no fingerprint, so caches could not tell it from another")
    return ("shape", "unit", "repeat", "batch", "fingerprint")


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


def _observations(spec: PolicySpec, count: int, size: int) -> list[Observation]:
    rng = np.random.default_rng(7)
    return [
        Observation(
            images={c: rng.integers(0, 256, (size, size, 3), np.uint8) for c in spec.cameras},
            state=rng.normal(0, 0.5, spec.state_dim or 8).astype(np.float32),
            instruction="pick up the cube",
        )
        for _ in range(count)
    ]


def _check_warm(policy: Policy, seen: list[Observation], draws: list[Draw], base: F32, atol: float) -> str:
    spec = policy.spec
    rng = np.random.default_rng(9)
    chunk = rng.uniform(-0.5, 0.5, (spec.horizon, spec.action_dim)).astype(np.float32) if spec.warm_start else None
    zero = policy.sample(seen, draws, [Warm(0.0, chunk)] * len(seen))
    _close(base, zero, 0.0, f"{spec.name}: alpha = 0 is not the base arm")
    mixed = policy.sample(seen, draws, [Warm(0.3, chunk) if row % 2 else None for row in range(len(seen))])
    _close(base[::2], mixed[::2], atol, f"{spec.name}: a warm row changes its neighbours")
    if np.array_equal(base[1::2], mixed[1::2]):
        raise ContractError(f"{spec.name}: a warm start changes nothing")
    return "warm"


def _close(a: Array, b: Array, atol: float, promise: str) -> None:
    far = float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)))) if a.size else 0.0
    if not far <= atol:
        raise ContractError(f"{promise} (by {far:.2e}, allowed {atol:.0e})")
