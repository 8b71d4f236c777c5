"""The study of verifiers: its table by policy, and which policies of the zoo it plays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from bench.verifiers import Length, by_policy, zoo
from bench.zoo.roll import deficits, uri_of

from besttake.measure.cells import ArmTakes, CellData
from besttake.measure.scores import ScoreName
from besttake.measure.verifiers import Verified, verified
from besttake.testing import check_scorer
from besttake.verbs.verifiers import VerifierResult


def cell(policy: str, task: str, seed: int) -> Verified:
    rng = np.random.default_rng(seed)
    outcomes = (rng.random((20, 3)) < 0.5).astype(float)
    scores = {ScoreName(name, "full"): outcomes * k + rng.normal(size=outcomes.shape) for k, name in enumerate("ab")}
    takes = ArmTakes(outcomes, np.full(outcomes.shape, 9.0), scores)
    units = tuple(("testbed", task, i) for i in range(20))
    return verified(CellData(policy, "testbed", task, units, {"base": takes}, ("full",), "a", 60, 0), 3)


def test_a_policys_gain_is_the_mean_over_its_cells() -> None:
    cells = tuple(cell(p, t, i) for i, (p, t) in enumerate([("testbed:half", "pick"), ("testbed:half", "push")]))
    other = cell("flow:/x/no-goal.safetensors", "pick", 9)
    table = by_policy(VerifierResult(("run",), ("a", "b"), cells[0], (*cells, other)))
    head, _, first, second = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert head == ["policy", "headroom", "a", "b"]
    assert (first[0], second[0]) == ("half", "no-goal")
    for place, scorer in ((2, "a"), (3, "b")):
        gains = [own.of(scorer).gain.value for own in cells]  # type: ignore[union-attr]
        assert float(first[place]) == pytest.approx(100 * np.mean(gains), abs=0.051)  # type: ignore[arg-type]
    assert float(second[1]) == pytest.approx(100 * (other.headroom.value or 0.0), abs=0.051)


def test_policies_that_are_there_are_not_trained_and_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: trained.append(Path(command[-1]).stem))
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "blur.safetensors").touch()
    assert zoo(tmp_path, ["left", "blur", "alt"]) == [uri_of(tmp_path, name) for name in ("alt", "blur", "left")]
    assert trained == ["left"]
    assert len(zoo(tmp_path, [])) == len(deficits()) == 20


def test_the_scorer_of_length_says_that_it_reads_it() -> None:
    assert "length" not in check_scorer(Length())
