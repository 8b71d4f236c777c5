from __future__ import annotations

import contextlib
import socket as sockets
import threading
from typing import Any

import numpy as np
import pytest
from websockets.sync.server import serve as listen

from besttake import registry
from besttake.errors import ComponentError
from besttake.policies.remote_wire import Message, pack_message, unpack_message
from besttake.takes.draws import Draw
from besttake.testing import check_policy
from besttake.types import Observation

HELLO = {"harness_version": "0.8.0", "protocol_version": 1, "model_server": "Scripted"}


def observation(value=1.0):
    return Observation({"agentview": np.full((6, 6, 3), 9, np.uint8)}, np.full(8, value, np.float32), "push")


DRAW = Draw(0, "push", 3, 0)


@contextlib.contextmanager
def scripted(answer, hello=HELLO):
    """A server whose ``answer(payload, count)`` gives the actions; it keeps what it was asked in ``seen``."""
    seen = []

    def talk(socket):
        with contextlib.suppress(Exception):
            for frame in socket:
                message = unpack_message(frame)
                seen.append(message)
                if message.type == "hello":
                    socket.send(pack_message(Message("hello", hello, message.seq)))
                if message.type == "observation":
                    reply = answer(message.payload, sum(m.type == "observation" for m in seen))
                    if isinstance(reply, str):
                        return
                    if isinstance(reply, Message):
                        socket.send(pack_message(reply))
                    elif reply is not None:
                        socket.send(pack_message(Message("action", {"actions": reply}, message.seq)))

    with listen(talk, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"vla-eval:ws://127.0.0.1:{server.socket.getsockname()[1]}", seen
        server.shutdown()


def test_the_shape_of_a_chunk_comes_from_one_blank_request():
    with scripted(lambda payload, count: np.zeros((5, 7), np.float32)) as (uri, seen):
        policy: Any = registry.policy(uri)
        assert (policy.spec.horizon, policy.spec.action_dim, policy.spec.replan) == (5, 7, 5)
        assert (policy.spec.seeded, policy.spec.warm_start, policy.spec.cools) == (False, False, False)
        assert policy.server["model_server"] == "Scripted"
        assert check_policy(policy) == ("shape",)
        policy.close()
    assert [m.type for m in seen[:4]] == ["hello", "episode_start", "observation", "episode_end"]


def test_a_server_that_hands_out_one_action_at_a_time_is_asked_for_a_whole_chunk():
    with scripted(lambda payload, count: np.full(2, count, np.float32)) as (uri, seen):
        policy: Any = registry.policy(f"{uri}?horizon=3&replan=2")
        chunk = policy.sample([observation()], [DRAW])[0]
        policy.close()
    np.testing.assert_array_equal(chunk[:, 0], [2, 3, 4])
    asked = [m for m in seen if m.type == "episode_start"][-1]
    assert asked.payload["task"] == {"name": "push", "episode_idx": 3}
    assert policy.spec.replan == 2


def test_rows_keep_their_places_over_several_connections():
    def answer(payload, count):
        return payload["states"][:1]

    with scripted(answer) as (uri, _):
        policy: Any = registry.policy(f"{uri}?connections=3")
        rows = [observation(value) for value in range(7)]
        got = policy.sample(rows, [DRAW] * 7)
        policy.close()
    np.testing.assert_array_equal(got[:, 0, 0], np.arange(7))


def test_images_and_state_travel_under_the_names_the_server_uses():
    def answer(payload, count):
        return np.array([payload["images"]["cam0"].mean(), payload["state"].mean()])

    with scripted(answer) as (uri, _):
        policy: Any = registry.policy(f"{uri}?map=cam0:agentview&state=state")
        assert policy.spec.cameras == ("agentview",)
        np.testing.assert_array_equal(policy.sample([observation(4)], [DRAW])[0, 0], [9, 4])
        policy.close()


def test_a_broken_connection_is_reopened_once():
    with scripted(lambda payload, count: "close" if count == 2 else np.zeros(2)) as (uri, seen):
        policy: Any = registry.policy(uri)
        assert policy.sample([observation()], [DRAW]).shape == (1, 1, 2)
        policy.close()
    assert [m.type for m in seen].count("hello") == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda p, c: np.zeros(2) if c == 1 else "close", "is the server running"),
        (lambda p, c: np.zeros(2) if c == 1 else np.zeros(3), "3 action dimensions where 2"),
        (lambda p, c: np.zeros(2) if c == 1 else np.array([np.nan, 0]), "not finite"),
        (lambda p, c: np.zeros(2) if c == 1 else np.zeros((1, 1, 2)), "expected .horizon, action_dim."),
        (
            lambda p, c: np.zeros(2) if c == 1 else Message("error", {"error": "Trace\nKeyError: x"}),
            "failed: KeyError: x",
        ),
        (lambda p, c: np.zeros(2) if c == 1 else Message("action", {"acts": 1}, 1), "without actions; it has: acts"),
        (lambda p, c: np.zeros(2) if c == 1 else Message("action", {"actions": np.zeros(2)}, 40), "expected action 1"),
        (lambda p, c: np.zeros(2) if c == 1 else None, "no answer within 0.5 s"),
    ],
    ids=["gone", "dim", "nan", "shape", "error", "key", "seq", "timeout"],
)
def test_a_bad_answer_is_one_clear_line(answer, words):
    with scripted(answer) as (uri, _):
        policy: Any = registry.policy(f"{uri}?timeout={0.5 if 'no answer' in words else 60}")
        with pytest.raises(ComponentError, match=words) as error:
            policy.sample([observation()], [DRAW])
        policy.close()
    assert "\n" not in str(error.value)
    assert uri.removeprefix("vla-eval:") in str(error.value)


def test_nobody_there_a_wrong_address_and_bad_options_are_said_plainly():
    with sockets.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # taken, so that nobody else can have it, and nobody listens
        with pytest.raises(ComponentError, match="is the server running"):
            registry.policy(f"vla-eval:ws://127.0.0.1:{port}")
    with pytest.raises(ComponentError, match="write ws://host:port"):
        registry.policy("vla-eval:localhost:8000")
    for port in ("99999", "http"):
        with pytest.raises(ComponentError, match=r"Port .*: write ws://host:port"):
            registry.policy(f"vla-eval:ws://127.0.0.1:{port}")
    with pytest.raises(ComponentError, match="map=agentview is not a list of pairs"):
        registry.policy("vla-eval:ws://127.0.0.1:1?map=agentview")
    with pytest.raises(ComponentError, match="horizon=0 is not a whole number of at least 1"):
        registry.policy("vla-eval:ws://127.0.0.1:1?horizon=0")
