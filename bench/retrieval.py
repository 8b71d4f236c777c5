"""Retrieval and scores of large libraries, beside the way it was before there were bounds.

python -m bench.retrieval [--events 19000] [--frames 100000] [--scored 1000000] [--dim 1536] [--queries 512]
                          [--real FILE.npz] [--json]

Four kinds of embeddings: smooth walks of 32 dimensions seen through 1536 with little noise and with more, walks of 200
dimensions, and isotropic ones, near no subspace, which nothing but a full product can search: the worst case. Chunks of
16 x 7 and states of 8 numbers are walks, too. Queries are new walks of the same kind. ``--real`` takes embeddings,
states and actions of real pictures instead (`bench.real_frames` makes the file); every tenth demonstration asks, the
others are searched. One thread and CPU time, so that a busy machine does not decide; memory is what is anonymous and
resident (mapped files do not count), above what the process had before. `batched` asks for all queries at once,
`single` for one at a time. `batched_of_roof` and `single_of_roof` set that beside the rate of one float32 product of
the queries and all embeddings, all at once or one by one, in the same run: what a search that compares everything can
reach at most. ``--events`` are in memory and matched by rule `next`; ``--frames`` are a library on disk, matched by
`frame`, its index made and then mapped; ``--scored`` are only scored, by `manifold` and `coverage` (every 50,000 the
same, to save time). ``--old`` and ``--old-frames`` queries are asked in the old way, too. 0 leaves a part out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

from bench.plain_retrieval import PlainRetriever  # noqa: E402
from bench.score import Trajectories, isotropic  # noqa: E402
from besttake.core.cover import Demos, cover  # noqa: E402
from besttake.core.events import EventConfig  # noqa: E402
from besttake.core.retrieve import Candidates, Match, RetrievalConfig, Retriever  # noqa: E402
from besttake.core.search import Index  # noqa: E402
from besttake.demos.head import DemoHead, EncoderHead, LibraryContent  # noqa: E402
from besttake.demos.index import FOLDER  # noqa: E402
from besttake.demos.library import Library  # noqa: E402
from besttake.demos.write import writing  # noqa: E402
from besttake.files import cache_dir  # noqa: E402

HORIZON, ACTION, STATE, LENGTH = 16, 7, 8, 100
Maker = Callable[[np.random.Generator, int, int], np.ndarray]


def kinds(dim: int) -> dict[str, Maker]:
    rng = np.random.default_rng(0)
    return {
        "trajectories": Trajectories(rng, dim, 32, 0.02),
        "noisy trajectories": Trajectories(rng, dim, 32, 0.1),
        "wide trajectories": Trajectories(rng, dim, 200, 0.1),
        "isotropic": isotropic,
    }


def walks(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    steps = rng.standard_normal((-(-rows // LENGTH), LENGTH, width), dtype=np.float32)
    return (np.cumsum(steps, axis=1) / 10).reshape(-1, width)[:rows]


def windows(actions: np.ndarray) -> np.ndarray:
    seen = np.lib.stride_tricks.sliding_window_view(actions, HORIZON, axis=0)
    return np.ascontiguousarray(seen.transpose(0, 2, 1))


def blocks(make: Maker, rng: np.random.Generator, rows: int, dim: int) -> Iterator[np.ndarray]:
    for first in range(0, rows, 5000):
        yield make(rng, min(5000, rows - first), dim)


@dataclass(frozen=True)
class Steps:
    """Steps of demonstrations of 100: ``images`` in blocks, ``states`` (n, s), ``actions`` (n, a) and their chunks."""

    images: Iterator[np.ndarray]
    states: np.ndarray
    actions: np.ndarray
    chunks: np.ndarray


class Made:
    """Steps of a made-up kind."""

    def __init__(self, make: Maker, dim: int) -> None:
        self.make, self.dim = make, dim

    def steps(self, seed: int, count: int) -> Steps:
        rng = np.random.default_rng(seed)
        states, actions = walks(rng, count, STATE), walks(rng, count + HORIZON - 1, ACTION)
        return Steps(blocks(self.make, rng, count, self.dim), states, actions[:count], windows(actions))

    known = asked = steps


class Real:
    """Steps of real demonstrations, as `bench.real_frames` writes them."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.images, self.states, self.actions, demo = (
                file[name] for name in ("embeddings", "states", "actions", "demo")
            )
        self.dim = self.images.shape[1]
        self.last = np.searchsorted(demo, demo, side="right") - 1
        self.asks = demo % 10 == 9

    def known(self, _: int, count: int) -> Steps:
        return self.picked(np.flatnonzero(~self.asks), count)

    def asked(self, _: int, count: int) -> Steps:
        return self.picked(np.flatnonzero(self.asks), count)

    def picked(self, rows: np.ndarray, count: int) -> Steps:
        few = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
        ahead = np.minimum(few[:, None] + np.arange(HORIZON), self.last[few][:, None])
        images = (self.images[few[first : first + 5000]] for first in range(0, len(few), 5000))
        return Steps(images, self.states[few], self.actions[few], self.actions[ahead])


