"""What observations cost on their way from a worker: pickled through a pipe, or in shared memory.

Run it with ``python -m bench observations``. The driver's thread that carries orders and answers reads every
observation. This measures the CPU seconds of that process per observation, of LIBERO's size (two pictures of 256 px)
and of the testbed's (one of 64 px), and sets them against a policy that samples 8 rows in 60 ms. Shared memory is
`takes/memory.py`, which leaves pictures as small as the testbed's to the pipe.
"""

from __future__ import annotations

import os
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from besttake.takes.memory import Memory, created
from besttake.takes.orders import Answer, Need
from besttake.types import Observation

SIZES = {"LIBERO (2 x 256 px)": (2, 256), "testbed (1 x 64 px)": (1, 64)}
ROWS, CALL = 8, 0.060
COUNT = 400


def answers(cameras: int, size: int) -> list[Answer]:
    pictures = {f"camera {index}": np.zeros((size, size, 3), np.uint8) for index in range(cameras)}
    seen = Observation(pictures, np.zeros(8, np.float32), "go")
    return [Need(0, seen, 5, np.zeros((5, 8), np.float32))]


def worker(pipe: Connection, memory: Memory | None, cameras: int, size: int) -> None:
    own = answers(cameras, size)
    for _ in range(COUNT):
        pipe.recv()
        pipe.send(own if memory is None else memory.put(own))


def carried(memory: Memory | None, cameras: int, size: int) -> float:
    """CPU seconds of this process per observation."""
    forked: Any = get_context("fork")
    mine, theirs = forked.Pipe()
    child = forked.Process(target=worker, args=(theirs, memory, cameras, size))
    child.start()
    began = 0.0
    for count in range(COUNT):
        if count == 1:  # the first one sets things up
            began = time.process_time()
        mine.send("next")
        received = mine.recv()
        if memory is not None:
            memory.get(received)
    spent = time.process_time() - began
    child.join()
    return spent / (COUNT - 1)


def main() -> None:
    print(
        f"CPU of the driver per observation; {ROWS} rows against a call of {1000 * CALL:.0f} ms, {os.cpu_count()} cores"
    )
    for name, (cameras, size) in SIZES.items():
        with created() as (memory, _):
            through = min(carried(None, cameras, size) for _ in range(5))
            beside = min(carried(memory, cameras, size) for _ in range(5))
        print(
            f"{name}: pipe {1e3 * through:.3f} ms ({ROWS * through / CALL:.1%} of the call), shared memory"
            f" {1e3 * beside:.3f} ms ({ROWS * beside / CALL:.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
