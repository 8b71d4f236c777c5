"""The server of the live page: who may ask for what, and what they get."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sqlite3
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from besttake.live import server as module
from besttake.live.observer import Observer
from besttake.live.server import Access, LiveServer
from besttake.takes.heartbeat import Beat


class Asking:
    """Asks a server as a program would."""

    def __init__(self, server: LiveServer) -> None:
        self.port = server.port

    def __call__(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, answer.headers


def test_the_page_says_what_is_settled_how_far_it_is_and_what_failed(going: Path) -> None:
    with LiveServer(going) as server:
        status, page, headers = Asking(server)("/")
    assert status == 200
    assert "The run goes on." in page
    assert "1 min 15 s left" in page
    assert "24 complete starts" in page
    assert "Shown: a perfect pick of 2 takes gains (pick)" in page
    assert "&lt;b&gt;p&lt;/b&gt;" in page
    assert "<b>p</b>" not in page
    assert "boom &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "connect-src &#39;self&#39;" in page
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
    ],
)
def test_pages_of_other_sites_get_nothing(going: Path, headers: dict[str, str]) -> None:
    orders: list[str] = []
    with LiveServer(going, access=Access("t", lambda name: str(orders.append(name)))) as server:  # type: ignore[func-returns-value]
        ask = Asking(server)
        sent = {name: value.format(port=server.port) for name, value in headers.items()}
        assert ask("/", **sent)[0] == 403
        assert ask("/events", **sent)[0] == 403
        assert ask("/stop", "POST", Authorization="Bearer t", **sent)[0] == 403
    assert orders == []


def test_a_tunnel_may_have_another_port(going: Path) -> None:
    with LiveServer(going) as server:
        assert Asking(server)("/", Host="localhost:9000")[0] == 200


def test_only_the_token_gives_orders(going: Path) -> None:
    orders: list[str] = []

    def obey(name: str) -> str:
        orders.append(name)
        return f"{name}!"

    with LiveServer(going, access=Access("secret", obey)) as server:
        ask = Asking(server)
        own = f"http://127.0.0.1:{server.port}"
        assert ask("/stop", "POST")[0] == 401
        assert ask("/stop", "POST", Authorization="Bearer wrong")[0] == 401
        assert ask("/stop?token=secret", "POST")[0] == 401, "a token in an address ends up in logs"
        assert ask("/stop")[0] == 404
        assert ask("/rm", "POST", Authorization="Bearer secret")[0] == 404
        assert orders == []
        assert ask("/stop", "POST", Authorization="Bearer secret", Origin=own)[:2] == (200, "stop!\n")
    assert orders == ["stop"]


def test_who_only_watches_takes_no_orders(going: Path) -> None:
    with LiveServer(going) as server:
        assert Asking(server)("/stop", "POST", Authorization="Bearer ")[0] == 403


def test_a_film_is_given_by_the_id_of_its_take_and_by_nothing_else(going: Path, small: ModuleType) -> None:
    with LiveServer(going) as server:
        ask, known = Asking(server), small.take(3, 1)
        ask("/")
        status, text, _ = ask(f"/takes/{known.key.id}")
        film = json.loads(text)["film"]
        assert status == 200
        assert (film["count"], film["height"], film["width"]) == (4, 8, 8)
        assert json.loads(text)["film_steps"] == [0, 1, 2, 3]
        for path in (
            "/takes/" + "0" * 20,
            f"/takes/{small.take(29, 0).key.id}",
            "/takes/..%2f..%2frun.json",
            "/takes/../run.json",
            "/run.json",
            "/takes.sqlite",
            f"/takes/{known.key.id[:2]}/{known.key.id}.take",
            "/starts/x",
        ):
            assert ask(path)[0] == 404, path


def test_a_film_that_lies_outside_the_run_or_is_damaged_is_not_given(
    going: Path, small: ModuleType, tmp_path: Path
) -> None:
    outside, damaged = small.take(0, 0), small.take(1, 0)
    file = going / outside.key.file
    file.rename(tmp_path / "elsewhere.take")
    file.symlink_to(tmp_path / "elsewhere.take")
    (going / damaged.key.file).write_bytes(b"no take")
    with LiveServer(going) as server:
        ask = Asking(server)
        ask("/")
        for one, why in ((outside, "leads out of the run"), (damaged, "is damaged")):
            status, text, _ = ask(f"/takes/{one.key.id}")
            assert status == 404
            assert why in text


def read_state(file: Any) -> dict[str, Any]:
    while not (line := file.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    return dict(json.loads(line[6:]))


def listen(server: LiveServer) -> tuple[socket.socket, Any]:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=120)
    client.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    return client, client.makefile("rb")


def test_a_page_hears_of_each_new_take(going: Path, small: ModuleType) -> None:
    with LiveServer(going) as server:
        client, file = listen(server)
        with client:
            before = read_state(file)
            assert "48 takes" in before["parts"]["live-status"]
            small.add(going, small.take(25, 1))
            after = read_state(file)
            while "49 takes" not in after["parts"]["live-status"]:
                after = read_state(file)
            assert after["parts"].keys() == {"live-status"}, "what did not change is not sent again"
            assert after["newest"][0]["id"] == small.take(25, 1).key.id
            assert len(after["newest"]) == 6


def test_clients_that_do_not_read_or_are_too_many_hold_nobody_up(going: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLIENTS", 8)
    with LiveServer(going) as server:
        deaf = [listen(server)[0] for _ in range(7)]
        began = time.monotonic()
        client, file = listen(server)
        assert read_state(file)["phase"] == "running"
        more = listen(server)
        assert more[1].readline() == b"", "the ninth is sent away"
        assert time.monotonic() - began < 100
        for one in (*deaf, client, more[0]):
            one.close()


def test_a_finished_run_is_its_report_and_pages_that_wait_hear_of_it(synthetic: ModuleType, tmp_path: Path) -> None:
    run = tmp_path / "run"
    synthetic.build(run, synthetic.Shape(("p",), ("pick",), 8, arms=("base",)))
    result = (run / "result.json").read_bytes()
    (run / "result.json").unlink()
    with LiveServer(run) as server:
        ask, (client, file) = Asking(server), listen(server)
        with client:
            assert read_state(file)["phase"] == "stopped"
            (run / "result.json").write_bytes(result)
            assert b"finished" in file.readline() + file.readline() + file.readline()
        status, page, _ = ask("/")
        assert status == 200
        assert "What p needs" in page
        ids = [one["id"] for one in starts_of(page)]
        assert len(ids) == 8
        start = json.loads(ask(f"/starts/{ids[-1]}")[1])
        assert (start["policy"], start["task"], len(start["takes"])) == ("p", "pick", 3)
        assert all(take["film"]["data"] for take in start["takes"])
        assert ask("/starts/" + "0" * 20)[0] == 404


def starts_of(page: str) -> list[dict[str, Any]]:
    """The map of starts in a report."""
    data = re.search(r'<script type="application/json" id="takes-data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    return list(json.loads(data[1])["heat"]["starts"])


def test_films_of_a_finished_run_that_links_lead_out_of_are_not_served(synthetic: ModuleType, tmp_path: Path) -> None:
    run = tmp_path / "run"
    synthetic.build(run, synthetic.Shape(("p",), ("pick",), 4, arms=("base",)))
    with LiveServer(run) as server:
        ask = Asking(server)
        one = starts_of(ask("/")[1])[0]
        (run / "takes" / "out").symlink_to(tmp_path)
        status, text, _ = ask(f"/starts/{one['id']}")
        assert status == 404
        assert "leads out of the run" in text


def test_finishing_waits_for_pages_that_are_open_and_no_longer(going: Path) -> None:
    server = LiveServer(going)
    ender = threading.Thread(target=server.finish, args=(600.0,))
    ender.start()
    ender.join(timeout=60)
    assert not ender.is_alive(), "nobody listens, so there is nobody to wait for"


def test_a_run_that_gives_no_sign_of_life_is_said_to_be_lost(going: Path) -> None:
    now = [0.0]
    observer = Observer(going, clock=lambda: now[0])
    assert observer.state().phase == "running"
    with patch("besttake.takes.heartbeat.read_heartbeat", return_value=Beat(number=7)):
        observer.state()
        now[0] += 60
        assert observer.state().phase == "lost"


def test_a_run_that_was_removed_is_said_to_be_gone(going: Path) -> None:
    with LiveServer(going) as server:
        assert "The run is no longer there" not in Asking(server)("/")[1]
        going.rename(going.with_name("elsewhere"))
        assert "The run is no longer there: its directory was removed or moved." in Asking(server)("/")[1]
        server.content.observer.phase = "setting up"  # as the run itself says before it has a directory
        assert "The run is being set up." in Asking(server)("/")[1]


def test_what_cannot_be_shown_is_one_line_in_the_log(going: Path, caplog: pytest.LogCaptureFixture) -> None:
    with patch.object(Observer, "state", side_effect=IndexError("what no run\nhas")), LiveServer(going) as server:
        sock, file = listen(server)
        with sock, file:
            until = time.monotonic() + 20
            while not caplog.records and time.monotonic() < until:
                time.sleep(0.05)
    assert caplog.text.count("could not be brought up to date (IndexError: what no run has)") >= 1
    assert "Traceback" not in caplog.text


def test_watching_changes_nothing_in_the_run(synthetic: ModuleType, tmp_path: Path) -> None:
    run = tmp_path / "run"
    synthetic.build(run, synthetic.Shape(("p",), ("pick",), 2, arms=("base",)))
    files = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with LiveServer(run) as server:
        ask = Asking(server)
        one = starts_of(ask("/")[1])[0]
        assert ask(f"/starts/{one['id']}")[0] == 200
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == files


def test_a_run_whose_files_are_damaged_is_said_to_be(going: Path) -> None:
    whole = (going / "run.json").read_bytes()
    with LiveServer(going) as server:
        (going / "run.json").write_bytes(whole[:-20])
        status, page, _ = Asking(server)("/")
        assert status == 200
        assert "run.json is damaged" in page
        (going / "run.json").write_bytes(whole)
        with patch("besttake.takes.table.snapshot", side_effect=sqlite3.DatabaseError("malformed")):
            assert "takes.sqlite cannot be read (DatabaseError: malformed)" in Asking(server)("/")[1]
        with patch.object(Observer, "state", side_effect=IndexError("what no run\nhas")):
            status, text, _ = Asking(server)("/")
        assert (status, text) == (500, "IndexError: what no run has\n")


def test_takes_whose_rows_are_still_to_come_do_not_hide_those_that_play(going: Path) -> None:
    """Files come before their rows, and each may lie in a directory that has no other take yet."""
    seen = Observer(going).state().newest
    for i in range(8):
        folder = going / "takes" / f"new{i}"
        folder.mkdir()
        (folder / f"unknown{i}.take").write_bytes(b"")
    assert Observer(going).state().newest == seen
    assert len(seen) == 6
