from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import pytest
from websockets.sync.server import serve as listen

from besttake import registry
from besttake.errors import ComponentError
from besttake.policies.remote import OpenpiPolicy, ServedPolicy
from besttake.policies.remote_wire import pack_openpi, unpack_openpi
from besttake.takes.draws import Draw
from besttake.testing import check_policy
from besttake.types import Observation

DRAW = Draw(0, "push", 3, 0)


def observation(value=1.0):
    picture = np.full((6, 6, 3), 9, np.uint8)
    return Observation({"agentview": picture, "wrist": picture}, np.full(8, value, np.float32), "push")


@contextlib.contextmanager
def scripted(answer, greeting=None):
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

    with scripted(answer) as uri:
        policy: Any = registry.policy(f"{uri}?replan=5")
        assert (policy.spec.horizon, policy.spec.action_dim, policy.spec.replan) == (10, 7, 5)
        assert policy.spec.cameras == ("agentview", "wrist")
        assert not policy.spec.seeded
        assert check_policy(policy) == ("shape",)
        got = policy.sample([observation(2), observation(3)], [DRAW, DRAW])
        policy.close()
    np.testing.assert_array_equal(got[:, 0, 0], [2, 3])
    assert got.dtype == np.float32


def test_a_broken_connection_is_reopened_once():
    with scripted(lambda request, count: None if count == 2 else np.zeros((4, 7))) as uri:
        policy: Any = registry.policy(uri)
        assert policy.sample([observation()], [DRAW]).shape == (1, 4, 7)
        policy.close()


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
def test_a_bad_answer_is_one_clear_line(answer, words):
    with scripted(lambda request, count: np.zeros((4, 7)) if count == 1 else answer) as uri:
        policy: Any = registry.policy(f"{uri}?timeout={0.5 if 'no answer' in words else 60}")
        with pytest.raises(ComponentError, match=words) as error:
            policy.sample([observation()], [DRAW])
        policy.close()
    assert "\n" not in str(error.value)


def test_rows_keep_their_places_over_several_connections():
    with scripted(lambda request, count: np.full((2, 7), request["observation/state"].mean())) as uri:
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
        ServedPolicy.read({"besttake": entry})
    assert ServedPolicy.read({"besttake": {**entry, "horizon": 50}}).horizon == 50
