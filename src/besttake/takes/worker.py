"""What a worker does: hold a few environments (slots) and play takes in them, chunk by chunk.

The engine sends a list of orders and gets a list of answers back, one per order. This file knows nothing of processes,
pipes or Ray, so that every way of running workers plays the same takes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from besttake import registry
from besttake.arms.base import Request
from besttake.envs.base import Env, Restorable
from besttake.errors import one_line
from besttake.takes.film import Film
from besttake.takes.orders import Act, Answer, Begin, End, Failed, Job, Need, Order
from besttake.takes.sampling import Actor, Sampler, next_blocks
from besttake.takes.take import Take
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
        """Carry out orders one after the other; takes that have an actor are played to their end, side by side."""
        answers = [self._begin(order) if isinstance(order, Begin) else self._act(order) for order in orders]
        while acting := {row: playing for row, answer in enumerate(answers) if (playing := self._acting(answer))}:
            for row, answer in zip(acting, self._go_on(list(acting.values())), strict=True):
                answers[row] = answer
        return answers

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs.values():
            env.close()
        self._envs.clear()

    def _acting(self, answer: Answer) -> _Playing | None:
        """The take that ``answer`` asks actions for, when it has an actor to give them."""
        if not isinstance(answer, Need):
            return None
        playing = self._playing[answer.slot]
        if playing.job.actor is None:
            return None
        answer.update(playing.request)
        return playing

    def _go_on(self, takes: Sequence[_Playing]) -> list[Answer]:
        """Let the actors act, all takes of an actor at once, and execute what they do."""
        answers: dict[int, Answer] = {}
        for actor in dict.fromkeys(playing.job.actor for playing in takes):
            own = [playing for playing in takes if playing.job.actor == actor]
            for playing, block in zip(own, self._blocks(own), strict=True):
                answers[playing.slot] = (
                    self._give_up(playing, block)
                    if isinstance(block, Exception)
                    else self._act(Act(playing.slot, block))
                )
        return [answers[playing.slot] for playing in takes]

    def _blocks(self, takes: Sequence[_Playing]) -> Sequence[F32 | Exception]:
        """What one actor does in each of ``takes``. Only the last actor is kept: policies come one after the other."""
        job, env = takes[0].job, takes[0].env
        name = (job.actor, job.key.env)
        if name not in self._samplers:
            assert job.actor is not None
            try:
                self._samplers = {name: job.actor.sampler(env.spec)}
            except Exception as error:
                return [error] * len(takes)
        return next_blocks(self._samplers[name], [playing.request for playing in takes], len(takes))

    def _give_up(self, playing: _Playing, error: Exception) -> Failed:
        del self._playing[playing.slot]
        return Failed(playing.slot, playing.job.key, one_line(error), time.perf_counter() - playing.began)

    def _begin(self, order: Begin) -> Answer:
        began = time.perf_counter()
        job = order.job
        try:
            env = self._env(order.slot, job)
            self._reset(env, job)
            playing = _Playing(order, env, began)
            self._playing[order.slot] = playing
            return Need(order.slot, playing.look(replan=True), 0, playing.new_states())
        except Exception as error:
            return self._fail(order.slot, job, error, began)

    def _act(self, order: Act) -> Answer:
        playing = self._playing[order.slot]
        try:
            if playing.execute(order.actions):
                del self._playing[order.slot]
                return End(order.slot, playing.take(), time.perf_counter() - playing.began)
            return Need(order.slot, playing.look(replan=True), playing.step, playing.new_states())
        except Exception as error:
            return self._fail(order.slot, playing.job, error, playing.began)

    def _fail(self, slot: int, job: Job, error: Exception, began: float) -> Failed:
        """Record the reason, and trust neither the take nor the environment that raised."""
        self._playing.pop(slot, None)
        env = self._envs.pop((slot, job.key.env), None)
        if env is not None:
            _close_quietly(env)
        return Failed(slot, job.key, one_line(error), time.perf_counter() - began)

    def _env(self, slot: int, job: Job) -> Env:
        name = (slot, job.key.env)
        if name not in self._envs:
            for other in [key for key in self._envs if key[0] == slot]:
                self._envs.pop(other).close()
            self._envs[name] = registry.env(job.key.env)
        return self._envs[name]

    def _reset(self, env: Env, job: Job) -> None:
        start = Start(job.key.task, job.key.start)
        if not isinstance(env, Restorable):
            env.reset(start)
            return
        name = (job.key.env, start)
        if name in self._snapshots:
            self._snapshots.move_to_end(name)
            env.restore(self._snapshots[name])
            return
        env.reset(start)
        self._snapshots[name] = env.save()
        while len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)


class _Playing:
    """A take under way."""

    def __init__(self, order: Begin, env: Env, began: float) -> None:
        self.slot, self.job, self.env, self.began = order.slot, order.job, env, began
        self.request = Request(order.job.key.task, order.job.key.arm, order.draw)
        self.step = 0
        self.calls = 0
        self.success_step: int | None = None
        self.actions: list[F32] = []
        self.states: list[F32] = []
        self.frames: list[U8] = []
        self.frame_steps: list[int] = []
        self._states_sent = 0

    def look(self, *, replan: bool) -> Observation:
        """Observe what this step needs: the policy's cameras when it replans, the score camera at its stride."""
        job = self.job
        scored = self.step % job.stride == 0
        wanted = dict.fromkeys((*(job.cameras if replan else ()), *((job.score_camera,) if scored else ())))
        seen = self.env.observe(tuple(wanted))
        if scored:
            self.frames.append(seen.images[job.score_camera])
            self.frame_steps.append(self.step)
        self.states.append(np.asarray(seen.state, np.float32))
        self.calls += replan
        return seen

    def new_states(self) -> F32:
        """The states since the last call, (R, state_dim)."""
        sent, self._states_sent = self._states_sent, len(self.states)
        return np.stack(self.states[sent:])

    def execute(self, actions: F32) -> bool:
        """Execute ``actions``; True when the take is over."""
        for index, action in enumerate(actions):
            outcome = self.env.step(action)
            self.step += 1
            self.actions.append(action)
            if outcome.success and self.success_step is None:
                self.success_step = self.step
            stop = outcome.done or (outcome.success and not self.job.goes_on)
            over = stop or self.step >= self.job.horizon
            if over or index < len(actions) - 1:
                self.look(replan=False)
            if over:
                return True
        return False

    def take(self) -> Take:
        """The finished take."""
        return Take(
            key=self.job.key,
            success_step=self.success_step,
            actions=np.asarray(self.actions, np.float32),
            states=np.stack(self.states),
            film=Film.pack(np.stack(self.frames)),
            frame_steps=np.asarray(self.frame_steps, np.int32),
            calls=self.calls,
        )


def _close_quietly(env: Env) -> None:
    try:
        env.close()
    except Exception:
        return
