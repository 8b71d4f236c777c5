"""Scorers as a family: ours keep the contract, and a third party's works beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calm_scorer import Calm

from besttake import registry
from besttake.config import Plan
from besttake.demos.library import Library, View
from besttake.errors import ComponentError, ContractError
from besttake.scorers import score_run
from besttake.scorers.base import Footage, Score, Scorer, ScorerSpec
from besttake.takes.scores import ScoreName, Scores
from besttake.takes.store import Store
from besttake.testing import check_scorer
from besttake.verbs.diagnose.diagnosis import diagnose


class Consensus:
    """Prefers the take most like the others of its start: its score depends on them."""

    spec = ScorerSpec("consensus", reads=("embeddings",), fingerprint="consensus 1", compares=True)

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        scores = []
        for take in takes:
            values = []
            for w in range(len(take.windows)):
                means = [self._mean(other, w) for other in takes]
                values.append(float(np.mean([self._mean(take, w) @ mean for mean in means])))
            scores.append(Score(values))
        return scores

    def _mean(self, take: Footage, w: int) -> np.ndarray:
        assert take.embeddings is not None
        seen = take.embeddings[take.windows[w]].astype(np.float64)
        return seen.mean(axis=0) if len(seen) else np.full(take.embeddings.shape[1], np.nan)


@pytest.mark.parametrize("uri", ["manifold", "coverage"])
def test_our_scorers_keep_the_contract(uri: str) -> None:
    held = check_scorer(registry.scorer(uri))
    assert held == ("spec", "scores", "repeat", "order", "twin", "batch", "length", "files")


class Length(Calm):
    """Reads how long a take is, and does not say so."""

    spec = ScorerSpec("length", reads=("actions",), fingerprint="length 1")

    def _value(self, take: Footage, end: int) -> float:
        assert take.actions is not None
        return -float(len(take.actions))


class Restless(Calm):
    """Gives another number each time."""

    count = 0

    def _value(self, take: Footage, end: int) -> float:
        self.count += 1
        return float(self.count)


class Endless(Calm):
    """Infinite where it has nothing to say."""

    def _value(self, take: Footage, end: int) -> float:
        return super()._value(take, end) if end else float("-inf")


class First(Calm):
    """Likes the take that comes first."""

    def score(self, takes: Sequence[Footage], demos: View | None) -> list[Score]:
        return [Score([float(-i)] * len(take.windows)) for i, take in enumerate(takes)]


class Secretive(Calm):
    """Compares takes, and does not say so."""

    spec = ScorerSpec("secretive", reads=("embeddings",), fingerprint="1")
    score = Consensus.score
    _mean = Consensus._mean


class Boastful(Calm):
    """Calls its numbers probabilities."""

    spec = ScorerSpec("boastful", reads=("actions",), fingerprint="1", probability=True)


class Impostor(Calm):
    """Calls itself by the name of ours."""

    spec = ScorerSpec("manifold", reads=("actions",), fingerprint="calm 1")


@pytest.mark.parametrize(
    ("scorer", "says"),
    [
        (Length(), "length=True"),
        (Restless(), "the same takes, other scores"),
        (Endless(), "infinite"),
        (First(), "order of the takes"),
        (Secretive(), "compares=True"),
        (Boastful(), "boastful: a score is no probability"),
        (Impostor(), "manifold: this is the name of a scorer of BestTake"),
    ],
)
def test_a_scorer_that_breaks_a_promise_is_told_which(scorer: Scorer, says: str) -> None:
    with pytest.raises(ContractError, match=says):
        check_scorer(scorer, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "reads", "says"),
    [
        ("calm", ("pictures",), "scorer calm: reads 'pictures', which is none of frames, embeddings"),
        ("calm", "actions", r'scorer calm: reads is a tuple, as in reads=\("actions",\)'),
        ("a/b", ("actions",), "scorer 'a/b': a name has 1 to 200 printable characters, none of them a slash"),
        ("\x1b[31m", ("actions",), "a name has 1 to 200 printable"),
        ("a" * 201, ("actions",), "a name has 1 to 200 printable"),
        ("random", ("actions",), "scorer random: this is the name of a control; give it another"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_where_it_is_made(name: Any, reads: Any, says: str) -> None:
    with pytest.raises(ComponentError, match=says):
        ScorerSpec(name, reads, "1")


def test_kept_scores_that_a_report_shows_are_not_replaced_by_a_namesakes(run: Path, library: Library, module) -> None:
    source = (Path(__file__).parent / "calm_scorer.py").read_text()
    module("one", source)
    module("two", source.replace("calm 1", "another calm"))
    one, two = registry.scorer("python:one:make"), registry.scorer("python:two:make")
    with Store.open(run) as store:
        first = score_run.score_takes(store, library, library.encoder(), [one])
        score_run.score_takes(store, library, library.encoder(), [one], reported=["calm"])
        with pytest.raises(ComponentError, match="was diagnosed with another scorer named 'calm'"):
            score_run.score_takes(store, library, library.encoder(), [two], reported=["calm"])
    kept = Scores.open(run)
    assert kept is not None
    assert kept.scorers["calm"] == first.scorers["calm"] == "calm 1"


def test_a_scorer_sees_only_what_its_spec_reads() -> None:
    shown: list[Footage] = []

    class Curious(Calm):
        def score(self, takes: Sequence[Footage], demos: View | None) -> Sequence[Score]:
            shown.extend(takes)
            return super().score(takes, demos)

    check_scorer(Curious())
    for name in ("frames", "embeddings", "nearest", "visited", "states", "instruction"):
        assert {getattr(take, name) is None for take in shown} == {True}


@pytest.mark.slow
def test_a_third_partys_scorer_is_measured_beside_ours_in_a_diagnosis(cache: Path, tmp_path: Path) -> None:
    uri = "python:calm_scorer:make"
    plan = Plan(
        policy=("testbed:half",), env=("testbed",), task=("pick",), starts="4", seeds=3, arms=("base",), probe_states=0,
        workers=1, scorer=uri,
    )  # fmt: skip
    (cell,) = diagnose(plan, tmp_path / "run").cells
    assert cell.scorer == "calm"
    assert cell.selectors is not None
    assert set(cell.selectors.scored) == {"manifold", "coverage", "calm"}
    scores = Scores.open(tmp_path / "run")
    assert scores is not None
    with Store.open(tmp_path / "run") as store:
        takes = [take for _, take in store.takes()]
    picked = []
    for start in sorted({take.key.start for take in takes}):
        rivals = [take for take in takes if take.key.start == start]
        for take in rivals:
            expected = -np.square(np.diff(take.actions, axis=0)).mean()
            values = scores[take.key].scores
            assert values[ScoreName("calm", "full")] == pytest.approx(expected, abs=1e-6)
            assert len(values) == 9
        picked.append(max(rivals, key=lambda take: scores[take.key].scores[ScoreName("calm", "full")]).success)
    assert cell.selectors.scored["calm"]["full"].success.value == pytest.approx(np.mean(picked))
