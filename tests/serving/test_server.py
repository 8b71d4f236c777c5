from __future__ import annotations

import json
import socket
import time
import urllib.request
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from besttake.conventions import LIBERO_STATE, Convention
from besttake.errors import ComponentError
from besttake.policies.remote_wire import Message, pack_message, pack_openpi, unpack_message, unpack_openpi
from besttake.serving import Limits, serve
from besttake.takes.draws import Draw


def payload(observation, **changes):
    return {
        "images": dict(observation.images),
        "states": observation.state,
        "task_description": observation.instruction,
        **changes,
    }


def exchange(socket, message):
    socket.send(pack_message(message))
    return unpack_message(socket.recv(timeout=120))


def act(socket, observation, seq=1, **changes):
    return exchange(socket, Message("observation", payload(observation, **changes), seq))


def test_a_named_episode_gets_its_own_draws_on_any_connection(policy, observation):
    """Two connections ask for the same episode: the actions are those of its draws, and of its second seed."""
    with serve(policy, seed=9) as server:
        episodes = []
        for _ in range(2):
            with connect(server.url) as socket:
                socket.send(pack_message(Message("episode_start", {"task": {"name": "push", "episode_idx": 4}})))
                episodes.append([act(socket, observation, seq).payload["actions"] for seq in range(4)])
    for seed, actions in enumerate(episodes):
        draw = Draw(9, "push", 4, seed)
        chunks = [policy.sample([observation], [draw.at(chunk)])[0, :2] for chunk in range(2)]
        np.testing.assert_array_equal(np.stack(actions), np.concatenate(chunks))


def test_openpi_clients_get_metadata_and_then_whole_chunks(policy, observation):
    request = {
        "observation/wrist": observation.images["wrist"],
        "observation/state": observation.state,
        "prompt": "push",
    }
    with serve(policy, "openpi", seed=2) as server, connect(server.url) as socket:
        metadata = unpack_openpi(socket.recv(timeout=120))
        assert metadata["besttake"]["horizon"] == 4
        for chunk in range(2):
            socket.send(pack_openpi(request))
            got = unpack_openpi(socket.recv(timeout=120))["actions"]
            draw = Draw(2, "connection", 0, 0, chunk)
            np.testing.assert_array_equal(got, policy.sample([observation], [draw])[0])


OBJECT_ARRAY = {"__ndarray__": True, "data": b"12345678", "dtype": "|O", "shape": [1]}
MALFORMED = {
    "not msgpack": b"\xc1\xff\x00",
    "text": "hello?",
    "no payload": msgpack.packb({"type": "observation", "seq": 1}),
    "unknown type": msgpack.packb({"type": "exec", "payload": {}, "seq": 1, "timestamp": 0}),
    "object dtype": msgpack.packb(
        {"type": "observation", "payload": {"states": OBJECT_ARRAY}, "seq": 1, "timestamp": 0}
    ),
    "short array": msgpack.packb(
        {"type": "observation", "payload": {"states": {**OBJECT_ARRAY, "dtype": "<f4", "shape": [9]}}, "seq": 1}
    ),
    "damaged image": msgpack.packb(
        {"type": "observation", "payload": {"i": {"__image__": True, "format": "png", "data": b"no"}}, "seq": 1}
    ),
    "negative shape": msgpack.packb(
        {"type": "observation", "payload": {"states": {**OBJECT_ARRAY, "dtype": "<f4", "shape": [-2]}}, "seq": 1}
    ),
}


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("protocol", ["vla-eval", "openpi"])
def test_a_malformed_frame_is_answered_and_the_session_goes_on(policy, observation, protocol, frame):
    with serve(policy, protocol) as server, connect(server.url) as socket:
        if protocol == "openpi":
            socket.recv(timeout=120)
            socket.send(frame)
            report = socket.recv(timeout=120)
            assert isinstance(report, str)
            assert "\n" not in report
            good = {"wrist": observation.images["wrist"], "state": observation.state}
            socket.send(pack_openpi(good))
            assert unpack_openpi(socket.recv(timeout=120))["actions"].shape == (4, 3)
        else:
            socket.send(frame)
            assert unpack_message(socket.recv(timeout=120)).type == "error"
            assert act(socket, observation).payload["actions"].shape == (3,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": {"front": np.zeros((8, 8, 3), np.uint8)}}, ("wrist", "front", "`cameras`")),
        ({"images": {"wrist": np.zeros((8, 8), np.uint8)}}, ("(H, W, 3)",)),
        ({"states": np.zeros(4, np.float32)}, ("5", "4")),
        ({"states": None, "images": {}}, ("left out image wrist, the state; its images: none",)),
        ({"task_description": "fail"}, ("RuntimeError", "fell over")),
        ({"task_description": "nan"}, ("not finite",)),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_line(policy, observation, changes, words):
    with serve(policy) as server, connect(server.url) as socket:
        reply = act(socket, observation, 7, **changes)
        assert (reply.type, reply.seq) == ("error", 7)
        assert all(word in reply.payload["error"] for word in words)
        assert "\n" not in reply.payload["error"]
        assert act(socket, observation).type == "action"


@pytest.mark.parametrize(
    ("changes", "params"),
    [
        ({"cameras": ("agentview",), "state_dim": 0}, {}),
        ({"cameras": ("agentview",), "state_dim": 8}, {"send_state"}),
        ({"cameras": ("hand",), "state_dim": 0}, {"send_wrist_image"}),
        (
            {"state_dim": 8, "convention": Convention(state=LIBERO_STATE)},
            {"send_wrist_image", "send_state", "quat_no_antipodal"},
        ),
    ],
)
def test_vla_evals_benchmarks_are_asked_for_what_the_policy_reads(policy, monkeypatch, changes, params):
    monkeypatch.setattr(policy, "spec", replace(policy.spec, **changes))
    with serve(policy) as server, connect(server.url) as socket:
        hello = exchange(socket, Message("hello", {"protocol_version": 1}))
    assert hello.payload["observation_params"] == dict.fromkeys(params, True)


def test_a_request_over_the_limit_ends_that_connection_only(policy, observation):
    with serve(policy, limits=Limits(max_bytes=4096)) as server:
        with connect(server.url) as socket:
            socket.send(b"\0" * 5000)
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=120)
        assert closed.value.rcvd.code == 1009
        with connect(server.url) as socket:
            assert act(socket, observation).type == "action"


