"""Scoring a finished run (`besttake score`) against the scoring inside a diagnosis, side by side on the same takes.

python -m bench.rescore RUN [--scorer coverage] [--rounds 3] [--json]

RUN is a finished run with demonstrations. Each round scores a copy of it twice, in turn: as a diagnosis does, with the
two workers that made the takes still running; and as `besttake score` does, which has to start its workers first. The
ratio is the time of the former over that of the latter (1: as fast), the median over rounds; above 0.9 is the aim. It
is printed for seconds on the clock and for seconds of CPU, which a busy machine changes less (Linux only).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from besttake.demos.library import Library
from besttake.scorers.scoring import score_run
from besttake.takes.pool import Workers
from besttake.takes.store import Store
from besttake.threads import one_thread


def cpu(workers: Workers) -> float:
    """Seconds of CPU that this process and the workers have used."""
    ticks = 0
    for pid in workers.running.pids if workers.running is not None else ():
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def scored(run: Path, scorer: str, workers: Workers) -> tuple[float, float]:
    """Seconds to score all takes of a run, and those of CPU."""
    (run / "scores.safetensors").unlink(missing_ok=True)
    began, used = time.perf_counter(), cpu(workers)
    with one_thread(), Store.open(run) as store:
        assert store.manifest.library is not None
        library = Library.open(store.manifest.library)
        score_run(store, library, library.encoder(), [scorer], pool=workers.pool)
    return time.perf_counter() - began, cpu(workers) - used


def main() -> None:
    """Print the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--scorer", default="coverage")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    inside, after = [], []
    with tempfile.TemporaryDirectory() as scratch, Workers(2) as running:
        copy = Path(scratch) / "run"
        shutil.copytree(args.run, copy)
        scored(copy, args.scorer, running)  # the workers have started, and the files are in memory
        for _ in range(args.rounds):
            inside.append(scored(copy, args.scorer, running))
            with Workers(2) as own:
                after.append(scored(copy, args.scorer, own))
    result: dict[str, object] = {}
    for place, name in enumerate(("clock", "cpu")):
        pairs = [(one[place], two[place]) for one, two in zip(inside, after, strict=True)]
        result[name] = {
            "ratio": round(statistics.median(one / two for one, two in pairs), 3),
            "inside_s": [round(one, 2) for one, _ in pairs],
            "score_s": [round(two, 2) for _, two in pairs],
        }
    print(json.dumps(result, indent=None if args.json else 2))


if __name__ == "__main__":
    main()