class Queries:
    def __init__(self, source: Made | Real, count: int) -> None:
        steps = source.asked(1, count)
        self.images, self.states, self.chunks = np.concatenate(list(steps.images)), steps.states, steps.chunks
        self.count = len(self.images)

    def ask(self, retriever: Any, first: int, last: int) -> list[Match]:
        matches: list[Match] = retriever.query(
            self.images[first:last], self.chunks[first:last], self.states[first:last]
        )
        return matches


@contextmanager
def private() -> Iterator[dict[str, float]]:
    """The peak of the process's own memory, in MB, above what it had."""
    done, seen = threading.Event(), {"before": _anonymous(), "peak": 0.0}

    def watch() -> None:
        while not done.wait(0.01):
            seen["peak"] = max(seen["peak"], _anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        seen["peak"] = max(seen["peak"], _anonymous()) - seen["before"]
        done.set()
        thread.join()


def _anonymous() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = call()
    return time.process_time() - began, result


def same(a: list[Match], b: list[Match]) -> bool:
    return all(
        (x.candidate, x.distance, x.parts) == (y.candidate, y.distance, y.parts) for x, y in zip(a, b, strict=True)
    )


def roof(queries: np.ndarray, table: np.ndarray, at_once: int) -> float:
    """Queries per second of a float32 product of ``queries``, ``at_once`` of them, with all of ``table``."""
    groups = [queries[first : first + at_once] for first in range(0, len(queries), at_once)]

    def products() -> None:
        for group in groups:
            for first in range(0, len(table), 4096):
                group @ table[first : first + 4096].T

    products()
    return len(queries) / timed(products)[0]


def compared(
    make_new: Callable[[], Retriever], make_old: Callable[[], Any], queries: Queries, old: int
) -> dict[str, Any]:
    """Set-up, memory and rates of both ways, and whether the first ``old`` queries match alike."""
    with private() as new_memory:
        set_up, retriever = timed(make_new)
        queries.ask(retriever, 0, queries.count)  # once, so that files are in memory
        batched, matches = timed(lambda: queries.ask(retriever, 0, queries.count))
    few = min(64, queries.count)
    single, alone = timed(lambda: [queries.ask(retriever, b, b + 1)[0] for b in range(few)])
    table = np.asarray(retriever.candidates.embeddings)
    roofs = roof(queries.images[:256], table, 256), roof(queries.images[:few], table, 1)
    result = {
        "batched_per_s": round(queries.count / batched), "single_per_s": round(few / single),
        "batched_of_roof": round(queries.count / batched / roofs[0], 2),
        "single_of_roof": round(few / single / roofs[1], 2),
        "set_up_s": round(set_up, 2), "memory_mb": round(new_memory["peak"]), "same": same(matches[:few], alone),
    }  # fmt: skip
    if not old:
        return result
    with private() as old_memory:
        old_up, plain = timed(make_old)
        old_time, expected = timed(lambda: queries.ask(plain, 0, old))
    return result | {
        "same": result["same"] and same(matches[:old], expected), "old_per_s": round(old / old_time, 1),
        "batched_over_old": round(queries.count / batched * old_time / old),
        "old_set_up_s": round(old_up, 2), "old_memory_mb": round(old_memory["peak"]),
    }  # fmt: skip


def events(source: Made | Real, args: argparse.Namespace) -> dict[str, Any]:
    steps = source.known(2, args.events)
    demo, step = np.divmod(np.arange(len(steps.states)), LENGTH)
    known = Candidates(np.concatenate(list(steps.images)), steps.chunks, demo, step, steps.states)
    queries = Queries(source, args.queries)
    result = compared(lambda: Retriever(known), lambda: PlainRetriever(known), queries, args.old)
    return {"candidates": len(demo), **result}


def written(path: Path, source: Made | Real, frames: int) -> Library:
    """A library of demonstrations of 100 steps, each with its frame."""
    steps = source.known(3, frames)
    count = len(steps.states) // LENGTH * LENGTH
    demos = tuple(
        DemoHead(id=str(i), task="t", instruction="", length=LENGTH, frames=LENGTH, events=(0, 50), source={})
        for i in range(count // LENGTH)
    )
    encoder = EncoderHead(uri="none", name="none", dim=source.dim, fingerprint="none")
    content = LibraryContent(
        format=1, source_fingerprint="none", encoder=encoder, camera="wrist", fps=10.0, stride=1, pad="hold",
        action_dim=steps.actions.shape[1], state_dim=steps.states.shape[1], gripper_dim=None, eef_dims=None,
        event_config=EventConfig(), demos=demos, left_out=(),
    )  # fmt: skip
    with writing(path) as writer:
        left = count
        for block in steps.images:
            writer.append("embeddings", block[:left], "<f4")
            left -= min(left, len(block))
        for name, part in zip(("frame_demo", "frame_step"), np.divmod(np.arange(count), LENGTH), strict=True):
            writer.append(name, part, "<i8")
        writer.append("states", steps.states[:count], "<f4")
        writer.append("actions", steps.actions[:count], "<f4")
        writer.finish(content, None, "none", None)
    return Library.open(path)


def frames(source: Made | Real, args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    path, config = scratch / "library", RetrievalConfig(rule="frame")
    os.environ["BESTTAKE_CACHE"] = str(scratch / "cache")
    written(path, source, args.frames).file("embeddings.npy")
    library = Library.open(path)
    known = library.view("t").candidates(config, HORIZON)
    queries = Queries(source, args.queries)
    result = compared(
        lambda: Library.open(path).view("t").retriever(config, HORIZON), lambda: PlainRetriever(known, config),
        queries, args.old_frames,
    )  # fmt: skip
    with private() as memory:
        again, _ = timed(lambda: Library.open(path).view("t").retriever(config, HORIZON))
    size = sum(file.stat().st_size for file in (cache_dir() / FOLDER).glob("*"))  # none of small libraries
    return {"candidates": len(known.demo), **result} | {
        "set_up_again_s": round(again, 2), "memory_again_mb": round(memory["peak"]), "index_mb": round(size / 2**20),
    }  # fmt: skip


def scored(make: Maker, args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Takes of 80 frames scored by `manifold` and `coverage` against embeddings that are mapped."""
    rng, count = np.random.default_rng(4), args.scored
    table = np.lib.format.open_memmap(scratch / "scored.npy", "w+", np.float32, (count, args.dim))
    distinct = np.concatenate(list(blocks(make, rng, min(count, 50_000), args.dim)))
    for first in range(0, count, len(distinct)):
        table[first : first + len(distinct)] = distinct[: count - first]
    table.flush()
    del table, distinct
    library = np.asarray(np.load(scratch / "scored.npy", mmap_mode="r"))
    takes = [make(rng, 80, args.dim) for _ in range(8)]
    with private() as memory:
        set_up, index = timed(lambda: Index.build(library))
        demos = Demos.of(*np.divmod(np.arange(count), LENGTH))
        seconds, _ = timed(lambda: cover(index, takes, [[80, 40]] * len(takes), demos))
    return {"memory_mb": round(memory["peak"]), "set_up_s": round(set_up, 1), "s_per_take": round(seconds / 8, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = (("events", 19_000), ("frames", 100_000), ("scored", 1_000_000), ("dim", 1536), ("queries", 512))
    for name, default in (*sizes, ("old", 16), ("old-frames", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kinds", default=",".join(kinds(4)), help="which kinds of embeddings")
    parser.add_argument("--real", type=Path, nargs="+", default=(), help="files of real steps, instead of the kinds")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    wanted = [] if args.real else args.kinds.split(",")
    sources: dict[str, Callable[[], Made | Real]] = {path.stem: partial(Real, path) for path in args.real}
    sources |= {name: partial(Made, make, args.dim) for name, make in kinds(args.dim).items() if name in wanted}
    for name, make_source in sources.items():
        source = make_source()
        own = results[name] = {}
        with tempfile.TemporaryDirectory() as scratch:
            if args.events:
                own["events"] = events(source, args)
            if args.frames:
                own["frames"] = frames(source, args, Path(scratch))
            if args.scored and name == "trajectories" and isinstance(source, Made):
                own["scored"] = scored(source.make, args, Path(scratch))
        if not args.json:
            for part, values in own.items():
                print(f"{name}, {part}: {json.dumps(values)}", flush=True)
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
