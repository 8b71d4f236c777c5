"""The studies of docs/verifiers.md: every scorer and every control on the same takes.

    python -m bench.verifiers runs/verifiers                       # five shipped policies, about 3 minutes on two cores
    python -m bench.verifiers runs/verifiers-zoo --zoo zoo         # the zoo's twenty, see docs/zoo.md
    python -m bench.verifiers runs/verifiers --study RUN --tuning RUN
    python -m bench.verifiers runs/libero --study RUN              # another run, such as that of docs/libero-object.md

Writes verifiers.html, .md, .csv, .tex and .json to the directory, and prints the Markdown with a table of gains by
policy. The run that is judged is copied first, so that it stays as it is. What learns (`classifier`, `self`,
`last:RUN`) learns from tuning starts, which come from another range (besttake.testbed.seeds).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import besttake
from bench.zoo.roll import deficits, train, uri_of
from besttake.demos.view import View
from besttake.scorers.base import Footage, Score, ScorerSpec
from besttake.verbs.verifiers import VerifierResult

POLICIES = ("testbed:half", "testbed:few", "testbed:alt", "testbed:mid", "testbed:strong")
EVALUATION, TUNING = "100:160", "tuning:20"
"""The starts of recipes/testbed.yaml, and those that scorers learn from."""
ZOO_EVALUATION, ZOO_TUNING = "300:315", "tuning:6"
"""No other study and no choice uses these evaluation starts: the zoo's own runs are on 200 to 274."""
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


def takes(out: Path, policies: Sequence[str], starts: str) -> Path:
    """Base takes of ``policies`` on ``starts``; a run that is there is not made again."""
    plan = besttake.Plan(
        policy=tuple(policies), env="testbed", starts=starts, seeds=3, arms=("base",), demos="testbed", stride=5,
        probe_states=0, check_states=0,
    )  # fmt: skip
    besttake.diagnose(plan, out, progress=True)
    return out


def zoo(directory: Path, only: Sequence[str]) -> list[str]:
    """The policies of the zoo; those that ``directory`` does not have are trained into it, which needs torch."""
    names = [name for name in deficits() if name in only or not only]
    train(directory, names)
    return [uri_of(directory.resolve(), name) for name in names]


def judged(out: Path, study: Path, tuning: Path | None) -> VerifierResult:
    """All scorers on the takes of ``study``; what learns learns from ``tuning``. Pages and tables go to ``out``."""
    scorers = list(UNTRAINED)
    if tuning is not None:
        trained = besttake.train_scorer(tuning, out / "classifier.scorer", progress=True)
        scorers += [trained.uri, f"self:{tuning}", f"last:{tuning}"]
    done = besttake.score(study, scorers, progress=True)
    for name, reason in done.lost.items():
        print(f"lost: {name}: {reason}")
    result = besttake.verifiers(study)
    for ending in ("html", "md", "csv", "tex", "json"):
        result.save(out / f"verifiers.{ending}")
    return result


def by_policy(result: VerifierResult) -> str:
    """The gain of every scorer for every policy, in points: the mean over its cells."""
    names = dict.fromkeys(cell.policy for cell in result.cells)
    lines = [("policy", "headroom", *result.scorers), ("---",) * (2 + len(result.scorers))]
    for policy in names:
        cells = [cell for cell in result.cells if cell.policy == policy]
        columns = [[cell.headroom.value for cell in cells]]
        columns += [[v.gain.value for cell in cells if (v := cell.of(scorer))] for scorer in result.scorers]
        means = [f"{100 * np.mean([value for value in own if value is not None]):.1f}" for own in columns]
        lines.append((Path(policy).stem.removeprefix("testbed:"), *means))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--study", type=Path, help="run to judge scorers on (default: made here)")
    options.add_argument(
        "--tuning", type=Path, help="run on tuning starts (default: made here, unless --study is given)"
    )
    options.add_argument("--zoo", type=Path, help="judge the twenty policies of `python -m bench.zoo --dir ZOO`")
    options.add_argument("--only", nargs="+", default=[], choices=deficits(), help="of the zoo, only these policies")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    policies = list(POLICIES) if given.zoo is None else zoo(given.zoo, given.only)
    evaluation, learnt = (EVALUATION, TUNING) if given.zoo is None else (ZOO_EVALUATION, ZOO_TUNING)
    study = given.out / "study"
    if given.study is None:
        takes(study, policies, evaluation)
    elif not study.exists():
        shutil.copytree(given.study, study)
    tuning = given.tuning or (takes(given.out / "tuning", policies, learnt) if given.study is None else None)
    result = judged(given.out, study, tuning)
    print((given.out / "verifiers.md").read_text())
    print(by_policy(result))


if __name__ == "__main__":
    main()
