"""A session on a real robot: a client plays the takes, an operator judges them, and neither knows the arm.

Three kinds of threads meet here. The server's thread begins the next take (`RobotSession.begin`) and records it. The
threads of the page bring the operator's orders. The command's thread (`RobotSession.play`) carries these out one after
the other, so that nothing is entered twice; only this thread writes. Each order is written to ``session.jsonl`` first.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from besttake.config import Plan
from besttake.errors import ComponentError, PlanError, RolloutError, RunError, one_line
from besttake.measure.looks import Unit, random_order
from besttake.measure.partial import fixed_cells, partial_cell, settings_of
from besttake.serving.served import Client, ServedEpisode, ServedPolicy
from besttake.takes.jobs import take_draw
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store
from besttake.takes.take import Film, Take
from besttake.types import F32, U8, EnvSpec, Observation

LOG = "session.jsonl"
OUTCOMES = ("success", "failure", "spoiled")
_CORRECTED, _READY = "corrected to ", "ready"
_POLL_INTERVAL = 0.05
"""Seconds between two checks for an order."""
_ORDER_TIMEOUT = 60.0
"""Seconds for which the page waits until an order is carried out."""
_LONGEST_REASON = 200


def in_blocks(keys: Sequence[TakeKey], seed: int) -> list[TakeKey]:
    """The takes in the order of play: starts in random order, and for each start block after block of one seed.

    A block has each arm once, in random order.
    """
    order = {unit: i for i, unit in enumerate(random_order([_start_of(key) for key in keys], seed))}

    def rank(key: TakeKey) -> tuple[int, int, bytes]:
        random = hashlib.sha256(json.dumps([seed, *_start_of(key), key.seed, key.arm]).encode()).digest()
        return order[_start_of(key)], key.seed, random

    return sorted(keys, key=rank)


def _start_of(key: TakeKey) -> Unit:
    return key.env, key.task, key.start


@dataclass(frozen=True)
class LogEntry:
    """An order of the operator about a take, and its time. ``take`` is the id of its key, which hides the arm."""

    said: str
    take: str
    task: str
    start: int
    seed: int
    reason: str = ""
    at: str = field(default_factory=lambda: _now())

    @classmethod
    def of(cls, said: str, key: TakeKey, reason: str = "") -> LogEntry:
        """An entry about the take ``key``, made now."""
        return cls(said, key.id, key.task, key.start, key.seed, reason)

    @property
    def name(self) -> str:
        """The take in words."""
        return f"take {self.seed + 1} of start {self.start}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class SessionLog:
    """The operator's orders in a file, one per line; an unfinished last line of a killed writer is dropped."""

    def __init__(self, path: Path | None = None) -> None:
        self.entries: list[LogEntry] = []
        if path is None:
            return
        self._path = path
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        if lines.pop():
            path.write_bytes(b"".join(line + b"\n" for line in lines))
        try:
            self.entries = [LogEntry(**json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise RunError(f"{path} is damaged; restore a copy of it, or begin another session") from error

    def add(self, entry: LogEntry) -> None:
        """Add an entry, which is on the disk when this returns."""
        with self._path.open("ab") as file:
            file.write(json.dumps(asdict(entry)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)

    def judged(self) -> dict[str, LogEntry]:
        """The last judgement of each take by its id, in the order of play, without spoiled takes."""
        return {entry.take: entry for entry in self.entries if entry.said not in ("spoiled", _READY)}

    def deviations(self) -> list[str]:
        """The deviations from the plan, a line each."""
        spoiled = Counter(entry.reason or "no reason given" for entry in self.entries if entry.said == "spoiled")
        lines = [f"takes that were spoiled and played again: {times} ({reason})" for reason, times in spoiled.items()]
        corrected = [f"#{number}" for number, entry in enumerate(self.judged().values(), 1) if _CORRECTED in entry.said]
        lines += [f"outcomes that were corrected afterwards: {', '.join(corrected)}"] if corrected else []
        begun = sum(entry.said == _READY for entry in self.entries)
        lost = begun - sum(entry.said in OUTCOMES for entry in self.entries)
        return lines + ([f"takes that were begun, and never judged: {lost}"] if lost else [])


class SessionTake(ServedEpisode):
    """A take that a client plays. ``first_view`` and ``view`` are its first and its last picture."""

    def __init__(self, served: ServedPolicy, client: Client, key: TakeKey, plan: Plan, env: EnvSpec) -> None:
        super().__init__(served, client, take_draw(plan.seed, key), key.task)
        self.history.arm = key.arm
        self.key, self.client, self.began = key, client, time.monotonic()
        self.number = secrets.token_hex(6)
        self.calls = 0
        self.first_view: U8 | None = None
        self.view: U8 | None = None
        self.camera, self.stride = env.score_camera, plan.stride
        self._env = env

    @property
    def steps(self) -> int:
        """The number of executed actions, as far as it is known."""
        return min(len(self.history.actions) + self.unconfirmed, self._env.task(self.key.task).horizon)

    def keeps_frame(self, step: int) -> bool:
        """Whether the picture of this step is kept."""
        return super().keeps_frame(step) and step <= self._env.task(self.key.task).horizon

    def record(self, observation: Observation, step: int) -> None:
        """Record the client's observation before the action ``step``."""
        super().record(observation, step)
        if self.camera:
            self.view = observation.images[self.camera]
            self.first_view = self.view if self.first_view is None else self.first_view

    async def sample(self, observation: Observation) -> F32:
        """The next chunk, (horizon, action_dim), for the plan's instruction, whatever the client's is."""
        task = self._env.task(self.key.task)
        chunk = await super().sample(replace(observation, instruction=task.instruction))
        self.calls += not self.over
        return chunk

    def finish(self, *, success: bool) -> Take:
        """The take for the store. A state that the client did not send is that of the step before."""
        steps, dim = self.steps, self._env.action_dim
        actions = [*self.history.actions, *self.sampled[: self.unconfirmed]][:steps]
        states = [*self.history.states, *[self.history.states[-1]] * (steps + 1)][: steps + 1]
        frames = {step: frame for step, frame in self.frames.items() if step <= steps}
        film = np.stack([*frames.values()]) if frames else np.zeros((0, 1, 1, 3), np.uint8)
        return Take(
            self.key, steps if success else None, np.array(actions, np.float32).reshape(steps, dim),
            np.stack(states).astype(np.float32), Film.pack(film), np.array([*frames], np.int32), self.calls,
        )  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """The progress of a session: takes judged and planned, and questions settled and asked."""

    done: int = 0
    planned: int = 0
    settled: int = 0
    questions: int = 0


class RobotSession:
    """Plays the takes of a session one after the other, with a client and an operator.

    A take may begin when the operator has reported its start ready. Until then no client gets an action, so that no
    robot moves while somebody is near it. ``revealed``: the page may show the arm. ``ended``: the operator has ended
    the session. ``outdated``: an outcome was corrected after the last result.
    """

    def __init__(self, plan: Plan, *, revealed: bool = False) -> None:
        self.revealed, self.progress = revealed, Progress()
        self.ended = self.outdated = self._is_ready = False
        self._plan = plan
        self._orders: queue.Queue[tuple[Callable[[], str], Future[str]]] = queue.Queue()
        self._store: Store | None = None
        self._log = SessionLog()
        self._judged: Callable[[Row], None] = lambda row: None
        self._left: list[TakeKey] = []
        self._take: SessionTake | None = None
        self._first: dict[Unit, U8] = {}
        self._view: U8 | None = None

    # For the command's thread.

    def play(self, keys: Sequence[TakeKey], store: Store, judged: Callable[[Row], None]) -> None:
        """Have those of ``keys`` that the run lacks played and judged; return when all are, or the session ends.

        ``judged`` is called with the row of each.
        """
        self._store, self._judged, self._log = store, judged, SessionLog(store.path / LOG)
        try:
            self._correct_takes()
            done = {row.key for row in store.rows()}
            self._prepare_next(in_blocks([key for key in keys if key not in done], self._plan.seed))
            while self._left and not self.ended:
                self._carry_out_order()
        finally:
            self._store, self._left = None, []

    def wait(self) -> None:
        """Carry out corrections until the session ends."""
        while not self.ended:
            self._carry_out_order()

    def remarks(self) -> list[str]:
        """The deviations from the plan, a line each."""
        left, lines = self.progress.planned - self.progress.done, self._log.deviations()
        if left:
            lines.append(f"{left} takes were not played; intervals and answers assume a number fixed beforehand")
        return [f"deviation from the plan: {line}" for line in lines]

    def _carry_out_order(self) -> None:
        """Carry out the next order, if one comes soon; in between, Ctrl-C can interrupt."""
        try:
            order, answer = self._orders.get(timeout=_POLL_INTERVAL)
        except queue.Empty:
            return
        try:
            answer.set_result(order())
        except PlanError as error:
            answer.set_exception(error)
        except BaseException:
            answer.set_exception(RolloutError("the command has failed; the terminal in which it was started says why"))
            raise

    def _prepare_next(self, left: list[TakeKey]) -> None:
        """Prepare the first take that is ``left``: find the first picture of its start, and update the progress."""
        assert self._store is not None
        rows, settings = {row.key: row for row in self._store.rows()}, settings_of(self._store.manifest)
        if left and (start := _start_of(left[0])) not in self._first:
            played = [row for row in rows.values() if _start_of(row.key) == start and row.status == "done"]
            if played and len(frames := self._store.load(played[0]).frames()):
                self._first[start] = frames[0]
        # A run until decided leaves out arms that are settled, and looks at itself after each round.
        cells = [cell for cell in fixed_cells(self._store.manifest, rows) if cell.units and not self._plan.until]
        answers = [f.answer for cell in cells for f in partial_cell(cell, settings, None).findings.values()]
        settled = sum(answer != "open" for answer in answers)
        self.progress, self._left = Progress(len(rows), len(rows) + len(left), settled, len(answers)), left

    def _correct_takes(self) -> None:
        """Correct the outcomes of the run's takes that differ from the log."""
        assert self._store is not None
        judged = self._log.judged()
        for row in self._store.rows():
            success = row.success if row.key.id not in judged else judged[row.key.id].said.endswith("success")
            if row.status == "done" and success != row.success:
                take = self._store.load(row)
                self._store.replace(replace(take, success_step=take.steps if success else None), row.seconds)

    # For the server's thread.

    async def begin(self, served: ServedPolicy, client: Client, envs: Mapping[str, EnvSpec]) -> SessionTake:
        """Begin the next take if its start is ready; ComponentError says what must be done first."""
        last = self._take
        if last is not None and (last.calls or (last.client.is_open() and last.client is not client)):
            raise ComponentError("the last take has no outcome yet: judge it on the page, then begin again")
        if not self._left or not self._is_ready:
            raise ComponentError("no start is ready: set it up, press Ready on the page, then begin again")
        key = self._left[0]
        self._take = SessionTake(served, client, key, self._plan, envs[key.env])
        return self._take

    # The operator's orders, for the page's threads: each answers with one line; PlanError if it is impossible.

    def ready(self) -> str:
        """Report that the start of the next take is set up, and that nobody is near the robot."""
        return self._order(self._ready)

    def judge(self, number: str, outcome: str, reason: str = "") -> str:
        """Judge the take that the page calls ``number``: success, failure, or spoiled for a ``reason``."""
        return self._order(lambda: self._judge(number, outcome, " ".join(reason.split())[:_LONGEST_REASON]))

    def correct(self, take: str, outcome: str) -> str:
        """Correct the outcome of the take that was judged as the ``take``-th."""
        return self._order(lambda: self._correct(int(take), outcome))

    def end(self) -> str:
        """End the session."""
        return self._order(self._end)

    def _order(self, order: Callable[[], str]) -> str:
        """Have the command's thread carry out ``order``, and wait for its answer."""
        answer: Future[str] = Future()
        self._orders.put((order, answer))
        try:
            return answer.result(_ORDER_TIMEOUT)
        except TimeoutError:
            raise PlanError("the command does not answer; look at the terminal in which it was started") from None

    def _ready(self) -> str:
        if self._is_ready or self._take is not None or not self._left:
            raise PlanError("the start is ready already, or no take is left")
        self._log.add(LogEntry.of(_READY, self._left[0]))
        self._is_ready = True
        return "the robot may begin"

    def _judge(self, number: str, outcome: str, reason: str) -> str:
        take = self._take
        if take is None or take.number != number:
            raise PlanError("this take has an outcome already; correct it below if it is wrong")
        if outcome not in OUTCOMES:
            raise PlanError(f"an outcome is one of {', '.join(OUTCOMES)}")
        if outcome != "spoiled" and not take.calls:
            raise PlanError("nothing was played yet")
        assert self._store is not None
        take.over = True
        entry = LogEntry.of(outcome, take.key, reason)
        if outcome == "spoiled":
            self._log.add(entry)
        else:
            try:
                played = take.finish(success=outcome == "success")
            except Exception as error:  # a client can send anything, and the size of pictures is limited
                raise PlanError(
                    f"this take cannot be stored ({one_line(error)}): judge it spoiled; a larger --stride stores fewer"
                    " pictures"
                ) from error
            self._log.add(entry)
            self._judged(self._store.add(played, time.monotonic() - take.began))
            if take.first_view is not None:
                self._first.setdefault(_start_of(take.key), take.first_view)
            self._prepare_next(self._left[1:])
        self._view, self._take, self._is_ready = take.view, None, False
        return f"{entry.name}: {outcome}{', it is played again' if outcome == 'spoiled' else ''}"

    def _correct(self, take: int, outcome: str) -> str:
        judged = [*self._log.judged().values()]
        if not 1 <= take <= len(judged) or outcome not in OUTCOMES[:2]:
            raise PlanError("there is no such take, or no such outcome")
        entry = judged[take - 1]
        if entry.said.endswith(outcome):
            raise PlanError(f"#{take} is a {outcome} already")
        self._log.add(replace(entry, said=_CORRECTED + outcome, at=_now()))
        if self._store is not None:
            self._correct_takes()
        self.outdated = self._store is None
        return f"#{take}, {entry.name}, is a {outcome} now"

    def _end(self) -> str:
        if self._plan.until and self._left:
            raise PlanError("a session until decided ends by itself; Ctrl-C stops it, and the same command goes on")
        self.ended = True
        return "the session is over"

    def view(self) -> dict[str, Any]:
        """The content of the page, with pictures as arrays, and without the arm unless it is revealed."""
        take, left = self._take, self._left
        key = take.key if take is not None else left[0] if left else None
        shown: dict[str, Any] = {**asdict(self.progress), "phase": "busy"}
        shown |= {"now": take.view if take is not None and take.view is not None else self._view, "first": None}
        judged = self._log.judged().values()
        shown["judged"] = [(entry.name, entry.said.split()[-1], entry.at) for entry in judged]
        if key is not None:
            phase = "ready" if self._is_ready else "waiting"
            if take is not None:
                phase = "playing" if take.client.is_open() else "left"
            shown |= {"phase": phase, "task": key.task, "start": key.start, "seed": key.seed}
            shown |= {"first": self._first.get(_start_of(key)), "arm": key.arm if self.revealed else None}
        if take is not None:
            shown |= {"number": take.number, "calls": take.calls, "steps": take.steps}
        return shown
