"""Pick-and-place as a plan that looks before each action: ``plan`` yields actions (7,) until it is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from besttake.envs.libero.harness import GRIPPER_OPEN
from besttake.types import F32
from scripted_libero.ground_truth import F64, Goal, GroundTruth

# LIBERO's controller moves 0.05 m and turns 0.5 rad for an action of 1.
_PER_METRE, _PER_RADIAN = 1 / 0.05, 1 / 0.5
_OPEN, _CLOSED = float(GRIPPER_OPEN), -float(GRIPPER_OPEN)
_ATTEMPTS = 3
_MOST_STEPS = 60


@dataclass(frozen=True)
class Manner:
    """How one demonstration differs from the next: speed, hover height, detour, aiming error, steps to grip."""

    speed: float
    hover: float
    detour: F64
    slip: F64
    grip: int

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Manner:
        """A random manner."""
        return cls(
            speed=float(rng.uniform(0.55, 1.0)),
            hover=float(rng.uniform(0.07, 0.13)),
            detour=rng.uniform(-0.08, 0.08, 2),
            slip=rng.normal(0, 0.002, 2),
            grip=int(rng.integers(8, 14)),
        )


def plan(world: GroundTruth, manner: Manner) -> Iterator[F32]:
    """Meet the goal's conditions one after the other; a condition that already holds is left alone."""
    for goal in world.goals() or ():
        for attempt in range(_ATTEMPTS):
            if not world.holds(goal):
                yield from _Hand(world, manner, goal, attempt).pick_and_place()


class _Hand:
    """One attempt to meet one goal. Every method yields actions."""

    def __init__(self, world: GroundTruth, manner: Manner, goal: Goal, attempt: int) -> None:
        self._world, self._manner, self._goal = world, manner, goal
        grasp = world.grasp(goal.item, attempt)
        self._point, self._yaw, self._gripper = grasp.point + _flat(manner.slip), grasp.yaw, _OPEN

    def pick_and_place(self) -> Iterator[F32]:
        world, manner, goal = self._world, self._manner, self._goal
        above = self._point + _up(manner.hover)
        between = (world.hand() + above) / 2 + _flat(manner.detour) + _up(manner.hover / 2)
        yield from self._go(between, tolerance=0.04)
        yield from self._go(above, tolerance=0.012)
        yield from self._go(self._point, tolerance=0.006, slowly=True)
        yield from self._grip(_CLOSED, self._point)

        bottom = world.position(goal.item)[2] - world.shape(goal.item)[:, 2].min()
        roof = world.shape(goal.place)[:, 2].max()
        height = world.position(goal.item)[2]
        yield from self._go(world.hand() + _up(0.06), tolerance=0.02, slowly=True)
        if world.position(goal.item)[2] >= height + 0.02:  # else the grasp has failed
            clear = roof + bottom + self._offset()[2] + 0.05
            yield from self._carry(max(clear, world.hand()[2]))
        yield from self._grip(_OPEN, here := world.hand())
        yield from self._go(here + _up(manner.hover), tolerance=0.03)

    def _carry(self, height: float) -> Iterator[F32]:
        """Bring the item over its place at ``height``, and down."""
        world, offset = self._world, self._offset()
        yield from self._go(np.array([*world.hand()[:2], height]), tolerance=0.02)
        over = self._over_place(offset, height)
        yield from self._go((world.hand() + over) / 2 + _flat(self._manner.detour / 2), tolerance=0.04)
        yield from self._go(over, tolerance=0.01)
        # The item may have slid in the fingers on the way.
        over = self._over_place(self._offset(), height)
        yield from self._go(over, tolerance=0.008)
        if self._goal.relation == "on":
            yield from self._lower()
        else:
            yield from self._go(over - _up(0.04), tolerance=0.015, slowly=True)

    def _lower(self) -> Iterator[F32]:
        """Go down until the item rests on something."""
        heights: list[float] = []
        for _ in range(80):
            heights.append(float(self._world.position(self._goal.item)[2]))
            if len(heights) > 8 and heights[-6] - heights[-1] < 0.003:
                return
            aim = self._over_place(self._offset(), self._world.hand()[2] - 0.02)
            yield self._action(aim, 0.4 * self._manner.speed)

    def _grip(self, gripper: float, aim: F64) -> Iterator[F32]:
        """Open or close the gripper at ``aim``; it stays so."""
        self._gripper = gripper
        for _ in range(self._manner.grip):
            yield self._action(aim, 0.2)

    def _go(self, aim: F64, *, tolerance: float, slowly: bool = False) -> Iterator[F32]:
        speed = 0.5 * self._manner.speed if slowly else self._manner.speed
        for _ in range(_MOST_STEPS):
            near = np.linalg.norm(aim - self._world.hand()) < tolerance
            if near and np.linalg.norm(self._world.turn_error(self._yaw)) < 0.12:
                return
            yield self._action(aim, speed)

    def _action(self, aim: F64, speed: float) -> F32:
        move = (aim - self._world.hand()) * _PER_METRE
        move = move * min(1.0, speed / max(float(np.linalg.norm(move)), 1e-9))
        turn = np.clip(self._world.turn_error(self._yaw) * _PER_RADIAN, -0.6, 0.6)
        return np.array([*move, *turn, self._gripper], np.float32)

    def _offset(self) -> F64:
        """From the item in hand to the hand (3,)."""
        return self._world.hand() - self._world.position(self._goal.item)

    def _over_place(self, offset: F64, height: float) -> F64:
        """Where the hand is at ``height`` when the item, held at ``offset``, is over its place (3,)."""
        return np.array([*(self._world.position(self._goal.place) + offset)[:2], height])


def _up(height: float) -> F64:
    return np.array([0.0, 0.0, height])


def _flat(offset: F64) -> F64:
    return np.array([*offset, 0.0])
