"""Check the contracts of policies, environments, encoders and sources of demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from besttake.demos.base import Source, UnreadableDemo
from besttake.demos.build import Shape, fault
from besttake.encoders.base import Encoder
from besttake.envs.base import Env, Restorable
from besttake.errors import ContractError
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Array, Demo, EnvSpec, Observation, PolicySpec, Start, Warm


def check_policy(
    policy: Policy, *, observations: Sequence[Observation] | None = None, atol: float = 0.0
) -> tuple[str, ...]:
    """Check that ``policy`` keeps the contract of `Policy`, and return the names of the properties that hold.

    These are: chunks are finite and have the right shape; the same draws give the same chunks; a row does not depend on
    its batch; the draw matters (unless the policy is deterministic); and warm starts do what they should, if the policy
    accepts them. A policy that is not ``seeded`` is checked for shape only.

    Args:
        policy: The policy to check.
        observations: What to show it (default: five random observations that fit its spec).
        atol: Largest difference that the batch may make to an action; 0 asks for the same bits.

    Raises:
        ContractError: A property is violated.
    """
    spec = policy.spec
    seen = list(observations or _random_observations(spec))
    draws = [Draw(11, "check", start=row, seed=row % 2, chunk=row) for row in range(len(seen))]
    held = ["shape"]

    batch = policy.sample(seen, draws)
    expected = (len(seen), spec.horizon, spec.action_dim)
    fits = batch.shape == expected and batch.dtype == np.float32
    check(fits, f"{spec.name}: sample gave {batch.dtype} {batch.shape}, its spec says float32 {expected}")
    check(np.isfinite(batch).all(), f"{spec.name}: sample gave actions that are not finite")
    check(1 <= spec.replan <= spec.horizon, f"{spec.name}: replan is {spec.replan}, outside 1..{spec.horizon}")
    if not spec.seeded:
        return tuple(held)

    check_close(batch, policy.sample(seen, draws), 0.0, f"{spec.name}: same draws, another result")
    held.append("repeat")
    singles = np.concatenate([policy.sample([o], [d]) for o, d in zip(seen, draws, strict=True)])
    check_close(batch, singles, atol, f"{spec.name}: a row alone differs from the row in a batch")
    reordered = policy.sample(seen[::-1], draws[::-1])[::-1]
    check_close(batch, reordered, atol, f"{spec.name}: a row depends on its place in the batch")
    held.append("batch")

    again = policy.sample(seen[:1] * 2, [draws[0], draws[1]])
    same = bool(np.array_equal(again[0], again[1]))
    fault = "ignores the draw" if same else "depends on the draw but calls itself deterministic"
    check(same == (spec.kind == "deterministic"), f"{spec.name}: {fault}")
    held.append("draw")

    if spec.cools:
        held.append(_check_warm(policy, seen, draws, batch, atol))
    return tuple(held)


def _random_observations(spec: PolicySpec) -> list[Observation]:
    rng = np.random.default_rng(7)
    return [
        Observation(
            images={c: rng.integers(0, 256, (64, 64, 3), np.uint8) for c in spec.cameras},
            state=rng.normal(0, 0.5, spec.state_dim or 8).astype(np.float32),
            instruction="pick up the cube",
        )
        for _ in range(5)
    ]


def _check_warm(policy: Policy, seen: list[Observation], draws: list[Draw], base: F32, atol: float) -> str:
    spec = policy.spec
    rng = np.random.default_rng(9)
    chunk = rng.uniform(-0.5, 0.5, (spec.horizon, spec.action_dim)).astype(np.float32) if spec.warm_start else None
    zero = policy.sample(seen, draws, [Warm(1.0, 0.0, chunk)] * len(seen))
    check_close(base, zero, 0.0, f"{spec.name}: noise 1 and prior 0 are not the base arm")
    cooled = policy.sample(seen, draws, [Warm(0.5)] * len(seen))
    zero = policy.sample(seen, draws, [Warm(0.5, 0.0, chunk)] * len(seen))
    check_close(cooled, zero, 0.0, f"{spec.name}: a chunk with prior 0 is not the arm cooled")
    mixed = policy.sample(seen, draws, [Warm(0.5, 0.3, chunk) if row % 2 else None for row in range(len(seen))])
    check_close(base[::2], mixed[::2], atol, f"{spec.name}: a warm row changes its neighbours")
    check(not np.array_equal(base[1::2], mixed[1::2]), f"{spec.name}: a warm start changes nothing")
    return "warm"


def check_env(env: Env, *, steps: int = 12, render: bool = True) -> tuple[str, ...]:
    """Check that ``env`` keeps the contract of `Env`, and return the names of the properties that hold.

    These are: its spec makes sense; observations have the right shapes; a reset repeats bit for bit; observing does not
    change the physics; two starts differ; and, if it can save its state, restoring equals a reset.

    Args:
        env: The environment to check.
        steps: Number of random actions to play.
        render: False leaves the cameras out, for machines that cannot render.

    Raises:
        ContractError: A property is violated.
    """
    spec = env.spec
    _check_env_spec(spec)
    name = spec.tasks[0].name
    cameras = spec.cameras if render else ()
    first, *others = [Start(name, index) for index in spec.starts[:2]]
    actions = np.random.default_rng(3).uniform(-1, 1, (steps, spec.action_dim)).astype(np.float32)
    held = ["spec"]

    env.reset(first)
    _check_observation(env, cameras)
    held.append("observe")

    # Adapters of foreign envs can rebuild the env at each reset.
    hint = " (rebuild=true in its URI may help)" if spec.name.startswith(("gym:", "vla-eval:")) else ""
    eager = _play(env, first, actions, cameras, look=True)
    again = _play(env, first, actions, cameras, look=True)
    _check_replay(eager, again, f"{spec.name}: reset({first}) twice, same actions{hint}")
    held.append("reset")

    lazy = _play(env, first, actions, cameras, look=False)
    _check_replay(eager[-1:], lazy, f"{spec.name}: observing changes the physics")
    held.append("lazy")

    if others:
        env.reset(others[0])
        differ = not _same_arrays(_look(env, cameras), eager[0])
        check(differ, f"{spec.name}: starts {first.index} and {others[0].index} of {name} are identical")
        held.append("starts")

    if isinstance(env, Restorable):
        env.reset(first)
        snapshot = env.save()
        for other in (None, None, *others):
            if other is not None:
                env.reset(other)
            env.restore(snapshot)
            again = _continue(env, actions, cameras, look=True)
            _check_replay(eager, again, f"{spec.name}: restore differs from reset")
        held.append("restore")
    return tuple(held)


def _check_env_spec(spec: EnvSpec) -> None:
    name, camera = spec.name, spec.score_camera
    check(spec.tasks and len(spec.starts), f"{name}: no tasks or no starts")
    check(camera in spec.cameras, f"{name}: score camera {camera!r} is not among {spec.cameras}")
    check(not set(spec.starts) & set(spec.tuning), f"{name}: tuning starts overlap the starts to evaluate on")
    _check_dimensions(name, spec.gripper_dim, spec.eef_dims, spec.action_dim, spec.state_dim)


def _check_observation(env: Env, cameras: Sequence[str]) -> None:
    name, size, observation = env.spec.name, env.spec.state_dim, env.observe(cameras)
    images, state = observation.images, observation.state
    check(set(images) == set(cameras), f"{name}: asked for cameras {tuple(cameras)}, got {tuple(images)}")
    fits = state.shape == (size,) and state.dtype == np.float32
    check(fits, f"{name}: state is {state.dtype} {state.shape}, not float32 {size}")
    for camera, image in images.items():
        fits = image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
        check(fits, f"{name}: camera {camera} gave {image.dtype} {image.shape}, not uint8 (H, W, 3)")
    check(not env.observe(()).images, f"{name}: it renders a camera even if none is asked for")


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
    observation = env.observe(cameras)
    return [observation.state.copy(), *(observation.images[c].copy() for c in cameras)]


def _same_arrays(a: list[Array], b: list[Array]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=False))


def _check_replay(a: list[list[Array]], b: list[list[Array]], fault: str) -> None:
    for step, (x, y) in enumerate(zip(a, b, strict=True)):
        check(_same_arrays(x, y), f"{fault}: observation {step} differs")


def check_encoder(encoder: Encoder, *, images: U8 | None = None, atol: float = 1e-5) -> tuple[str, ...]:
    """Check that ``encoder`` keeps the contract of `Encoder`, and return the names of the properties that hold.

    These are: embeddings have the right shape and length 1; the same images give the same embeddings; an image alone
    gives the same embedding as in a batch, within ``atol``; and there is a fingerprint.

    Args:
        encoder: The encoder to check.
        images: Images, uint8 (B, H, W, 3) (default: five random ones of 64 x 64).
        atol: Largest difference that a batch may make.

    Raises:
        ContractError: A property is violated.
    """
    spec = encoder.spec
    pictures = images if images is not None else np.random.default_rng(5).integers(0, 256, (5, 64, 64, 3), np.uint8)
    batch = encoder.encode(pictures)
    fits = batch.shape == (len(pictures), spec.dim) and batch.dtype == np.float32
    check(fits, f"{spec.name}: encode gave {batch.dtype} {batch.shape}, its spec says dim {spec.dim}")
    norms = np.linalg.norm(batch.astype(np.float64), axis=1)
    unit = np.allclose(norms, 1.0, atol=1e-5)
    check(unit, f"{spec.name}: embeddings are not unit vectors (norms {norms.min():.6f}..{norms.max():.6f})")
    check_close(batch, encoder.encode(pictures), 0.0, f"{spec.name}: the same images, another embedding")
    singles = np.concatenate([encoder.encode(pictures[i : i + 1]) for i in range(len(pictures))])
    check_close(batch, singles, atol, f"{spec.name}: an image alone differs from the image in a batch")
    check(spec.fingerprint, f"{spec.name}: the spec has no fingerprint, so caches could not tell it from another")
    return ("shape", "unit", "repeat", "batch", "fingerprint")


def check_demos(source: Source, *, most: int = 20) -> tuple[str, ...]:
    """Check that a source of demonstrations keeps its contract, and return the names of the properties that hold.

    These are: it has a fingerprint; ids are unique; all demonstrations have consistent shapes; ``gripper_dim`` and
    ``eef_dims`` are valid indexes; and reading it again gives the same data.

    Args:
        source: The source to check.
        most: Read at most this many demonstrations (twice).

    Raises:
        ContractError: A property is violated.
    """
    check(source.fingerprint, f"{source.name}: it has no fingerprint, so a library could not tell when it changed")
    read = list(islice(source, most))
    demos = [demo for demo in read if not isinstance(demo, UnreadableDemo)]
    check(demos, f"{source.name}: none of its first {len(read)} demonstrations can be read")
    ids = [demo.id for demo in read]
    repeated = max(ids, key=ids.count)
    check(ids.count(repeated) == 1, f"{source.name}: two demonstrations have the same id {repeated!r}")
    shape = Shape.of(demos[0])
    for demo in demos:
        wrong = fault(demo, shape)
        check(not wrong, f"{source.name}: demonstration {demo.id} {wrong}")
    _check_dimensions(source.name, source.gripper_dim, source.eef_dims, shape.action_dim or 0, shape.state_dim or 0)
    for first, again in zip(read, islice(source, most), strict=True):
        check(_same_demo(first, again), f"{source.name}: demonstration {first.id} differs when it is read again")
    return ("fingerprint", "ids", "demonstrations", "dimensions", "repeat")


def _check_dimensions(
    name: str, gripper: int | None, eef: Sequence[int] | None, action_dim: int, state_dim: int
) -> None:
    inside = gripper is None or 0 <= gripper < action_dim
    check(inside, f"{name}: gripper_dim {gripper} is outside the {action_dim} actions")
    inside = all(0 <= dim < state_dim for dim in eef or ())
    check(inside, f"{name}: eef_dims {eef} are outside the {state_dim} state numbers")


def _same_demo(a: Demo | UnreadableDemo, b: Demo | UnreadableDemo) -> bool:
    if isinstance(a, UnreadableDemo) or isinstance(b, UnreadableDemo):
        return a == b
    arrays = ((a.frames, b.frames), (a.frame_steps, b.frame_steps), (a.states, b.states), (a.actions, b.actions))
    return (a.id, a.task, a.instruction) == (b.id, b.task, b.instruction) and all(
        x is y if x is None or y is None else np.array_equal(x, y) for x, y in arrays
    )


def check(holds: object, fault: str) -> None:
    """Raise ContractError with the text ``fault`` unless ``holds`` is true."""
    if not holds:
        raise ContractError(fault)


def check_close(a: Array, b: Array, atol: float, fault: str) -> None:
    """Raise ContractError with the text ``fault`` if two arrays differ by more than ``atol``."""
    gap = float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)))) if a.size else 0.0
    check(gap <= atol, f"{fault} (by {gap:.2e}, allowed {atol:.0e})")
