"""Policies behind model servers: openpi's and vla-eval's, each scripted here."""

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
from besttake.policies.remote import Greeting, OpenpiPolicy
from besttake.policies.remote_wire import Message, pack_message, pack_openpi, unpack_message, unpack_openpi
from besttake.takes.draws import Draw
from besttake.testing import check_policy
from besttake.types import Observation

DRAW = Draw(0, "push", 3, 0)


def observation(value=1.0):
    picture = np.full((6, 6, 3), 9, np.uint8)
    return Observation({"agentview": picture, "wrist": picture}, np.full(8, value, np.float32), "push")


@contextlib.contextmanager
def openpi_server(answer, greeting=None):
    """A server that greets and whose ``answer(request, count)`` is the frame to send (None: hang up, ...: silence)."""
    count = iter(range(1, 10_000))

    def talk(socket):
        with contextlib.suppress(Exception):
            socket.send(pack_openpi({}) if greeting is None else greeting)
            for frame in socket:
                reply = answer(unpack_openpi(frame), next(count))
                if reply is None:
                    return
                if reply is ...:
                    continue
                socket.send(reply if isinstance(reply, str | bytes) else pack_openpi({"actions": reply}))

    with listen(talk, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"openpi:ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()


def test_the_keys_of_openpis_libero_policies_are_the_default():
    def answer(request, count):
        assert set(request) == {"observation/image", "observation/wrist_image", "observation/state", "prompt"}
        return np.full((10, 7), request["observation/state"].mean())

    with openpi_server(answer) as uri:
        policy: Any = registry.policy(f"{uri}?replan=5")
        assert (policy.spec.horizon, policy.spec.action_dim, policy.spec.replan) == (10, 7, 5)
        assert policy.spec.cameras == ("agentview", "wrist")
        assert not policy.spec.seeded
        assert check_policy(policy) == ("shape",)
        got = policy.sample([observation(2), observation(3)], [DRAW, DRAW])
        policy.close()
    np.testing.assert_array_equal(got[:, 0, 0], [2, 3])
    assert got.dtype == np.float32


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "is the server running"),
        ("Traceback\n  File\nValueError: bad state", "the server failed: ValueError: bad state"),
        (np.zeros((3, 7)), "3 actions where 4"),
        (np.zeros((4, 6)), "6 action dimensions where 7"),
        (np.full((4, 7), np.inf), "not finite"),
        (b"\xc1", "cannot decode"),
        (pack_openpi({"state": 1}), "without actions; it has: state"),
        (..., r"no answer within 0.5 s; raise it with \?timeout="),
    ],
    ids=["gone", "error", "short", "dim", "inf", "bytes", "key", "timeout"],
)
def test_a_bad_answer_of_openpi_is_one_clear_line(answer, words):
    with openpi_server(lambda request, count: np.zeros((4, 7)) if count == 1 else answer) as uri:
        policy: Any = registry.policy(f"{uri}?timeout={0.5 if 'no answer' in words else 60}")
        with pytest.raises(ComponentError, match=words) as error:
            policy.sample([observation()], [DRAW])
        policy.close()
    assert "\n" not in str(error.value)


def test_rows_keep_their_places_over_several_connections():
    with openpi_server(lambda request, count: np.full((2, 7), request["observation/state"].mean())) as uri:
        policy: Any = registry.policy(f"{uri}?connections=3")
        got = policy.sample([observation(value) for value in range(7)], [DRAW] * 7)
        policy.close()
    np.testing.assert_array_equal(got[:, 0, 0], np.arange(7))


def test_a_chunk_that_no_policy_has_is_refused():
    policy = object.__new__(OpenpiPolicy)
    policy.uri = "openpi:ws://x"
    for shape in ((2_000_000, 7), (3, 20_000), (0, 7), (20_000,)):
        with pytest.raises(ComponentError, match="which no policy has"):
            policy.chunk({"actions": np.zeros(shape, np.float32)}, None, None)
    assert policy.chunk({"actions": np.zeros((50, 7), np.float32)}, None, None).shape == (50, 7)
    entry = {"horizon": 2_000_000, "action_dim": 7, "replan": 1, "cameras": ["wrist"]}
    with pytest.raises(ComponentError, match="which no policy has"):
        Greeting.read({"besttake": entry})
    assert Greeting.read({"besttake": {**entry, "horizon": 50}}).horizon == 50


HELLO = {"harness_version": "0.8.0", "protocol_version": 1, "model_server": "Scripted"}


@contextlib.contextmanager
def vla_eval_server(answer, hello=HELLO):
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
    with vla_eval_server(lambda payload, count: np.zeros((5, 7), np.float32)) as (uri, seen):
        policy: Any = registry.policy(uri)
        assert (policy.spec.horizon, policy.spec.action_dim, policy.spec.replan) == (5, 7, 5)
        assert (policy.spec.seeded, policy.spec.warm_start, policy.spec.cools) == (False, False, False)
        assert policy.server["model_server"] == "Scripted"
        assert check_policy(policy) == ("shape",)
        policy.close()
    assert [m.type for m in seen[:4]] == ["hello", "episode_start", "observation", "episode_end"]


def test_a_server_that_hands_out_one_action_at_a_time_is_asked_for_a_whole_chunk():
    with vla_eval_server(lambda payload, count: np.full(2, count, np.float32)) as (uri, seen):
        policy: Any = registry.policy(f"{uri}?horizon=3&replan=2")
        chunk = policy.sample([observation()], [DRAW])[0]
        policy.close()
    np.testing.assert_array_equal(chunk[:, 0], [2, 3, 4])
    asked = [m for m in seen if m.type == "episode_start"][-1]
    assert asked.payload["task"] == {"name": "push", "episode_idx": 3}
    assert policy.spec.replan == 2


def test_images_and_state_travel_under_the_names_the_server_uses():
    def answer(payload, count):
        return np.array([payload["images"]["cam0"].mean(), payload["state"].mean()])

    with vla_eval_server(answer) as (uri, _):
        policy: Any = registry.policy(f"{uri}?map=cam0:agentview&state=state")
        assert policy.spec.cameras == ("agentview",)
        np.testing.assert_array_equal(policy.sample([observation(4)], [DRAW])[0, 0], [9, 4])
        policy.close()


def test_a_broken_connection_is_reopened_once():
    with vla_eval_server(lambda payload, count: "close" if count == 2 else np.zeros(2)) as (uri, seen):
        policy: Any = registry.policy(uri)
        assert policy.sample([observation()], [DRAW]).shape == (1, 1, 2)
        policy.close()
    assert [m.type for m in seen].count("hello") == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.zeros((1, 1, 2)), "expected .horizon, action_dim."),
        (Message("error", {"error": "Trace\nKeyError: x"}), "failed: KeyError: x"),
        (Message("action", {"actions": np.zeros(2)}, 40), "expected action 1"),
    ],
    ids=["shape", "error", "seq"],
)
def test_a_bad_answer_of_vla_eval_is_one_clear_line(answer, words):
    with vla_eval_server(lambda payload, count: np.zeros(2) if count == 1 else answer) as (uri, _):
        policy: Any = registry.policy(uri)
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
