"""`besttake serve` against vla-eval's own model server, both batching, with a policy of 60 ms a call (it sleeps).

    python -m bench.serve [--clients 16] [--rounds 5] [--seconds 3] [--pictures 256]

Needs vla-eval (environment `vla_eval` of tests/integration). Each server has a process of its own. Clients are in a
third: each sends LIBERO's observation (two pictures of 256 x 256, 8 state numbers), packed once by vla-eval's own
code, and sends it again as soon as it is answered. The servers take turns; rates are medians over rounds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
import numpy as np
from vla_eval.model_servers.predict import PredictModelServer
from vla_eval.model_servers.serve import serve_async
from vla_eval.protocol.messages import Message, MessageType, pack_message, unpack_message
from vla_eval.specs import RAW
from websockets.asyncio.client import connect

from bench.timing import machine
from besttake.serving import serve
from besttake.types import PolicySpec

CALL = 0.06
WIDTH = 16


class Sleeper:
    """A policy whose every call takes 60 ms, for up to 16 rows."""

    spec = PolicySpec("sleeper", "flow", 1, 7, 1, cameras=("agentview", "wrist"), state_dim=8, width=WIDTH)

    def sample(self, observations: Sequence[Any], draws: Sequence[Any], warm: Any = None) -> Any:
        time.sleep(CALL)
        return np.zeros((len(observations), 1, 7), np.float32)


class SleepingServer(PredictModelServer):
    """The same behind vla-eval's server."""

    def predict_batch(self, obs_batch: Any, ctx_batch: Any) -> Any:
        time.sleep(CALL)
        return [{"actions": np.zeros(7, np.float32)} for _ in obs_batch]

    def get_action_spec(self) -> Any:
        return {"actions": RAW}

    def get_observation_spec(self) -> Any:
        return {}


def besttake_server() -> None:
    with serve(Sleeper()) as server:
        print(server.port, flush=True)
        threading.Event().wait()


def vla_eval_server(rows: int) -> None:
    async def run() -> None:
        async with anyio.create_task_group() as group:
            served = SleepingServer(max_batch_size=rows)
            print(await group.start(serve_async, served, "127.0.0.1", 0), flush=True)

    anyio.run(run)


SERVERS = {
    "besttake": besttake_server,
    "vla-eval": lambda: vla_eval_server(WIDTH),
    "vla-eval, one by one": lambda: vla_eval_server(1),
}


@contextmanager
def running(name: str) -> Iterator[str]:
    """The address of the server ``name``, in a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", "bench.serve", "--as", name], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"ws://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def observation(size: int) -> bytes:
    """One message; its pictures are about as easy to compress as rendered ones."""
    random = np.random.default_rng(0)
    small = random.integers(0, 256, (size // 8, size // 8, 3), np.uint8)
    images = {name: np.kron(small, np.ones((8, 8, 1), np.uint8)) for name in ("agentview", "wrist")}
    for image in images.values():
        image[::2, ::2] += random.integers(0, 8, image[::2, ::2].shape, np.uint8)
    payload = {"images": images, "states": np.zeros(8, np.float32), "task_description": "put it there"}
    return pack_message(Message(MessageType.OBSERVATION, payload, seq=1))


async def driven(url: str, clients: int, seconds: float, frame: bytes) -> list[float]:
    """The time of each answer that ``clients`` waited for, side by side, in ``seconds``."""
    waits: list[float] = []

    async def client() -> None:
        async with connect(url, compression=None, max_size=None) as socket:
            await socket.send(pack_message(Message(MessageType.EPISODE_START, {}, seq=0)))
            end = time.perf_counter() + seconds
            while (began := time.perf_counter()) < end:
                await socket.send(frame)
                answer = unpack_message(await socket.recv())
                assert answer.type == MessageType.ACTION, answer.payload
                waits.append(time.perf_counter() - began)

    async with anyio.create_task_group() as group:
        for _ in range(clients):
            group.start_soon(client)
    return waits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--pictures", type=int, default=256, help="their edge in pixels, a multiple of 8")
    parser.add_argument("--as", dest="role", choices=list(SERVERS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.role:
        SERVERS[asked.role]()
        return
    frame = observation(asked.pictures)
    print(f"messages of {len(frame) / 1000:.0f} kB")
    with ExitStack() as stack:
        urls = {name: stack.enter_context(running(name)) for name in SERVERS}
        for clients in (asked.clients, 1):
            measured: dict[str, list[list[float]]] = {name: [] for name in urls}
            for turn in range(asked.rounds):
                for name in list(urls)[:: -1 if turn % 2 else 1]:
                    if clients == 1 or "one by one" not in name:
                        measured[name].append(anyio.run(driven, urls[name], clients, asked.seconds, frame))
            report(clients, asked.seconds, measured)
    print(machine())


def report(clients: int, seconds: float, measured: dict[str, list[list[float]]]) -> None:
    """Medians over rounds, and ours over theirs of the same round."""
    print(f"{clients} clients" if clients > 1 else "1 client")
    for name, rounds in measured.items():
        if not rounds:
            continue
        rate = np.median([len(waits) / seconds for waits in rounds])
        wait = np.median([np.median(waits) for waits in rounds]) * 1e3
        slow = np.median([np.quantile(waits, 0.95) for waits in rounds]) * 1e3
        against = [len(own) / len(other) for own, other in zip(measured["besttake"], rounds, strict=True)]
        line = f"  {name:<22} {rate:6.1f} answers/s  {wait:6.1f} ms (95 % within {slow:.1f})"
        print(line if name == "besttake" else f"{line}  besttake {np.median(against):.2f}x its rate")


if __name__ == "__main__":
    main()
