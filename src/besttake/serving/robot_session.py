"""A session on a real robot: a client plays the takes, a person says what came of them, and nobody sees the arm.

Three threads meet here. The server's asks for the next take (`RobotSession.begin`) and records it. Those of the page
bring what the operator says. The command's (`RobotSession.play`) carries it out, one order after the other, so that
nothing is entered twice; it alone writes. What the operator says is in ``session.jsonl`` before anything is made of it.
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
from besttake.serving.served import Client, Served, ServedEpisode
from besttake.takes.jobs import take_draw
from besttake.takes.key import Row, TakeKey
from besttake.takes.store import Store
from besttake.takes.take import Film, Take
from besttake.types import F32, U8, EnvSpec, Observation

LOG = "session.jsonl"
OUTCOMES = ("success", "failure", "spoiled")
_CORRECTED, _READY = "corrected to ", "ready"
_LOOK = 0.05
"""Seconds between two looks at whether there is something to do."""
_ANSWER = 60.0
"""Seconds that the page waits for an order to be carried out."""
_REASON = 200


def blocked(keys: Sequence[TakeKey], seed: int) -> list[TakeKey]:
    """Takes in the order in which they are played: starts in random order, the takes of each by their seeds, and in
    every block of one start and one seed each arm once, in random order."""
    places = {unit: i for i, unit in enumerate(random_order([_start_of(key) for key in keys], seed))}

    def place(key: TakeKey) -> tuple[int, int, bytes]:
        drawn = hashlib.sha256(json.dumps([seed, *_start_of(key), key.seed, key.arm]).encode()).digest()
        return places[_start_of(key)], key.seed, drawn

    return sorted(keys, key=place)


def _start_of(key: TakeKey) -> Unit:
    return key.env, key.task, key.start


@dataclass(frozen=True)
class LogEntry:
    """What the operator said of a take, and when. ``take`` is the id of its key, which does not tell the arm."""

    said: str
    take: str
    task: str
    start: int
    seed: int
    reason: str = ""
    at: str = field(default_factory=lambda: _now())

    @classmethod
    def of(cls, said: str, key: TakeKey, reason: str = "") -> LogEntry:
        """What was said of the take ``key``, just now."""
        return cls(said, key.id, key.task, key.start, key.seed, reason)

    @property
    def place(self) -> str:
        """The take, for people."""
        return f"take {self.seed + 1} of start {self.start}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class SessionLog:
    """What the operator said, in a file, a line each; a line that a killed writer left unfinished is dropped."""

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
            raise RunError(f"{path} is damaged; put back a copy of it, or begin another session") from error

    def add(self, entry: LogEntry) -> None:
        """Keep an entry, on the disk before this returns."""
        with self._path.open("ab") as file:
            file.write(json.dumps(asdict(entry)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)

    def judged(self) -> dict[str, LogEntry]:
        """The last word on each take, by its id, in the order of play; none on those that were spoiled."""
        return {entry.take: entry for entry in self.entries if entry.said not in ("spoiled", _READY)}

    def deviations(self) -> list[str]:
        """What did not go as planned, a line each."""
        spoiled = Counter(entry.reason or "no reason given" for entry in self.entries if entry.said == "spoiled")
        lines = [f"takes that were spoiled and played again: {times} ({reason})" for reason, times in spoiled.items()]
        corrected = [f"#{number}" for number, entry in enumerate(self.judged().values(), 1) if _CORRECTED in entry.said]
        lines += [f"outcomes that were corrected afterwards: {', '.join(corrected)}"] if corrected else []
        begun = sum(entry.said == _READY for entry in self.entries)
        lost = begun - sum(entry.said in OUTCOMES for entry in self.entries)
        return lines + ([f"takes that were begun, and never judged: {lost}"] if lost else [])


class SessionTake(ServedEpisode):
    """A take that a client plays. ``opening`` and ``view`` are the first and the last picture of it."""

    def __init__(self, served: Served, client: Client, key: TakeKey, plan: Plan, env: EnvSpec) -> None:
        super().__init__(served, client, take_draw(plan.seed, key), key.task)
        self.history.arm = key.arm
        self.key, self.client, self.began = key, client, time.monotonic()
        self.number = secrets.token_hex(6)
        self.calls = 0
        self.opening: U8 | None = None
        self.view: U8 | None = None
        self.camera, self.stride = env.score_camera, plan.stride
        self._env = env

    @property
    def steps(self) -> int:
        """How many actions were executed, as far as one can know."""
        return min(len(self.history.actions) + self.unconfirmed, self._env.task(self.key.task).horizon)

    def is_wanted(self, step: int) -> bool:
        """Whether the picture of this step is kept."""
        return super().is_wanted(step) and step <= self._env.task(self.key.task).horizon

    def saw(self, seen: Observation, step: int) -> None:
        """Keep what the client sees before the action ``step``."""
        super().saw(seen, step)
        if self.camera:
            self.view = seen.images[self.camera]
            self.opening = self.view if self.opening is None else self.opening

    async def sample(self, seen: Observation) -> F32:
        """The next chunk, (horizon, action_dim), for what the task is called here, whatever the client calls it."""
        task = self._env.task(self.key.task)
        chunk = await super().sample(replace(seen, instruction=task.instruction))
        self.calls += not self.over
        return chunk

    def finish(self, *, success: bool) -> Take:
        """The take as it is kept. Where the client did not send a state, the one before it stands."""
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
    """How far a session is: takes judged and planned, and questions settled of those that it asks."""

    done: int = 0
    planned: int = 0
    settled: int = 0
    questions: int = 0


class RobotSession:
    """The takes of a session, one after the other, and what the operator says of them.

    A take may begin when the operator says that its start is set up: until then no client is given an action, so that
    no robot moves while somebody is at it. ``revealed``: the page may show the arm. ``ended``: the operator has ended
    the session. ``outdated``: an outcome was corrected after the last result.
    """

    def __init__(self, plan: Plan, *, revealed: bool = False) -> None:
        self.revealed, self.progress = revealed, Progress()
        self.ended = self.outdated = self._is_ready = False
        self._plan = plan
        self._orders: queue.Queue[tuple[Callable[[], str], Future[str]]] = queue.Queue()
        self._store: Store | None = None
        self._log = SessionLog()
        self._saw: Callable[[Row], None] = lambda row: None
        self._left: list[TakeKey] = []
        self._take: SessionTake | None = None
        self._first: dict[Unit, U8] = {}
        self._view: U8 | None = None

    # What the command does.

    def play(self, keys: Sequence[TakeKey], store: Store, saw: Callable[[Row], None]) -> None:
        """Have those of ``keys`` that the run lacks played and judged; returns when all are, or the session ends."""
        self._store, self._saw, self._log = store, saw, SessionLog(store.path / LOG)
        try:
            self._correct_takes()
            there = {row.key for row in store.rows()}
            self._look_ahead(blocked([key for key in keys if key not in there], self._plan.seed))
            while self._left and not self.ended:
                self._carry_out()
        finally:
            self._store, self._left = None, []

    def wait(self) -> None:
        """Take corrections until the session ends."""
        while not self.ended:
            self._carry_out()

    def remarks(self) -> list[str]:
        """What did not go as planned, a line each."""
        left, told = self.progress.planned - self.progress.done, self._log.deviations()
        early = f"{left} takes were not played; intervals and answers assume that their number was fixed beforehand"
        return [f"deviation from the plan: {line}" for line in told + ([early] if left else [])]

    def _carry_out(self) -> None:
        """Carry out the next order, if one comes soon; Ctrl-C is heard in between."""
        try:
            order, answer = self._orders.get(timeout=_LOOK)
        except queue.Empty:
            return
        try:
            answer.set_result(order())
        except PlanError as error:
            answer.set_exception(error)
        except BaseException:
            answer.set_exception(RolloutError("the command has failed; it says why where it was started"))
            raise

    def _look_ahead(self, left: list[TakeKey]) -> None:
        """Get ready for the first take that is ``left``: how its start looked, and how far the session is."""
        assert self._store is not None
        rows, settings = {row.key: row for row in self._store.rows()}, settings_of(self._store.manifest)
        if left and (start := _start_of(left[0])) not in self._first:
            played = [row for row in rows.values() if _start_of(row.key) == start and row.status == "done"]
            if played and len(frames := self._store.load(played[0]).frames()):
                self._first[start] = frames[0]
        # A run until decided leaves out arms that are settled, and looks at itself after each round.
        cells = [one for one in fixed_cells(self._store.manifest, rows) if one.units and not self._plan.until]
        answers = [finding.answer for data in cells for finding in partial_cell(data, settings, None).findings.values()]
        settled = sum(answer != "open" for answer in answers)
        self.progress, self._left = Progress(len(rows), len(rows) + len(left), settled, len(answers)), left

    def _correct_takes(self) -> None:
        """Have the takes of the run say what the log says of them."""
        assert self._store is not None
        judged = self._log.judged()
        for row in self._store.rows():
            success = row.success if row.key.id not in judged else judged[row.key.id].said.endswith("success")
            if row.status == "done" and success != row.success:
                take = self._store.load(row)
                self._store.replace(replace(take, success_step=take.steps if success else None), row.seconds)

    # What the server asks.

    async def begin(self, served: Served, client: Client, envs: Mapping[str, EnvSpec]) -> SessionTake:
        """The next take, if its start is set up; ComponentError with what is to be done first."""
        before = self._take
        if before is not None and (before.calls or (before.client.is_open() and before.client is not client)):
            raise ComponentError(
                "the take before has no outcome yet: say on the page what came of it, then begin again"
            )
        if not self._left or not self._is_ready:
            raise ComponentError("no start is ready: set it up, say so on the page, then begin again")
        key = self._left[0]
        self._take = SessionTake(served, client, key, self._plan, envs[key.env])
        return self._take

    # What the operator says: each answer is one line, and what cannot be is a PlanError.

    def ready(self) -> str:
        """Say that the start of the next take is set up, and nobody is near the robot."""
        return self._ask(self._ready)

    def judge(self, number: str, outcome: str, reason: str = "") -> str:
        """Say what came of the take that the page calls ``number``: success, failure, or spoiled and why."""
        return self._ask(lambda: self._judge(number, outcome, " ".join(reason.split())[:_REASON]))

    def correct(self, take: str, outcome: str) -> str:
        """Say what really came of the take that was judged as the ``take``-th."""
        return self._ask(lambda: self._correct(int(take), outcome))

    def end(self) -> str:
        """End the session."""
        return self._ask(self._end)

    def _ask(self, order: Callable[[], str]) -> str:
        answer: Future[str] = Future()
        self._orders.put((order, answer))
        try:
            return answer.result(_ANSWER)
        except TimeoutError:
            raise PlanError("the command does not answer; look where it was started") from None

    def _ready(self) -> str:
        if self._is_ready or self._take is not None or not self._left:
            raise PlanError("a take is waited for already, or none is left")
        self._log.add(LogEntry.of(_READY, self._left[0]))
        self._is_ready = True
        return "the robot may begin"

    def _judge(self, number: str, outcome: str, reason: str) -> str:
        take = self._take
        if take is None or take.number != number:
            raise PlanError("this take has its outcome already; correct it below if it is wrong")
        if outcome not in OUTCOMES or (outcome != "spoiled" and not take.calls):
            raise PlanError("nothing was played yet" if outcome in OUTCOMES else f"say one of {', '.join(OUTCOMES)}")
        assert self._store is not None
        take.over = True
        entry = LogEntry.of(outcome, take.key, reason)
        if outcome == "spoiled":
            self._log.add(entry)
        else:
            try:
                played = take.finish(success=outcome == "success")
            except Exception as error:  # what a client sends can be anything, and pictures have a largest size
                raise PlanError(
                    f"this take cannot be kept ({one_line(error)}): say spoiled; --stride keeps fewer"
                ) from error
            self._log.add(entry)
            self._saw(self._store.add(played, time.monotonic() - take.began))
            if take.opening is not None:
                self._first.setdefault(_start_of(take.key), take.opening)
            self._look_ahead(self._left[1:])
        self._view, self._take, self._is_ready = take.view, None, False
        return f"{entry.place}: {outcome}{', it is played again' if outcome == 'spoiled' else ''}"

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
        return f"#{take}, {entry.place}, is a {outcome} now"

    def _end(self) -> str:
        if self._plan.until and self._left:
            raise PlanError("a session until decided ends by itself; Ctrl-C stops it, and the same command goes on")
        self.ended = True
        return "the session is over"

    # What the page shows.

    def view(self) -> dict[str, Any]:
        """What the page shows; the arm is not in it unless it may be seen. Pictures are as they are."""
        take, left = self._take, self._left
        key = take.key if take is not None else left[0] if left else None
        shown: dict[str, Any] = {**asdict(self.progress), "phase": "busy"}
        shown |= {"now": take.view if take is not None and take.view is not None else self._view, "first": None}
        shown["judged"] = [(one.place, one.said.split()[-1], one.at) for one in self._log.judged().values()]
        if key is not None:
            before = "ready" if self._is_ready else "waiting"
            phase = before if take is None else "playing" if take.client.is_open() else "left"
            shown |= {"phase": phase, "task": key.task, "start": key.start, "seed": key.seed}
            shown |= {"first": self._first.get(_start_of(key)), "arm": key.arm if self.revealed else None}
        if take is not None:
            shown |= {"number": take.number, "calls": take.calls, "steps": take.steps}
        return shown