@pytest.mark.parametrize("path", ["/health", "/healthz"])
def test_health_is_open_and_says_what_is_served(policy, path):
    with serve(policy, token="secret") as server:
        answer = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=120).read())
    assert answer == {"status": "ok", "protocol": "vla-eval", "policy": "noisy"}


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_other_machines_need_a_token(policy, host):
    with pytest.raises(ComponentError, match="give a `token`"):
        serve(policy, host=host)


def test_a_token_is_asked_for_and_taken_three_ways(policy):
    with serve(policy, token="secret") as server:
        twice = Headers([("Authorization", "Bearer secret"), ("Authorization", "Bearer wrong")])
        for headers, query in (({}, ""), ({"Authorization": "Bearer wrong"}, ""), ({}, "?token=wrong"), (twice, "")):
            with pytest.raises(InvalidStatus) as refused:
                connect(server.url + "/" + query, additional_headers=headers)
            assert refused.value.response.status_code == 401
        for headers, query in (
            ({"Authorization": "Bearer secret"}, ""),
            ({"Authorization": "Api-Key secret"}, ""),
            ({}, "?token=secret"),
        ):
            with connect(server.url + "/" + query, additional_headers=headers) as socket:
                assert exchange(socket, Message("hello", {"protocol_version": 1})).type == "hello"


def test_a_taken_port_and_an_unknown_protocol_are_said_plainly(policy):
    with serve(policy) as server, pytest.raises(ComponentError, match=f"cannot serve on 127.0.0.1:{server.port}"):
        serve(policy, port=server.port)
    with pytest.raises(ComponentError, match="vla-eval, openpi"):
        serve(policy, "grpc")
    with pytest.raises(ComponentError, match="noisy reads: wrist"):
        serve(policy, cameras={"front": "agentview"})


def test_web_pages_are_refused_unless_their_origin_is_allowed(policy, observation):
    with serve(policy) as server:
        for origin in ("http://evil.example", "null", "", f"http://127.0.0.1:{server.port}"):
            with pytest.raises(InvalidStatus) as refused:
                connect(server.url, additional_headers={"Origin": origin})
            assert refused.value.response.status_code == 403
        with connect(server.url) as socket:
            assert act(socket, observation).type == "action"
    with serve(policy, limits=Limits(origins=("http://lab.example",))) as server:
        with connect(server.url, additional_headers={"Origin": "http://lab.example"}) as socket:
            assert act(socket, observation).type == "action"
        with pytest.raises(InvalidStatus):
            connect(server.url, additional_headers={"Origin": "http://lab.example.evil.example"})


def test_connections_are_bounded(policy, observation):
    with serve(policy, limits=Limits(max_sessions=2)) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port), timeout=120) for _ in range(20)]
        with connect(server.url) as first, connect(server.url) as second:
            assert act(first, observation).type == act(second, observation).type == "action"
            with pytest.raises(InvalidStatus) as refused:
                connect(server.url)
            assert refused.value.response.status_code == 503
        for each in idle:
            each.close()
        for _ in range(600):  # until the server has seen them go
            if not server._open:
                break
            time.sleep(0.1)
        with connect(server.url) as client:
            assert act(client, observation).type == "action"


def test_who_names_many_episodes_takes_no_memory_and_nothing_from_others(policy, observation, monkeypatch):
    """Its own oldest episodes are forgotten; those of another client, and of who has left, keep their seeds."""
    monkeypatch.setattr("besttake.serving.served._MOST_EPISODES", 50)

    def begin(socket, name, start):
        socket.send(pack_message(Message("episode_start", {"task": {"name": name, "episode_idx": start}})))
        return act(socket, observation).payload["actions"]

    def seeded(start, seed):
        return policy.sample([observation], [Draw(9, "push", start, seed)])[0, 0]

    with serve(policy, seed=9) as server:
        with connect(server.url) as gone:
            begin(gone, "push", 1)
        with connect(server.url) as other, connect(server.url) as flood:
            begin(other, "push", 2)
            begin(flood, "push", 3)
            for number in range(60):
                begin(flood, f"{number}" * 10_000, 0)
            kept = server._served._begun
            assert max(map(len, kept.values())) == 50
            assert all(len(name) == 16 for begun in kept.values() for name in begun)
            for start, seed in ((1, 1), (2, 1), (3, 0)):
                np.testing.assert_array_equal(begin(other, "push", start), seeded(start, seed))
