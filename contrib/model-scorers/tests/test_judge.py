"""A vision-language model as a scorer, asked through a stub of an OpenAI-compatible server on this machine."""

from __future__ import annotations

import base64
import io
import json
import logging
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from besttake import registry
from besttake.config import Plan
from besttake.errors import ComponentError
from besttake.scorers.base import Footage
from besttake.takes.scores import Scores
from besttake.testing import check_scorer
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.score import score
from model_scorers.judge import KEY, ChatServer, Judge, likely, make, stated

HERE = "python:model_scorers.judge:make?rest="  # what the entry point calls where the plug-in is installed
Reply = tuple[int, dict[str, str], bytes]


class Stub:
    """A server that keeps what it was asked, and answers as ``reply`` says."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.reply: Callable[[dict[str, Any]], Reply] = lambda body: said(f"{brightness(body):.0f}")
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.asked.append(body)
                stub.headers.append(dict(self.headers))
                stub.paths.append(self.path)
                status, headers, data = stub.reply(body)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def said(text: str, **more: Any) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", **more}
    return 200, {}, json.dumps({"object": "chat.completion", "choices": [choice]}).encode()


def pictures(body: dict[str, Any]) -> list[np.ndarray]:
    (message,) = body["messages"]
    urls = [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]
    assert all(url.startswith("data:image/png;base64,") for url in urls)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))) for url in urls]


def brightness(body: dict[str, Any]) -> float:
    """The mean of the last picture, as a percentage."""
    return float(pictures(body)[-1].mean() / 2.55)


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path))
    monkeypatch.delenv(KEY, raising=False)
    stub = Stub()
    thread = threading.Thread(target=stub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stub
    stub.server.shutdown()
    stub.server.server_close()
    thread.join()


def quick(stub: Stub, **options: Any) -> Judge:
    """A judge that does not wait long."""
    given: dict[str, Any] = {key: options.pop(key) for key in ("timeout", "retries") if key in options}
    limits: dict[str, Any] = {"timeout": 5.0, "pause": 0.001, **given}
    return Judge(ChatServer.at(stub.url, **limits), "org/tiny-vl", **options)


def take(count: int = 20, counts: tuple[int, ...] = (5, 20, 0), instruction: str = "pick up the cube") -> Footage:
    levels = np.linspace(0, 255, count).astype(np.uint8)
    frames = np.broadcast_to(levels[:, None, None, None], (count, 8, 8, 3)).copy()
    windows = tuple(np.arange(count) < n for n in counts)
    return Footage(np.arange(count, dtype=np.int32), windows, counts, frames=frames, instruction=instruction)


def test_it_keeps_the_contract_of_a_scorer(stub: Stub) -> None:
    judge = registry.scorer(f"{HERE}{stub.url}&model=tiny&frames=3")
    assert "length" in check_scorer(judge)
    assert judge.spec.probability


def test_the_request_has_the_fields_of_the_published_api(stub: Stub) -> None:
    quick(stub).score([take()], None)
    body = stub.asked[0]
    assert stub.paths[0] == "/v1/chat/completions"
    assert (body["model"], body["temperature"], body["stream"], body["max_tokens"]) == ("org/tiny-vl", 0, False, 16)
    (message,) = body["messages"]
    assert message["role"] == "user"
    assert {part["type"] for part in message["content"]} == {"text", "image_url"}
    assert "pick up the cube" in message["content"][-1]["text"]
    assert "logprobs" not in body


def test_it_sees_evenly_spaced_frames_of_each_window_and_nothing_later(stub: Stub) -> None:
    (score,) = quick(stub, frames=4, parallel=1).score([take()], None)
    levels = np.linspace(0, 255, 20).astype(np.uint8)
    seen = [[int(picture[0, 0, 0]) for picture in pictures(body)] for body in stub.asked]
    assert sorted(seen) == sorted([levels[[0, 1, 3, 4]].tolist(), levels[[0, 6, 13, 19]].tolist()])
    assert np.allclose(score.values[:2], [round(levels[4] / 2.55) / 100, 1.0])
    assert math.isnan(score.values[2])  # a window without frames is not asked about


def test_nothing_is_asked_twice_not_even_by_another_run(stub: Stub) -> None:
    first = quick(stub).score([take(), take()], None)
    count = len(stub.asked)
    assert count == 2  # the two takes are alike
    assert np.array_equal(quick(stub).score([take()], None)[0].values, first[0].values, equal_nan=True)
    assert len(stub.asked) == count
    quick(stub).score([take(instruction="open the drawer")], None)
    assert len(stub.asked) == 2 * count
    Judge(ChatServer.at(stub.url), "another").score([take()], None)
    assert len(stub.asked) == 3 * count


def test_log_probabilities_of_yes_and_no(stub: Stub) -> None:
    top = [("Yes", 0.5), (" yes", 0.1), ("No", 0.2), ("Maybe", 0.2)]
    entries = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in top]
    first = {"token": "Yes", "logprob": math.log(0.5), "bytes": None, "top_logprobs": entries}
    stub.reply = lambda body: said("Yes", logprobs={"content": [first]})
    judge = quick(stub, answer="yes")
    (score,) = judge.score([take()], None)
    assert np.allclose(score.values[:2], 0.6 / 0.8)
    assert (stub.asked[0]["logprobs"], stub.asked[0]["top_logprobs"]) == (True, 20)
    assert judge.spec.name == "judge tiny-vl yes"


def test_without_log_probabilities_the_error_says_what_to_do(stub: Stub) -> None:
    stub.reply = lambda body: said("Yes", logprobs=None)
    with pytest.raises(ComponentError, match="gives no log-probabilities; `answer=number`"):
        quick(stub, answer="yes").score([take()], None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("85", 0.85), ("85%", 0.85), ("Answer: 85/100.", 0.85), ("0", 0.0), ("100", 1.0), ("99.5", 0.995),
        ("<think>between 3 and 5</think>7", 0.07), ("70 out of 100", 0.7),
        ("yes", None), ("", None), ("-5", None), ("101", None), ("20 to 40", None), ("1e400", None), (None, None),
    ],
)  # fmt: skip
def test_an_answer_is_one_number_from_0_to_100_or_none(text: str | None, value: float | None) -> None:
    answer = stated({"message": {"content": text}})
    assert math.isnan(answer) if value is None else answer == pytest.approx(value)


def test_an_answer_that_is_neither_yes_nor_no_scores_nothing() -> None:
    entry = {"token": "Perhaps", "logprob": -0.1, "top_logprobs": [{"token": "Perhaps", "logprob": -0.1}]}
    assert math.isnan(likely({"message": {}, "logprobs": {"content": [entry]}}))
    assert math.isnan(likely({"message": {}, "logprobs": {"content": [{"token": "Yes"}]}}))


def test_unreadable_answers_lose_their_takes_only_and_are_counted_in_one_line(
    stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    stub.reply = lambda body: said("no idea" if "drawer" in body["messages"][0]["content"][-1]["text"] else "40")
    with caplog.at_level(logging.WARNING, "besttake"):
        good, bad = quick(stub).score([take(), take(instruction="open the drawer")], None)
    assert list(good.values[:2]) == [0.4, 0.4]
    assert np.isnan(bad.values).all()
    assert [record.getMessage() for record in caplog.records] == [
        "judge tiny-vl: 2 of 4 answers cannot be read, so they score nothing"
    ]


def test_a_busy_server_is_asked_again_and_a_wrong_request_is_not(stub: Stub) -> None:
    replies = iter([(503, {"Retry-After": "0"}, b"busy"), (429, {}, b"slow down"), said("50")])
    stub.reply = lambda body: next(replies)
    judge = quick(stub, parallel=1)
    assert judge.score([take(counts=(5,))], None)[0].values == [0.5]
    assert len(stub.asked) == 3
    stub.reply = lambda body: (404, {}, b'{"error": {"message": "no model called tiny-vl"}}')
    with pytest.raises(ComponentError, match="404 Not Found .*no model called tiny-vl") as error:
        judge.score([take(counts=(6,))], None)
    assert len(stub.asked) == 4
    assert "\n" not in str(error.value)


def test_what_was_answered_before_the_server_died_is_kept(stub: Stub) -> None:
    takes = [take(instruction=f"task {number}", counts=(5,)) for number in range(4)]
    stub.reply = lambda body: said("50") if len(stub.asked) < 3 else (500, {}, b"out of memory")
    with pytest.raises(ComponentError, match="500 .*out of memory.*what it answered is kept"):
        quick(stub, parallel=1, retries=1).score(takes, None)
    stub.reply, before = (lambda body: said("50")), len(stub.asked)
    assert [score.values for score in quick(stub).score(takes, None)] == [[0.5]] * 4
    assert len(stub.asked) == before + 2


def test_a_server_that_hangs_or_is_gone_is_one_line(stub: Stub) -> None:
    waiting = threading.Event()

    def hang(body: dict[str, Any]) -> Reply:
        waiting.wait(10)
        return said("1")

    stub.reply = hang
    try:
        with pytest.raises(ComponentError, match="does not answer .*timed out"):
            quick(stub, timeout=0.05, retries=1, parallel=1).score([take(counts=(5,))], None)
    finally:
        waiting.set()
    gone = ChatServer("http://127.0.0.1:9/v1/chat/completions", retries=0)
    with pytest.raises(ComponentError, match="does not answer .*refused"):
        gone.ask({})


@pytest.mark.parametrize(
    "data", [b"<html>", b"{}", b'{"choices": []}', b'{"choices": [{"message": "x"}]}', b"[" * 5000, b" " * (2 << 20)]
)
def test_an_answer_that_is_no_chat_completion_is_one_line(stub: Stub, data: bytes) -> None:
    stub.reply = lambda body: (200, {}, data)
    with pytest.raises(ComponentError, match="something else than a chat completion"):
        quick(stub).score([take(counts=(5,))], None)


def test_frames_go_to_no_other_machine_unless_the_user_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://192.0.2.1:8000", "https://judge.example", "http://127.0.0.1.example", "http://0.0.0.0:1"):
        with pytest.raises(ComponentError, match="would send frames of your takes to .*; set BESTTAKE_ALLOW_UPLOAD=1"):
            make(url, model="m")
    monkeypatch.setenv("BESTTAKE_ALLOW_UPLOAD", "1")
    assert make("https://judge.example", model="m").spec.name == "judge m"


def test_a_redirect_is_not_followed(stub: Stub) -> None:
    stub.reply = lambda body: (307, {"Location": "http://127.0.0.1:9/elsewhere"}, b"")
    with pytest.raises(ComponentError, match="307"):
        quick(stub).score([take(counts=(5,))], None)
    assert len(stub.asked) == 1


def test_a_proxy_does_not_see_what_is_asked_on_this_machine(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert quick(stub).score([take()], None)


def test_the_key_comes_from_the_environment_and_is_repeated_nowhere(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(KEY, "sk-very-secret")
    with caplog.at_level(logging.DEBUG):
        quick(stub).score([take()], None)
        assert stub.headers[0]["Authorization"] == "Bearer sk-very-secret"
        stub.reply = lambda body: (401, {}, b"Incorrect API key provided: sk-very-secret")
        with pytest.raises(ComponentError, match=r"401 .*provided: \[key\]") as error:
            quick(stub).score([take(instruction="other")], None)
    assert "sk-very-secret" not in str(error.value) + caplog.text
    assert not any(b"sk-very-secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(ComponentError, match="may hold no password"):
        make("http://me:secret@127.0.0.1:8000", model="m")


def test_a_run_is_scored_from_its_films_and_instructions(stub: Stub, tmp_path: Path) -> None:
    plan = Plan(
        policy=["testbed:half"], env=["testbed:pick"], starts=2, seeds=2, arms=("base",), demos_per_task=2,
        probe_states=0, check_states=0,
    )  # fmt: skip
    diagnose(plan, tmp_path / "run")
    result = score(tmp_path / "run", f"{HERE}{stub.url}&model=tiny-vl&frames=2")
    assert not result.lost
    texts = {body["messages"][0]["content"][-1]["text"] for body in stub.asked}
    assert all("Task: pick" in text for text in texts)
    scores = Scores.open(tmp_path / "run")
    assert scores is not None
    count = len(stub.asked)
    score(tmp_path / "run", f"{HERE}{stub.url}&model=tiny-vl&frames=2")
    assert len(stub.asked) == count
