"""The study of docs/verifiers.md: every scorer and every control on the testbed study's takes.

    python -m bench.verifiers runs/verifiers                       # makes its takes, about 3 minutes on two cores
    python -m bench.verifiers runs/verifiers --study RUN --tuning RUN
    python -m bench.verifiers runs/libero --study RUN              # another run, such as that of docs/libero-object.md

Writes verifiers.html, .md, .csv, .tex and .json to the directory, and prints the Markdown. The run that is judged is
copied first, so that it stays as it is. Evaluation starts are 100-159 of each task (recipes/testbed.yaml); what learns
(`classifier`, `self`, `last:RUN`) learns from tuning starts, which come from another range (besttake.testbed.seeds).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import besttake
from besttake.demos.view import View
from besttake.scorers.base import Footage, Score, ScorerSpec

POLICIES = ("testbed:half", "testbed:few", "testbed:alt", "testbed:mid", "testbed:strong")
EVALUATION, TUNING = "100:160", "tuning:20"
UNTRAINED = (
    "manifold", "coverage", "consensus", "last", "progress", "dtw", "actions", "smoothness", "state",
    "python:bench.verifiers:make_length",
)  # fmt: skip


class Length:
    """The leak: a take that was soon over is good. It reads what follows its window, and must be unmasked."""

    spec = ScorerSpec("length only", reads=("actions",), fingerprint="length only 1", length=True)

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        """Fewer steps in the window are better."""
        return [Score([-float(end) for end in take.ends]) for take in takes]


def make_length() -> Length:
    """The scorer ``length only``."""
    return Length()


def takes(out: Path, starts: str) -> Path:
    """Base takes of the five policies on ``starts``."""
    plan = besttake.Plan(
        policy=POLICIES, env="testbed", starts=starts, seeds=3, arms=("base",), demos="testbed", stride=5,
        probe_states=0, check_states=0,
    )  # fmt: skip
    besttake.diagnose(plan, out, progress=True)
    return out


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--study", type=Path, help="run to judge scorers on (default: made here)")
    options.add_argument(
        "--tuning", type=Path, help="run on tuning starts (default: made here, unless --study is given)"
    )
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    study = given.out / "study"
    if given.study is None:
        takes(study, EVALUATION)
    elif not study.exists():
        shutil.copytree(given.study, study)
    tuning = given.tuning or (takes(given.out / "tuning", TUNING) if given.study is None else None)
    scorers = list(UNTRAINED)
    if tuning is not None:
        trained = besttake.train_scorer(tuning, given.out / "classifier.scorer", progress=True)
        scorers += [trained.uri, f"self:{tuning}", f"last:{tuning}"]
    done = besttake.score(study, scorers, progress=True)
    result = besttake.verifiers(study)
    for ending in ("html", "csv", "tex", "json"):
        result.save(given.out / f"verifiers.{ending}")
    print(result.save(given.out / "verifiers.md").read_text())
    for name, reason in done.lost.items():
        print(f"lost: {name}: {reason}")


if __name__ == "__main__":
    main()
