"""Scripted experts: waypoint state machines that read the true poses, with a random style in each demonstration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from besttake.core.arithmetic import length
from besttake.testbed.tasks import Vector, World
from besttake.types import F32

Style = Literal["std", "alt"]

_NEAR = 0.010
_SPEED = 30.0
"""Action per metre of position error at a gain of 1."""


class Expert:
    """Acts in one demonstration.

    ``std`` moves low and fast. ``alt`` takes high, slow arcs, which from many starts take longer than the task's
    horizon: a policy trained on them has another action prior, and often runs out of time.
    """

    def __init__(self, task: str, rng: np.random.Generator, style: Style = "std") -> None:
        self._rng = rng
        self._phase = "above"
        self._waited = 0
        self._travel = rng.uniform(0.10, 0.14)
        self._gain = rng.uniform(0.8, 1.0)
        self._tremor = rng.uniform(0.0, 0.15)
        if style == "alt":
            self._travel = rng.uniform(0.17, 0.21)
            self._gain = rng.uniform(0.26, 0.34)
        moves: dict[str, Callable[[World], tuple[Vector, float]]] = {
            "pick": self._place,
            "stack": self._place,
            "push": self._push,
            "drawer": self._pull,
        }
        self._move = moves[task]

    def act(self, world: World) -> F32:
        """The next action, float32 (4,)."""
        motion, grip = self._move(world)
        motion = motion + self._rng.normal(0, self._tremor, 3)
        return np.array([*np.clip(motion, -1, 1), grip], np.float32)

    def _go(self, world: World, where: Vector, height: float) -> Vector:
        """The motion towards the x and y of ``where``, at ``height``."""
        error = np.array([where[0], where[1], height]) - world.hand()
        return np.asarray(np.clip(error * _SPEED * self._gain, -1, 1), np.float64)

    def _wait(self, steps: int, then: str) -> Vector:
        self._waited += 1
        if self._waited > steps:
            self._phase, self._waited = then, 0
        return np.zeros(3)

    def _place(self, world: World) -> tuple[Vector, float]:
        hand, thing, goal = world.hand(), world.object(), world.goal()
        rest = 0.022 if world.task == "pick" else 0.066
        slip = hand[:2] - thing[:2]
        if self._phase in ("carry", "lower") and thing[2] < 0.03 and length(thing - hand) > 0.05:
            self._phase = "above"
        if self._phase == "above" and length(slip) < _NEAR:
            self._phase = "reach"
        if self._phase == "reach" and hand[2] < 0.018:
            self._phase = "grasp"
        if self._phase == "lift" and hand[2] > self._travel - 0.02:
            self._phase = "carry"
        if self._phase == "carry" and length((thing - goal)[:2]) < _NEAR:
            self._phase = "lower"
        if self._phase == "lower" and thing[2] < rest + 0.004:
            self._phase = "release"
        match self._phase:
            case "above":
                return self._go(world, thing, self._travel), -1.0
            case "reach":
                return self._go(world, thing, 0.012), -1.0
            case "grasp":
                return self._wait(4, "lift"), 1.0
            case "lift":
                return self._go(world, hand, self._travel), 1.0
            case "carry":
                return self._go(world, goal[:2] + slip, self._travel), 1.0
            case "lower":
                return self._go(world, goal[:2] + slip, rest - 0.012), 1.0
            case "release":
                return self._wait(4, "leave"), -1.0
            case _:
                return self._go(world, hand, self._travel), -1.0

    def _push(self, world: World) -> tuple[Vector, float]:
        hand, thing, goal = world.hand(), world.object()[:2], world.goal()[:2]
        left = float(length(goal - thing))
        along = (goal - thing) / (left + 1e-9)
        behind = thing - along * 0.065
        offset = hand[:2] - thing
        ahead = float((offset * along).sum())
        aside = offset - ahead * along
        if self._phase == "above" and length(behind - hand[:2]) < _NEAR * 1.3:
            self._phase = "reach"
        if self._phase == "reach" and hand[2] < 0.02:
            self._phase = "push"
        if self._phase == "push":
            if left < 0.012:
                self._phase = "leave"
            elif ahead > 0 or length(aside) > 0.03:
                self._phase = "retreat"
        if self._phase == "retreat" and hand[2] > self._travel - 0.03:
            self._phase = "above"
        match self._phase:
            case "above":
                motion = self._go(world, behind, self._travel)
            case "reach":
                motion = self._go(world, behind, 0.012)
            case "push":
                motion = self._go(world, thing - along * 0.02 - aside, 0.012)
                fastest = 0.6 if left > 0.05 else 0.35
                motion[:2] *= min(1.0, fastest / (float(length(motion[:2])) + 1e-9))
            case _:
                motion = self._go(world, hand, self._travel)
        return motion, 1.0

    def _pull(self, world: World) -> tuple[Vector, float]:
        hand, handle = world.hand(), world.object()
        if self._phase == "above" and length((handle - hand)[:2]) < _NEAR:
            self._phase = "reach"
        if self._phase == "reach" and hand[2] < handle[2] - 0.016:
            self._phase = "grasp"
        match self._phase:
            case "above":
                return self._go(world, handle, handle[2] + self._travel * 0.6), -1.0
            case "reach":
                return self._go(world, handle, handle[2] - 0.022), -1.0
            case "grasp":
                return self._wait(3, "pull"), 1.0
            case _:
                return self._go(world, hand - [0, 0.1, 0], hand[2]), 1.0
