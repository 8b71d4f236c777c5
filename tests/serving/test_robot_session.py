"""A session on a robot: a client in this process plays takes of the testbed, the page is asked over HTTP."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

import besttake
from besttake import registry
from besttake.policies.remote_wire import pack_openpi, unpack_openpi
from besttake.serving.robot_session import LOG, SessionLog, in_blocks
from besttake.takes.key import TakeKey
from besttake.types import Start
from besttake.verbs.session import Service

PLAN: dict[str, Any] = {
    "policy": "testbed:half?replan=9", "env": "testbed:pick", "starts": 2, "seeds": 2, "arms": "base,cooled",
    "stride": 9, "demos_per_task": 2, "check_states": 0, "probe_states": 0,
}  # fmt: skip


class Session:
    """A session that goes on in a thread: its page, a robot's client, and the verdicts that were made."""

    def __init__(self, out: Path, **keys: Any) -> None:
        self.out, self.results, self.failure = out, list[Any](), list[BaseException]()
        self._served = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(keys,), daemon=True)
        self._env = registry.env("testbed:pick")
        self._thread.start()
        assert self._served.wait(60), self.failure

    def _run(self, keys: dict[str, Any]) -> None:
        def started(client: str, page: str) -> None:
            self.client, (self.page, _, self.query) = client, page.partition("?")
            self._served.set()

        service = Service(started=started, token=keys.pop("token", None), revealed=keys.pop("revealed", False))
        try:
            besttake.session(out=self.out, service=service, verdict=self.results.append, **{**PLAN, **keys})
        except BaseException as error:
            self.failure.append(error)

    def ask(self, path: str, query: str | None = None, **said: str) -> str:
        query = self.query if query is None else query
        data = json.dumps(said).encode() if said or path in ("end", "ready") else None
        request = urllib.request.Request(f"{self.page}{path}?{query}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"

    def now(self) -> dict[str, Any]:
        return dict(json.loads(self.ask("now")))

    def until(self, *phases: str, **wanted: Any) -> dict[str, Any]:
        for _ in range(600):
            now = self.now()
            if now["phase"] in (phases or now["phase"]) and wanted.items() <= now.items():
                return now
            threading.Event().wait(0.05)
        raise TimeoutError(f"{phases} {wanted}, but {now}")

    def look(self, robot: ClientConnection) -> None:
        seen = self._env.observe(("wrist",))
        robot.send(pack_openpi({"observation/wrist": seen.images["wrist"], "observation/state": seen.state}))

    def reset(self) -> None:
        now = self.until("waiting")
        assert self.ask("ready") == "the robot may begin"
        self._env.reset(Start(now["task"], now["start"]))

    def play(self) -> bool:
        """Play the next take to its end, on a connection of its own; whether it was a success."""
        self.reset()
        with connect(self.client, max_size=None) as robot:
            robot.recv()
            for step in range(80):
                if step % 9 == 0:
                    self.look(robot)
                    chunk = unpack_openpi(robot.recv())["actions"]
                if self._env.step(chunk[step % 9]).success:
                    return True
        return False

    def judge(self, outcome: str, number: str = "", reason: str = "") -> str:
        return self.ask("judge", number=number or self.now()["number"], outcome=outcome, reason=reason)

    def play_all(self) -> None:
        while self.until("waiting", "left", "over")["phase"] != "over":
            self.judge("success" if self.play() else "failure")

    def end(self) -> Any:
        assert self.until(results=True)
        assert self.ask("end") == "the session is over"
        self._thread.join(60)
        assert (self._thread.is_alive(), self.failure) == (False, [])
        return self.results[-1]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(tmp_path / "run")
    yield made
    with suppress(urllib.error.URLError):  # it has ended
        made.ask("end")


def test_every_block_of_a_start_and_a_seed_has_each_arm_once_and_the_order_is_that_of_the_seed() -> None:
    keys = [
        TakeKey("p", "e", task, start, arm, seed)
        for task in ("a", "b") for start in range(40) for arm in ("base", "cooled", "retrieve") for seed in range(2)
    ]  # fmt: skip
    order = in_blocks(keys, 5)
    blocks = [order[i : i + 3] for i in range(0, len(order), 3)]
    assert all(len({(key.task, key.start, key.seed) for key in block}) == 1 for block in blocks)
    assert all({key.arm for key in block} == {"base", "cooled", "retrieve"} for block in blocks)
    assert min(sum(block[0].arm == arm for block in blocks) for arm in ("base", "cooled", "retrieve")) > 35  # of 160
    assert order == in_blocks(keys[::-1], 5)
    assert order != in_blocks(keys, 6)
    assert {key.task for key in order[:60]} == {"a", "b"}  # tasks are mixed


def test_a_session_has_the_takes_and_the_verdict_of_a_diagnosis(tmp_path: Path) -> None:
    session = Session(tmp_path / "run")
    session.play_all()
    made = session.end()
    same = besttake.diagnose(out=tmp_path / "sim", window="common", **PLAN)
    assert made.cells == same.cells
    assert made.policies == same.policies
    robot, sim = (besttake.Run.open(tmp_path / name).takes for name in ("run", "sim"))
    assert {key: robot[key].success for key in robot} == {key: sim[key].success for key in sim}
    assert (tmp_path / "run" / LOG).read_text().count("\n") == 2 * len(robot) == 16
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "cooled succeeds more often than base" in manifest["identity"]["session"]


def test_nothing_is_entered_twice_and_what_was_spoiled_is_played_again(session: Session) -> None:
    session.play()
    number = session.until("left")["number"]
    with ThreadPoolExecutor(2) as people:
        answers = [*people.map(lambda _: session.judge("failure", number), range(2))]
    assert sorted(answer[:4] for answer in answers) == ["409 ", "take"]
    assert "has an outcome already" in max(answers, key=len)
    before = session.now()
    session.play()
    assert session.judge("spoiled", reason="the cup fell").endswith("spoiled, it is played again")
    again = session.now()
    assert (again["done"], again["start"], again["seed"]) == (1, before["start"], before["seed"])
    session.play_all()
    assert session.ask("judge", number=number, outcome="success").startswith("409")
    assert any("spoiled and played again: 1 (the cup fell)" in note for note in session.end().notes)


def test_no_robot_moves_before_its_start_is_ready_or_after_its_take_is_judged(session: Session) -> None:
    def asked(robot: ClientConnection) -> str:
        session.look(robot)
        return answer if isinstance(answer := robot.recv(timeout=20), str) else "actions"

    with connect(session.client, max_size=None) as robot, connect(session.client, max_size=None) as other:
        robot.recv(), other.recv()
        session._env.reset(Start("pick", session.until("waiting")["start"]))
        assert "no start is ready" in asked(robot)
        session.reset()
        assert session.ask("ready").startswith("409")
        assert asked(robot) == "actions"
        assert "the last take has no outcome yet" in asked(other)
        assert session.judge("failure").endswith("failure")
        assert "no start is ready" in asked(robot)  # it has not heard yet
        session.reset()
        assert asked(other) == "actions"
    assert session.until("left")["calls"] == 1


def test_a_correction_counts_at_once_and_after_the_verdict(session: Session) -> None:
    session.play_all()
    session.until(results=True)
    other = "failure" if session.now()["judged"][0][1] == "success" else "success"
    assert session.ask("correct", take="1", outcome=other).endswith(f"is a {other} now")
    assert session.ask("correct", take="1", outcome=other).startswith("409")
    made = session.end()
    before, after = (result.cells[0].arms for result in session.results)
    assert before != after
    assert made is session.results[1]
    assert any("corrected afterwards: #1" in note for note in made.notes)


def test_a_session_that_was_ended_early_says_so_and_goes_on(tmp_path: Path) -> None:
    first = Session(tmp_path / "run")
    for _ in range(5):
        first.judge("success" if first.play() else "failure")
    first.ask("end")
    first._thread.join(60)
    assert any("3 takes were not played" in note for note in first.results[-1].notes)
    again = Session(tmp_path / "run")
    assert again.until("waiting")["done"] == 5
    again.play_all()
    assert not [note for note in again.end().notes if "not played" in note]


@pytest.mark.parametrize("revealed", [False, True])
def test_neither_page_nor_protocol_tells_the_arm_unless_it_may_be_seen(tmp_path: Path, *, revealed: bool) -> None:
    session = Session(tmp_path / "run", token="secret", revealed=revealed)
    assert session.ask("now", query="token=wrong").startswith("403")
    told, steps = session.ask(""), list[set[str]]()
    with connect(f"{session.client}?token=secret", max_size=None) as robot:
        told += str(robot.recv())
    told += urllib.request.urlopen(session.client.replace("ws:", "http:") + "/health").read().decode()
    for _ in range(4):  # one of each arm at least
        session.client = session.client.partition("?")[0] + "?token=secret"
        session.play()
        told += json.dumps((now := session.now()) | {"now": "", "first": ""})
        session.judge("failure")
        steps.append({*now})
    told += (tmp_path / "run" / LOG).read_text()
    assert ("cooled" in told) is revealed
    assert steps == steps[:1] * 4
    assert session.ask("results/").startswith("403") is not revealed
    session.ask("end")


def test_a_log_that_a_killed_writer_left_torn_keeps_all_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / LOG
    line = {"said": "success", "take": "a", "task": "t", "start": 0, "seed": 0, "at": "2026"}
    path.write_text(json.dumps(line) + "\n" + json.dumps(line)[:20])
    assert [entry.take for entry in SessionLog(path).entries] == ["a"]


def test_a_page_of_another_origin_or_host_says_nothing(session: Session) -> None:
    for name, value in (("Origin", "http://evil.example"), ("Host", "evil.example")):
        request = urllib.request.Request(f"{session.page}end", b"{}", {name: value})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(request)
    assert session.until("waiting")["done"] == 0
