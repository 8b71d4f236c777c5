"""A run with its live page: stop, continue, end; and the server goes with it."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from besttake.errors import ComponentError
from besttake.live.attached import Attached, with_stops


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attached]:
    with Attached(tmp_path_factory.mktemp("live") / "run", token="t") as attached:
        yield attached


def order(live: Attached, name: str) -> None:
    with closing(http.client.HTTPConnection(live.url.removeprefix("http://").rstrip("/"), timeout=120)) as connection:
        connection.request("POST", f"/{name}", headers={"Authorization": "Bearer t"})
        with connection.getresponse() as answer:
            assert answer.status == 200


def sleep_until_stopped(live: Attached) -> str:
    threading.Timer(0.1, order, (live, "stop")).start()
    time.sleep(300)
    return "was not stopped"


def test_the_page_stops_the_run_and_lets_it_go_on_as_often_as_it_likes(live: Attached) -> None:
    tries: list[int] = []
    lines: list[str] = []

    def work() -> str:
        tries.append(1)
        if len(tries) < 3:
            return sleep_until_stopped(live)
        return "done"

    def say(text: str) -> None:
        lines.append(text)
        if text.startswith("stopped"):
            threading.Timer(0.1, order, (live, "continue")).start()

    began = time.monotonic()
    assert with_stops(live, work, say) == "done"
    assert time.monotonic() - began < 250
    assert [line.split()[0] for line in lines] == ["stopped", "going"] * 2


def test_a_run_that_is_stopped_can_be_ended_from_the_page(live: Attached) -> None:
    def say(text: str) -> None:
        threading.Timer(0.1, order, (live, "end")).start()

    with pytest.raises(KeyboardInterrupt):
        with_stops(live, lambda: sleep_until_stopped(live), say)


def test_ctrl_c_ends_the_run_and_is_not_taken_for_the_page(live: Attached) -> None:
    def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_stops(live, work, lambda text: pytest.fail(text))


def test_a_stop_that_comes_when_nothing_runs_is_not_kept_for_later(
    live: Attached, monkeypatch: pytest.MonkeyPatch
) -> None:
    obey, obeyed = live._obey, threading.Event()

    def notice(order: str) -> None:
        obey(order)
        obeyed.set()

    monkeypatch.setattr(live, "_obey", notice)
    order(live, "stop")
    assert obeyed.wait(60), "the order never came"
    with_stops(live, lambda: time.sleep(0.2), lambda text: pytest.fail(text))


def test_the_server_ends_with_the_run_and_the_run_goes_on_when_its_server_is_killed(tmp_path: Path) -> None:
    with Attached(tmp_path / "run") as live:
        pid = live._process.pid
        assert live.with_token.startswith(live.url + "#token=")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with Attached(tmp_path / "run") as live:

        def work() -> str:
            os.kill(live._process.pid, 9)
            time.sleep(0.2)
            return "done"

        assert with_stops(live, work, print) == "done"


def test_a_port_that_is_taken_is_one_line(live: Attached, tmp_path: Path) -> None:
    port = int(live.url.rstrip("/").rsplit(":", 1)[1])
    with pytest.raises(ComponentError, match=f"cannot serve on 127.0.0.1:{port}"):
        Attached(tmp_path / "run", port)


def test_who_presses_continue_twice_does_not_undo_the_next_stop(live: Attached) -> None:
    live._stopped = True
    live._obey("continue")
    live._obey("continue")
    assert live.wait_to_go_on()
    with live.running():
        assert not live._orders.acquire(blocking=False)
