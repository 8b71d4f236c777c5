"""Do the numbers of a verdict hold? Measured on policies that had no part in its design (``recipes/fresh``).

    python -m bench.fresh train play study --dir fresh      # train needs torch; every stage skips what exists

`play` diagnoses each policy from 240 starts with 3 seeds: base, cooled, and retrieve as the check chooses. `study` then
takes these starts for a whole population, so that the truth is known exactly: it draws runs of 20 and of 80 starts from
it, judges each by the code that a diagnosis uses, and compares what is printed with the truth. docs/verdict.md has the
tables.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import besttake
from besttake.core.select import select
from besttake.core.stats import difference_scale, mean_interval
from besttake.measure.arrays import ArmTakes, CellData, Settings, arm_takes
from besttake.measure.looks import CellHistory, looks_at
from besttake.measure.verdict import answer, judge, questions_of
from besttake.result import Verdict
from besttake.takes.scores import ScoreName

RECIPES = Path(__file__).parent.parent / "recipes" / "fresh"
ARMS = ("base", "cooled", "retrieve")
SEEDS, WORTH = 3, 0.03
# Starts per task of the evaluation range that no other study uses.
STARTS = "300:360"
DRAWN = {20: 40, 80: 40}
"""Runs that are drawn of each policy, by their number of starts."""


def train(directory: Path) -> None:
    """The weights of every recipe."""
    for recipe in sorted(RECIPES.glob("*.yaml")):
        out = directory / "policies" / f"{recipe.stem}.safetensors"
        if not out.is_file():
            command = ["-m", "bench.zoo.recipes", str(recipe), "-o", str(out)]
            subprocess.run([sys.executable, *command], check=True)


def play(directory: Path) -> None:
    """One run per policy; one that was interrupted goes on."""
    for recipe in sorted(RECIPES.glob("*.yaml")):
        policy = f"flow:{directory / 'policies' / recipe.stem}.safetensors"
        plan = besttake.Plan(policy=policy, env="testbed", starts=STARTS, seeds=SEEDS, arms=list(ARMS))
        besttake.diagnose(plan, out=directory / "runs" / recipe.stem, progress=True)


@dataclass(frozen=True)
class Population:
    """The takes of a policy as a cell, and what the check said of it."""

    name: str
    cell: CellData
    sentence: str
    helps: bool

    def drawn(self, rows: np.ndarray) -> CellData:
        """A run of the starts ``rows``, any of which may occur more than once."""
        units = tuple(("testbed", "any", i) for i in range(len(rows)))
        arms = {
            name: ArmTakes(arm.outcomes[rows], arm.lengths[rows], {key: own[rows] for key, own in arm.scores.items()})
            for name, arm in self.cell.arms.items()
        }
        return replace(self.cell, units=units, arms=arms)

    def truth(self) -> dict[str, float]:
        """The success of every option over the whole population."""
        means = {}
        for name, arm in self.cell.arms.items():
            scores = arm.scores[self.cell.score_name]
            means[name] = float(arm.outcomes.mean())
            means[f"{name}, best of {SEEDS}"] = float(select(arm.outcomes, scores, SEEDS).successes.mean())
        return means


def load(directory: Path) -> list[Population]:
    """Every policy whose run is finished."""
    from besttake.reporting import words

    found = []
    for path in sorted(path.parent for path in (directory / "runs").glob("*/result.json")):
        with besttake.Run.open(path) as run:
            (whole,), rows = run.result.policies, {row.key: row for row in run.takes.rows}
            units = sorted({(key.env, key.task, key.start) for key in rows})
            name = ScoreName(whole.scorer, whole.window)
            arms = {arm: arm_takes(whole.policy, units, arm, SEEDS, [name], rows, run.scores) for arm in ARMS}
            (check,) = run.result.checks.values()
        cell = CellData(path.name, "testbed", "*", tuple(units), arms, (whole.window,), whole.scorer, 0, 0)
        found.append(Population(path.name, cell, words.check_sentence(check), check.helps))
    return found


def null(population: Population, rng: np.random.Generator, starts: int) -> CellData:
    """A run in which every option is as good as one take of base: the same chances in all arms, and a blind score."""
    rows = rng.integers(len(population.cell.units), size=starts)
    chance = population.cell.arms["base"].outcomes.mean(axis=1)[rows][:, None]
    arms = {}
    for name in ARMS:
        y = (rng.random((starts, SEEDS)) < chance).astype(float)
        arms[name] = ArmTakes(y, np.full(y.shape, 60.0), {population.cell.score_name: rng.normal(size=y.shape)})
    return replace(population.drawn(rows), arms=arms)


def judged(cell: CellData, past: CellHistory | None = None) -> Verdict:
    """The verdict that a diagnosis of these takes prints, without a forecast."""
    settings = Settings(SEEDS, SEEDS, WORTH, cell.scorer, ARMS, controls={"retrieve": "cooled"})
    past = past or CellHistory()
    looks = looks_at(cell.units, (len(cell.units), SEEDS), past)
    asked = questions_of({name: arm.scored_by(cell.score_name) for name, arm in cell.arms.items()}, SEEDS)
    return judge(replace(cell, spare=0), settings, asked, answer(asked, WORTH, looks, draws=2000), looks, past)


def checked(zoo: list[Population]) -> str:
    """What the check says of each policy, and the content that following it has."""
    lines, gained = [], []
    for one in zoo:
        y = {name: arm.outcomes.mean(axis=1) for name, arm in one.cell.arms.items()}
        content = mean_interval(y["retrieve"] - y["cooled"], difference_scale(SEEDS))
        gained.append((one.helps, content.value if one.helps else 0.0))
        value, low, high = (100 * (end or 0.0) for end in (content.value, content.low, content.high))
        means = " | ".join(f"{100 * y[name].mean():.1f}" for name in ARMS)
        says = "yes" if one.helps else "no"
        lines.append(f"| `{one.name}` | {means} | {value:+.1f} [{low:.1f}, {high:.1f}] | {says} |")
    yes = [value for helps, value in gained if helps]
    right = sum(value > 0 for value in yes)
    return "\n".join(
        [
            "| policy | base | cooled | retrieve | content | the check |",
            "| --- | --- | --- | --- | --- | --- |",
            *lines,
            "",
            f"The check says yes to {len(yes)} of {len(zoo)}, with the right sign of content for {right};"
            f" following it gains {100 * np.mean([value for _, value in gained]):+.1f} points over cooling on average.",
        ]
    )


def studied(zoo: list[Population], starts: int, runs: int) -> str:
    """How runs of ``starts`` starts compare with the truth: one line of the table."""
    rng = np.random.default_rng(starts)
    raw, bias, held, near, claims, false, claimed = [], [], [], [], [], [], []
    for one in zoo:
        truth = one.truth()
        for _ in range(runs):
            verdict = judged(one.drawn(rng.integers(len(one.cell.units), size=starts)))
            gain = truth[verdict.option] - truth["base"]
            behind = max(truth.values()) - truth[verdict.option]
            raw.append((verdict.recommended.gain.value or 0.0) - gain)
            bias.append((verdict.gain.value or 0.0) - gain)
            held.append((verdict.gain.low or 0.0) <= gain + 1e-9 <= (verdict.gain.high or 0.0) + 2e-9)
            near.append(behind <= 0.02)
            claims.append(verdict.within)
            false.append(verdict.within and behind >= WORTH)
            claimed.append(judged(null(one, rng, starts)).gain.value or 0.0)
    wrong = f"{sum(false)} of {sum(claims)}"
    error = 196 * np.std(bias) / np.sqrt(len(bias))
    return (
        f"| {starts} | {100 * np.mean(raw):+.1f} | {100 * np.mean(bias):+.1f} ± {error:.1f}"
        f" | {100 * np.mean(held):.1f} % | {100 * np.mean(near):.0f} % | {wrong} | {100 * np.mean(claimed):+.1f} |"
    )


def extended(zoo: list[Population], runs: int = 20) -> str:
    """How often a run without any effect that is extended again and again ever shows one."""
    rng, wrong, total = np.random.default_rng(7), 0, 0
    for one in zoo:
        for _ in range(runs):
            whole, past = null(one, rng, 120), CellHistory()
            shown = False
            for count in range(20, 121, 20):
                arms: Mapping[str, ArmTakes] = {
                    name: ArmTakes(
                        arm.outcomes[:count], arm.lengths[:count], {k: s[:count] for k, s in arm.scores.items()}
                    )
                    for name, arm in whole.arms.items()
                }
                verdict = judged(replace(whole, units=whole.units[:count], arms=arms), past)
                shown = shown or "yes" in {answer.answer for answer in verdict.answers.values()}
                answered = {name: finding for name, finding in verdict.questions.items() if finding.answer != "open"}
                past = CellHistory((*past.looks, (count, SEEDS)), answered)
            wrong, total = wrong + shown, total + 1
    return f"A run without any effect, extended from 20 to 120 starts in steps of 20, ever answers yes to one of the\
 paper's three questions in {wrong} of {total} ({100 * wrong / total:.1f} %)."


def study(directory: Path) -> None:
    """Every table of docs/verdict.md, to the terminal."""
    zoo = load(directory)
    print(checked(zoo))
    print("\n| starts | raw maximum | printed gain | interval holds | within 2 points | wrong of `within` | null |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for starts, runs in DRAWN.items():
        print(studied(zoo, starts, runs), flush=True)
    print(f"\n{extended(zoo)}")


STAGES = {"train": train, "play": play, "study": study}


def main() -> None:
    """Run the stages that are named, in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=STAGES)
    parser.add_argument("--dir", type=Path, default=Path("fresh"))
    given = parser.parse_args()
    for stage in given.stages:
        STAGES[stage](given.dir.resolve())


if __name__ == "__main__":
    main()
