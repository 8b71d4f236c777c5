"""Pick-and-place as a plan that looks before each action: ``plan`` yields actions (7,) until it is through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from besttake.contrib.scripted_libero.ground_truth import F64, Goal, GroundTruth
from besttake.envs.libero_conventions import GRIPPER_OPEN
from besttake.types import F32

_METRE = 1 / 0.05
_RADIAN = 1 / 0.5
_OPEN, _CLOSED = float(GRIPPER_OPEN), -float(GRIPPER_OPEN)
_ATTEMPTS = 3
_PATIENCE = 60


@dataclass(frozen=True)
class Manner:
    """How one demonstration differs from the next: how fast, how high, by which way round, how exactly."""

    speed: float
    hover: float
    detour: F64
    slip: F64
    grip: int

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Manner:
        """A manner drawn from ``rng``."""
        return cls(
            speed=float(rng.uniform(0.55, 1.0)),
            hover=float(rng.uniform(0.07, 0.13)),
            detour=rng.uniform(-0.08, 0.08, 2),
            slip=rng.normal(0, 0.002, 2),
            grip=int(rng.integers(8, 14)),
        )


def plan(world: GroundTruth, manner: Manner) -> Iterator[F32]:
    """Meet the goal's conditions one after the other; what already holds is left alone."""
    for goal in world.goals() or ():
        for attempt in range(_ATTEMPTS):
            if not world.holds(goal):
                yield from _pick_and_place(world, goal, manner, attempt)


def _pick_and_place(world: GroundTruth, goal: Goal, manner: Manner, attempt: int) -> Iterator[F32]:
    grasp = world.grasp(goal.item, attempt)
    point = grasp.point + _flat(manner.slip)
    above = point + _up(manner.hover)
    between = (world.hand() + above) / 2 + _flat(manner.detour) + _up(manner.hover / 2)
    yield from _go(world, between, grasp.yaw, _OPEN, manner, tolerance=0.04)
    yield from _go(world, above, grasp.yaw, _OPEN, manner, tolerance=0.012)
    yield from _go(world, point, grasp.yaw, _OPEN, manner, tolerance=0.006, slowly=True)
    for _ in range(manner.grip):
        yield _action(world, point, grasp.yaw, _CLOSED, 0.2)

    bottom = world.position(goal.item)[2] - world.shape(goal.item)[:, 2].min()
    roof = world.shape(goal.place)[:, 2].max()
    before = world.position(goal.item)[2]
    lifted = world.hand() + _up(0.06)
    yield from _go(world, lifted, grasp.yaw, _CLOSED, manner, tolerance=0.02, slowly=True)
    if world.position(goal.item)[2] < before + 0.02:
        yield from _let_go(world, grasp.yaw, manner)
        return
    held = world.hand() - world.position(goal.item)
    clear = roof + bottom + held[2] + 0.05
    carry = np.array([*world.hand()[:2], max(clear, world.hand()[2])])
    yield from _go(world, carry, grasp.yaw, _CLOSED, manner, tolerance=0.02)
    over = np.array([*(world.position(goal.place) + held)[:2], carry[2]])
    way = (world.hand() + over) / 2 + _flat(manner.detour / 2)
    yield from _go(world, way, grasp.yaw, _CLOSED, manner, tolerance=0.04)
    yield from _go(world, over, grasp.yaw, _CLOSED, manner, tolerance=0.01)
    # What slid in the fingers on the way is put right over the goal.
    held = world.hand() - world.position(goal.item)
    over = np.array([*(world.position(goal.place) + held)[:2], carry[2]])
    yield from _go(world, over, grasp.yaw, _CLOSED, manner, tolerance=0.008)
    if goal.relation == "on":
        yield from _lower(world, goal, grasp.yaw, manner)
    else:
        yield from _go(world, over - _up(0.04), grasp.yaw, _CLOSED, manner, tolerance=0.015, slowly=True)
    yield from _let_go(world, grasp.yaw, manner)


def _let_go(world: GroundTruth, yaw: float, manner: Manner) -> Iterator[F32]:
    here = world.hand()
    for _ in range(manner.grip):
        yield _action(world, here, yaw, _OPEN, 0.2)
    yield from _go(world, here + _up(manner.hover), yaw, _OPEN, manner, tolerance=0.03)


def _lower(world: GroundTruth, goal: Goal, yaw: float, manner: Manner) -> Iterator[F32]:
    """Down until the thing in hand rests on something."""
    heights: list[float] = []
    for _ in range(80):
        heights.append(float(world.position(goal.item)[2]))
        if len(heights) > 8 and heights[-6] - heights[-1] < 0.003:
            return
        held = world.hand() - world.position(goal.item)
        aim = np.array([*(world.position(goal.place) + held)[:2], world.hand()[2] - 0.02])
        yield _action(world, aim, yaw, _CLOSED, 0.4 * manner.speed)


def _go(
    world: GroundTruth, aim: F64, yaw: float, gripper: float, manner: Manner, *, tolerance: float, slowly: bool = False
) -> Iterator[F32]:
    speed = 0.5 * manner.speed if slowly else manner.speed
    for _ in range(_PATIENCE):
        near = np.linalg.norm(aim - world.hand()) < tolerance
        if near and np.linalg.norm(world.turn_error(yaw)) < 0.12:
            return
        yield _action(world, aim, yaw, gripper, speed)


def _action(world: GroundTruth, aim: F64, yaw: float, gripper: float, speed: float) -> F32:
    move = (aim - world.hand()) * _METRE
    move = move * min(1.0, speed / max(float(np.linalg.norm(move)), 1e-9))
    turn = np.clip(world.turn_error(yaw) * _RADIAN, -0.6, 0.6)
    return np.array([*move, *turn, gripper], np.float32)


def _up(height: float) -> F64:
    return np.array([0.0, 0.0, height])


def _flat(offset: F64) -> F64:
    return np.array([*offset, 0.0])
