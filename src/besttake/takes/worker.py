"""A worker holds a few environments, one per slot, and plays takes in them, chunk by chunk.

The engine sends a list of orders and gets a list of replies back, one per order. This file knows nothing of processes,
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
from besttake.takes.jobs import Act, Begin, End, Failed, Job, NeedsActions, Order, Reply, Sampler, next_actions
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
        self._samplers: dict[Any, Sampler] = {}

    def obey(self, orders: Sequence[Order]) -> list[Reply]:
        """Carry out orders, one per slot. Takes with a sampler factory are played to their end, side by side."""
        replies = {order.slot: self._carry_out(order) for order in orders}
        while acting := [slot for slot in replies if self._samples_here(slot)]:
            for factory in dict.fromkeys(self._playing[slot].job.factory for slot in acting):
                group = [slot for slot in acting if self._playing[slot].job.factory == factory]
                for slot, actions in zip(group, self._sample([self._playing[slot] for slot in group]), strict=True):
                    if isinstance(actions, Exception):
                        replies[slot] = self._playing.pop(slot).failed(actions)
                    else:
                        replies[slot] = self._carry_out(Act(slot, actions))
        return list(replies.values())

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs.values():
            outcome(env.close)
        self._envs.clear()

    def _samples_here(self, slot: int) -> bool:
        """Whether the take in ``slot`` goes on, with a sampler in this worker."""
        return slot in self._playing and self._playing[slot].job.factory is not None

    def _sample(self, takes: Sequence[_Playing]) -> Sequence[F32 | Exception]:
        """Sample the next actions of takes with the same factory; only the sampler of the last one is kept."""
        job, env = takes[0].job, takes[0].env
        name = (job.factory, job.key.env)
        if name not in self._samplers:
            assert job.factory is not None
            try:
                self._samplers = {name: job.factory.sampler(env.spec)}
            except BaseException as error:
                return [failure(error)] * len(takes)
        return next_actions(self._samplers[name], [playing.state for playing in takes])

    def _carry_out(self, order: Order) -> Reply:
        """Begin or continue a take. If that raises, the take fails and its environment is not used again."""
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
            return playing.ask_for_actions()
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
            with redirect_stderr(io.StringIO()):  # the parent has shown once what the package says at import
                # The parent has opened the same env, and one from the hub only if that was allowed.
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
    """A take in progress."""

    env: Env

    def __init__(self, order: Begin) -> None:
        self.slot, self.job, self.state = order.slot, order.job, order.state
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
        """How long the take has been in progress."""
        return time.perf_counter() - self._began

    def ask_for_actions(self) -> NeedsActions:
        """The reply that asks for the next actions; a take that is sampled here also updates its own state."""
        observation = self._observe(replan=True)
        sent, self._states_sent = self._states_sent, len(self.states)
        reply = NeedsActions(self.slot, observation, self.step, np.stack(self.states[sent:]))
        if self.job.factory is not None:
            reply.update(self.state)
        return reply

    def execute(self, actions: F32) -> bool:
        """Execute ``actions``; True if the take has ended."""
        for index, action in enumerate(actions):
            success, done = checked_step(self.env.step(action))
            self.step += 1
            self.actions.append(action)
            if success and self.success_step is None:
                self.success_step = self.step
            ended = done or (success and not self.job.goes_on) or self.step >= self.job.horizon
            if ended or index < len(actions) - 1:
                self._observe(replan=False)
            if ended:
                return True
        return False

    def take(self) -> Take:
        """The finished take."""
        return Take(
            self.job.key, self.success_step, np.asarray(self.actions, np.float32), np.stack(self.states),
            Film.pack(np.stack(self.frames)), np.asarray(self.frame_steps, np.int32), self.calls,
        )  # fmt: skip

    def failed(self, error: Exception) -> Failed:
        """The reply for a take that raised ``error``."""
        return Failed(self.slot, self.job.key, one_line(error), self.seconds)

    def _observe(self, *, replan: bool) -> Observation:
        """Observe what this step needs: the policy's cameras when it replans, the score camera at its stride."""
        job = self.job
        scored = self.step % job.stride == 0
        wanted = dict.fromkeys((*(job.cameras if replan else ()), *((job.score_camera,) if scored else ())))
        observation = self.env.observe(tuple(wanted))
        pictures = {camera: checked_picture(camera, observation.images.get(camera)) for camera in wanted}
        if scored:
            self.frames.append(pictures[job.score_camera])
            self.frame_steps.append(self.step)
        self.states.append(checked_state(self.env.spec, observation.state))
        self.calls += replan
        return observation
