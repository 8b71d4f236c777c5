"""What a worker does: hold a few environments (slots) and play takes in them, chunk by chunk.

The engine sends a list of orders and gets a list of answers back, one per order. This file knows nothing of processes,
pipes or Ray, so that every way of running workers plays the same takes.
"""

from __future__ import annotations

import io
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any

import numpy as np

from besttake import registry
from besttake.envs.base import Env, Restorable, checked_picture, checked_state, checked_step
from besttake.errors import failure, one_line
from besttake.takes.jobs import Act, Actor, Answer, Begin, End, Failed, Job, Need, Order, Sampler, next_blocks
from besttake.takes.take import Film, Take
from besttake.threads import outcome
from besttake.types import F32, U8, Observation, Start

_SNAPSHOTS = 4


class Worker:
    """Plays takes in slots. Takes of one start share one reset where the env can restore it exactly."""

    def __init__(self) -> None:
        self._envs: dict[tuple[int, str], Env] = {}
        self._snapshots: OrderedDict[tuple[str, Start], Any] = OrderedDict()
        self._playing: dict[int, _Playing] = {}
        self._samplers: dict[tuple[Actor | None, str], Sampler] = {}

    def obey(self, orders: Sequence[Order]) -> list[Answer]:
        """Carry out orders, one per slot; takes that have an actor are played to their end, side by side."""
        answers = {order.slot: self._carry_out(order) for order in orders}
        while acting := [slot for slot, answer in answers.items() if isinstance(answer, Need) and self._actor(slot)]:
            for actor in dict.fromkeys(map(self._actor, acting)):
                own = [slot for slot in acting if self._actor(slot) == actor]
                for slot, block in zip(own, self._blocks([self._playing[slot] for slot in own]), strict=True):
                    if isinstance(block, Exception):
                        answers[slot] = self._playing.pop(slot).failed(block)
                    else:
                        answers[slot] = self._carry_out(Act(slot, block))
        return list(answers.values())

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs.values():
            outcome(env.close)
        self._envs.clear()

    def _actor(self, slot: int) -> Actor | None:
        return self._playing[slot].job.actor

    def _blocks(self, takes: Sequence[_Playing]) -> Sequence[F32 | Exception]:
        """What one actor does in each of ``takes``. Only the last actor is kept: policies come one after the other."""
        job, env = takes[0].job, takes[0].env
        name = (job.actor, job.key.env)
        if name not in self._samplers:
            assert job.actor is not None
            try:
                self._samplers = {name: job.actor.sampler(env.spec)}
            except BaseException as error:
                return [failure(error)] * len(takes)
        return next_blocks(self._samplers[name], [playing.request for playing in takes])

    def _carry_out(self, order: Order) -> Answer:
        """Begin or continue a take. Where that raises, trust neither the take nor its environment any more."""
        slot = order.slot
        if isinstance(order, Begin):
            self._playing[slot] = _Playing(order)
        playing = self._playing[slot]
        try:
            if isinstance(order, Begin):
                playing.env = self._env(slot, order.job)
                self._reset(playing.env, order.job)
            elif playing.execute(order.actions):
                return End(slot, self._playing.pop(slot).take(), playing.seconds)
            return playing.need()
        except BaseException as error:
            self._playing.pop(slot, None)
            env = self._envs.pop((slot, playing.job.key.env), None)
            if env is not None:
                outcome(env.close)
            return playing.failed(failure(error))

    def _env(self, slot: int, job: Job) -> Env:
        name = (slot, job.key.env)
        if name not in self._envs:
            for other in [key for key in self._envs if key[0] == slot]:
                self._envs.pop(other).close()
            with redirect_stderr(io.StringIO()):  # what its package says at import, the parent has shown once
                # The parent has opened the same env, and one of the hub only because it was allowed to.
                self._envs[name] = registry.env(job.key.env, trust_remote_code=job.key.env.startswith("hub:"))
        return self._envs[name]

    def _reset(self, env: Env, job: Job) -> None:
        start = Start(job.key.task, job.key.start)
        name = (job.key.env, start)
        if isinstance(env, Restorable) and name in self._snapshots:
            self._snapshots.move_to_end(name)
            env.restore(self._snapshots[name])
            return
        env.reset(start)
        if isinstance(env, Restorable):
            self._snapshots[name] = env.save()
            while len(self._snapshots) > _SNAPSHOTS:
                self._snapshots.popitem(last=False)


class _Playing:
    """A take under way."""

    env: Env

    def __init__(self, order: Begin) -> None:
        self.slot, self.job, self.request = order.slot, order.job, order.request
        self.step = self.calls = 0
        self.success_step: int | None = None
        self.actions: list[F32] = []
        self.states: list[F32] = []
        self.frames: list[U8] = []
        self.frame_steps: list[int] = []
        self._began = time.perf_counter()
        self._states_sent = 0

    @property
    def seconds(self) -> float:
        """How long the take has been under way."""
        return time.perf_counter() - self._began

    def need(self) -> Need:
        """Ask for the next actions: the engine, or the take's actor by its request."""
        observation = self._look(replan=True)
        sent, self._states_sent = self._states_sent, len(self.states)
        states = np.stack(self.states[sent:])
        need = Need(self.slot, observation, self.step, states)
        if self.job.actor is not None:
            need.update(self.request)
        return need

    def execute(self, actions: F32) -> bool:
        """Execute ``actions``; True when the take is over."""
        for index, action in enumerate(actions):
            success, done = checked_step(self.env.step(action))
            self.step += 1
            self.actions.append(action)
            if success and self.success_step is None:
                self.success_step = self.step
            stop = done or (success and not self.job.goes_on)
            over = stop or self.step >= self.job.horizon
            if over or index < len(actions) - 1:
                self._look(replan=False)
            if over:
                return True
        return False

    def take(self) -> Take:
        """The finished take."""
        return Take(
            self.job.key, self.success_step, np.asarray(self.actions, np.float32), np.stack(self.states),
            Film.pack(np.stack(self.frames)), np.asarray(self.frame_steps, np.int32), self.calls,
        )  # fmt: skip

    def failed(self, error: Exception) -> Failed:
        """The answer of a take that raised ``error``."""
        return Failed(self.slot, self.job.key, one_line(error), self.seconds)

    def _look(self, *, replan: bool) -> Observation:
        """Observe what this step needs: the policy's cameras when it replans, the score camera at its stride."""
        job = self.job
        scored = self.step % job.stride == 0
        wanted = dict.fromkeys((*(job.cameras if replan else ()), *((job.score_camera,) if scored else ())))
        seen = self.env.observe(tuple(wanted))
        pictures = {camera: checked_picture(camera, seen.images.get(camera)) for camera in wanted}
        if scored:
            self.frames.append(pictures[job.score_camera])
            self.frame_steps.append(self.step)
        self.states.append(checked_state(self.env.spec, seen.state))
        self.calls += replan
        return seen
