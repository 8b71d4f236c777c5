"""How requests of several clients become one call of the policy, and what clients cannot do to each other."""

from __future__ import annotations

import dataclasses
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from besttake.policies.remote_wire import Message, pack_message, unpack_message
from besttake.serving import Limits, serve
from besttake.types import PolicySpec

WAIT = 120


class Gated:
    """A row is the mean of its picture, its state and noise of its draw. Calls wait for the gate and are kept."""

    spec = PolicySpec("gated", "flow", horizon=4, action_dim=3, replan=1, cameras=("wrist",), state_dim=5, width=8)

    def __init__(self, most=99):
        self.calls, self.most = list[list[str]](), most
        self.gate, self.entered = threading.Event(), threading.Semaphore(0)
        self.gate.set()

    def sample(self, observations, draws, warm=None):
        names = [seen.instruction for seen in observations]
        self.calls.append(names)
        self.entered.release()
        assert self.gate.wait(WAIT)
        if "fail" in names or len(names) > self.most:
            raise RuntimeError("fell over")
        pictures = np.stack([seen.images["wrist"] for seen in observations])  # of one size, as a model wants them
        rows = [draw.normal((4, 3)) + seen.state.mean() for seen, draw in zip(observations, draws, strict=True)]
        return (np.stack(rows) + pictures.mean((1, 2, 3))[:, None, None]).astype(np.float32)


class Client:
    """One connection to a server; ``ask`` sends an observation of its own, ``answer`` waits for the action."""

    opened: ClassVar[list[Any]] = []

    def __init__(self, url, name="push", start=None, size=8):
        self.socket, self.name, self.size, self.asked = connect(url, close_timeout=1).__enter__(), name, size, 0
        self.opened.append(self.socket)
        task = {} if start is None else {"task": {"name": "push", "episode_idx": start}}
        self.socket.send(pack_message(Message("episode_start", task)))

    def ask(self):
        self.asked += 1
        number = (sum(map(ord, self.name)) + self.asked) % 250
        payload: dict[str, Any] = {"images": {"wrist": np.full((self.size, self.size, 3), number, np.uint8)}}
        payload |= {"states": np.full(5, number, np.float32), "task_description": self.name}
        self.socket.send(pack_message(Message("observation", payload, self.asked)))

    def answer(self) -> Any:
        reply = unpack_message(self.socket.recv(timeout=WAIT))
        assert reply.seq == self.asked
        return reply.payload["actions"] if reply.type == "action" else reply.payload["error"]

    def act(self):
        self.ask()
        return self.answer()


@pytest.fixture(autouse=True)
def all_closed():
    """A socket that is left open is a warning in whichever test the memory is cleared."""
    yield
    while Client.opened:
        Client.opened.pop().close()


def held(policy, server, first="first"):
    """A client whose call has begun and cannot end: what comes now waits for the next one."""
    client = Client(server.url, first)
    while policy.entered.acquire(blocking=False):
        pass
    policy.gate.clear()
    client.ask()
    assert policy.entered.acquire(timeout=WAIT)
    return client


def waiting(server, count):
    """Return when ``count`` requests wait for a call."""
    for _ in range(WAIT * 100):
        if len(server._batches._waiting) == count:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{len(server._batches._waiting)} wait, not {count}")


def test_what_comes_while_the_policy_samples_is_one_call_of_at_most_its_width():
    policy = Gated()
    with serve(policy) as server:
        first = held(policy, server)
        others = [Client(server.url, f"other {number}") for number in range(10)]
        for client in others:
            client.ask()
        waiting(server, 10)
        policy.gate.set()
        for client in (first, *others):
            assert client.answer().shape == (3,)
    assert [len(call) for call in policy.calls] == [1, 8, 2]


def test_a_client_gets_the_same_bits_whoever_shares_its_calls():
    """Eight clients at once, each in an episode and with observations of its own, against a server without batches."""

    def played(batch):
        policy = Gated()
        with serve(policy, seed=3, limits=Limits(batch=batch)) as server, ThreadPoolExecutor(8) as pool:
            clients = [Client(server.url, f"client {number}", start=number) for number in range(8)]
            actions = list(pool.map(lambda client: np.stack([client.act() for _ in range(6)]), clients))
        return np.stack(actions), max(map(len, policy.calls))

    (together, widest), (alone, one) = played(None), played(1)
    assert widest > 1
    assert one == 1
    np.testing.assert_array_equal(together, alone)


def test_clients_with_pictures_of_other_sizes_do_not_share_a_call():
    policy = Gated()
    with serve(policy) as server:
        first = held(policy, server)
        others = [Client(server.url, f"{size} {number}", size=size) for number in range(2) for size in (8, 16)]
        for client in others:
            client.ask()
        waiting(server, 4)
        policy.gate.set()
        assert all(client.answer().shape == (3,) for client in (first, *others))
    assert sorted(sorted(call) for call in policy.calls[1:]) == [["16 0", "16 1"], ["8 0", "8 1"]]


def test_a_request_that_makes_the_policy_fail_costs_the_others_nothing():
    policy = Gated()
    with serve(policy) as server:
        bad, good = Client(server.url, "fail"), [Client(server.url, f"good {number}") for number in range(3)]
        first = held(policy, server)
        for client in (good[0], bad, *good[1:]):
            client.ask()
        waiting(server, 4)
        policy.gate.set()
        assert bad.answer() == "RuntimeError: fell over"
        assert all(client.answer().shape == (3,) for client in (first, *good))


def test_a_client_that_leaves_while_it_waits_is_not_sampled():
    policy = Gated()
    with serve(policy) as server:
        first = held(policy, server)
        leaves, stays = Client(server.url, "leaves"), Client(server.url, "stays")
        leaves.ask()
        stays.ask()
        waiting(server, 2)
        leaves.socket.socket.shutdown(socket.SHUT_RDWR)
        for _ in range(WAIT * 100):
            if not all(row.client.is_open() for row in server._batches._waiting):
                break
            threading.Event().wait(0.01)
        policy.gate.set()
        assert all(client.answer().shape == (3,) for client in (first, stays))
    assert policy.calls == [["first"], ["stays"]]


def test_closing_turns_away_those_who_wait():
    policy = Gated()
    server = serve(policy)
    first, second = held(policy, server), Client(server.url, "second")
    second.ask()
    waiting(server, 1)
    server.close()
    for client in (first, second):
        with suppress(ConnectionClosed):
            assert client.answer() == "the server is closing"
    policy.gate.set()


class Frugal(Gated):
    """Gives every call's chunks in the same memory, as models with fixed buffers do."""

    spec = dataclasses.replace(Gated.spec, replan=4)
    out = np.zeros((8, 4, 3), np.float32)

    def sample(self, observations, draws, warm=None):
        chunks = self.out[: len(draws)]
        chunks[:] = super().sample(observations, draws)
        return chunks


def test_a_policy_that_uses_its_memory_again_does_not_mix_clients_up():
    with serve(Frugal()) as server:
        client = Client(server.url, start=3)
        alone = [client.act() for _ in range(4)]
        client.socket.close()
    with serve(Frugal()) as server:
        first, second = Client(server.url, start=3), Client(server.url, "other", start=4)
        actions = [first.act()]
        second.act()
        actions += [first.act() for _ in range(3)]
        for one in (first, second):
            one.socket.close()
    np.testing.assert_array_equal(actions, alone)
