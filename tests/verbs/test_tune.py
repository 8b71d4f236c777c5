from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from besttake import registry
from besttake.config import load_plan
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options, build
from besttake.demos.library import Library
from besttake.errors import PlanError
from besttake.testbed import seeds
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.tune import arm_of, judged, tune


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    out = tmp_path_factory.mktemp("tuning") / "library"
    return build(registry.demos("testbed:drawer"), registry.encoder("pixels"), out, Options(max_demos=6))


@pytest.mark.slow
def test_tuning_rolls_out_base_and_cooled_beside_and_freezes_one_configuration(library: Library) -> None:
    tuned = tune(library, ["testbed:half"], "testbed:drawer", starts=2)
    again = Library.open(library.path)
    assert again.retrieval == tuned.config
    assert again.fingerprint == library.fingerprint
    assert again.tuned_on is not None
    assert set(again.tuned_on["starts"]) <= set(seeds.TUNING)
    assert not set(again.tuned_on["starts"]) & set(seeds.EVALUATION)
    names = [trial.name for trial in tuned.trials]
    assert len([name for name in names if name.startswith(("base", "cooled, noise"))]) == 2
    for trial in tuned.trials:
        assert trial.success.value is not None
        assert (trial.success.low or 0) <= trial.success.value <= (trial.success.high or 0)
        assert (trial.content.value is not None) == (trial.config is not None)
    assert tuned.winner.tied


A, B, C = (RetrievalConfig(rule="frame", prior=prior) for prior in (0.1, 0.3, 0.5))
RNG = np.random.default_rng(0)


def outcomes(**rates: float) -> dict[str, np.ndarray]:
    """Outcomes at 200 starts that share their difficulty, by arm."""
    hard = RNG.random(200)
    cooled = {"cooled?noise=0.1": (hard < 0.5).astype(float)}
    arms = {arm_of(config): (hard < rates[name]).astype(float) for name, config in (("a", A), ("b", B), ("c", C))}
    return {"base": (hard < 0.4).astype(float), **cooled, **arms}


def test_the_highest_success_wins_and_of_equals_the_weakest() -> None:
    tied = judged(outcomes(a=0.61, b=0.62, c=0.2), [A, B, C], seeds=1)
    assert tied.config == B
    assert [trial.config for trial in tied.trials if trial.tied] == [B, A]
    assert judged(outcomes(a=0.62, b=0.62, c=0.62), [C, B, A], seeds=1).config == A
    clear = judged(outcomes(a=0.45, b=0.62, c=0.2), [A, B, C], seeds=1)
    assert clear.config == B
    assert clear.winner.content.value == pytest.approx(0.12, abs=0.07)
    assert clear.winner.gain.low is not None
    assert clear.winner.gain.low > 0.1


def test_a_diagnosis_uses_what_was_frozen(library: Library, tmp_path: Path, cache: Path) -> None:
    Library.open(library.path).with_retrieval(
        RetrievalConfig(rule="current", prior=0.15), {"env": "testbed:drawer", "starts": [10000]}
    )
    flags = {"policy": ["testbed:half"], "env": ["testbed:drawer"], "starts": "1", "seeds": 2, "arms": "base,retrieve"}
    diagnose(load_plan(None, {**flags, "demos": str(library.path), "probe_states": 0}), tmp_path / "run")
    told = (tmp_path / "run" / "run.json").read_text()
    assert '"rule": "current"' in told
    assert '"prior": 0.15' in told


def test_starts_that_are_evaluated_on_are_refused(library: Library, tmp_path: Path, cache: Path) -> None:
    with pytest.raises(PlanError, match="never uses starts that are evaluated on"):
        tune(library, ["testbed:half"], "testbed:drawer", starts=len(seeds.TUNING) + 1)
    Library.open(library.path).with_retrieval(RetrievalConfig(), {"env": "testbed:drawer", "starts": [0]})
    flags = {"policy": ["testbed:half"], "env": ["testbed:drawer"], "starts": "1", "arms": "base,retrieve"}
    with pytest.raises(PlanError, match="was tuned on start 0"):
        diagnose(load_plan(None, {**flags, "demos": str(library.path)}), tmp_path / "run")
