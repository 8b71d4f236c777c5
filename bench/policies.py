"""K = 3 samples at each of 8 observations, in one call against one row at a time, per family.

    python bench/policies.py [--families pi0 pi05 smolvla diffusion] [--rounds 5]

Needs LeRobot for the families above, and OpenVLA's versions for ``--families openvla``: two environments, so two runs.
Random weights, the real classes at the size of the integration tests, where overhead rules; --wide makes SmolVLA's
towers wider, so that the shared prefix shows. The loop calls ``sample`` with one row and ``width=1``, which is what one
gets from a policy that is asked row by row. "x" is the loop's time over the one call's (above 1: the call is faster),
the median over rounds in which both run in turn, of wall and of processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LEROBOT = ("pi0", "pi05", "smolvla", "diffusion")
OBSERVATIONS, SAMPLES = 8, 3


def rows() -> tuple[list[Any], list[Any]]:
    from besttake.takes.draws import Draw
    from besttake.types import Observation

    rng = np.random.default_rng(0)
    seen = [
        Observation(
            {camera: rng.integers(0, 256, (64, 64, 3), np.uint8) for camera in ("agentview", "wrist")},
            rng.normal(0, 0.3, 8).astype(np.float32),
            "pick up the cube",
        )
        for _ in range(OBSERVATIONS)
    ]
    repeated = [one for one in seen for _ in range(SAMPLES)]
    return repeated, [Draw(0, "bench", row // SAMPLES, row % SAMPLES) for row in range(len(repeated))]


@contextlib.contextmanager
def checkpoints(families: list[str], wide: bool) -> Iterator[dict[str, tuple[str, str]]]:
    """Of each family, the URI to be asked for all rows at once and the URI to be asked for one."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=str(Path(directory) / "hf"))
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # on a busy machine the threads of tiny models wait in vain
        kind = "openvla" if families == ["openvla"] else "lerobot"
        sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests" / "integration" / kind)]
        import tiny

        made = {}
        if kind == "openvla":
            stack.enter_context(tiny.small_vision())
        with contextlib.redirect_stdout(sys.stderr):
            for family in families:
                where = Path(directory) / family
                where.mkdir()
                if kind == "openvla":
                    tiny.make(where, {"bridge": tiny.STATS})
                    made[family] = (f"openvla:{where}?trust_remote_code=true",) * 2
                else:
                    tiny.MAKERS[family](where, **({"wide": True} if wide and family == "smolvla" else {}))
                    made[family] = (f"lerobot:{where}?width={OBSERVATIONS}", f"lerobot:{where}?width=1")
        yield made


def measure(uris: tuple[str, str], rounds: int) -> dict[str, Any]:
    from bench.timing import in_turn, times_faster
    from besttake import registry

    together, alone = (registry.policy(uri) for uri in uris)
    seen, draws = rows()

    def call() -> np.ndarray:
        return together.sample(seen, draws)

    def loop() -> np.ndarray:
        return np.concatenate([alone.sample([o], [d]) for o, d in zip(seen, draws, strict=True)])

    far = float(np.abs(call() - loop()).max())
    times = in_turn({"call": call, "loop": loop}, rounds)
    rates = {name: round(own.rate(len(draws)), 1) for name, own in times.items()}
    return {"samples_per_second": rates, "x": times_faster(times["loop"], times["call"]), "difference": far}


def main() -> None:
    parser = argparse.ArgumentParser()
    default = list(LEROBOT) if find_spec("lerobot") else ["openvla"]
    parser.add_argument("--families", nargs="*", default=default, choices=(*LEROBOT, "openvla"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with checkpoints(args.families, args.wide) as made:
        from bench.timing import machine

        before = machine()
        result = {family: measure(uris, args.rounds) for family, uris in made.items()}
    if args.json:
        told = {"bench": "policies", "machine": before, "rows": [OBSERVATIONS, SAMPLES], "rounds": args.rounds}
        print(json.dumps({**told, **result}))
        return
    print(f"{before}; {OBSERVATIONS} observations x {SAMPLES} samples, {args.rounds} rounds")
    for family, row in result.items():
        rates, (wall, cpu) = row["samples_per_second"], row["x"]
        print(
            f"{family:10s} {rates['call']:8.1f} samples/s, the loop {rates['loop']:.1f}"
            f"   x {wall:.2f} wall, x {cpu:.2f} cpu   (difference {row['difference']:.0e})"
        )


if __name__ == "__main__":
    main()
