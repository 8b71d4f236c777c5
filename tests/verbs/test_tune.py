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
from besttake.verbs.diagnose import diagnose
from besttake.verbs.tune import ALPHAS, RULES, held_out, offline_error, tune


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    out = tmp_path_factory.mktemp("tuning") / "library"
    return build(registry.demos("testbed:drawer"), registry.encoder("pixels"), out, Options(max_demos=6))


def test_the_offline_error_is_what_a_plain_loop_gives(library: Library) -> None:
    config = RetrievalConfig(rule="current", weights=(0.0, 0.0, 1.0))
    view = library.view("drawer")
    states = {(d, int(s)): library.state(d, int(s)) for d in range(6) for s in library.demos[d].events}
    every = np.stack(list(states.values())).astype(np.float64)
    keep = every.std(axis=0) > 1e-6 * np.abs(every).max()
    errors = []
    for (demo, step), state in states.items():
        if demo not in held_out(library):
            continue
        others = [k for k in states if k[0] != demo]
        gaps = [np.mean(((states[k] - state)[keep] / every.std(axis=0)[keep]) ** 2) for k in others]
        found = others[int(np.argmin(gaps))]
        gap = (library.chunk(*found, 10) - library.chunk(demo, step, 10)) / view.action_spread
        errors.append(np.linalg.norm(gap))
    assert offline_error(library, config, 10) == pytest.approx(np.mean(errors), rel=1e-5)


def test_tuning_freezes_one_configuration_into_the_library(library: Library) -> None:
    found = tune(library, ["testbed:half"], "testbed:drawer", starts=2)
    again = Library.open(library.path)
    assert again.retrieval == found.config
    assert again.fingerprint == library.fingerprint
    assert again.tuned_on is not None
    assert set(again.tuned_on["starts"]) <= set(seeds.TUNING)
    assert not set(again.tuned_on["starts"]) & set(seeds.EVALUATION)
    assert {t.config.rule for t in found.trials} == set(RULES)
    assert {t.config.alpha for t in found.trials} == set(ALPHAS)
    assert found.trials[0].success == max(t.success for t in found.trials)


def test_a_diagnosis_uses_what_was_frozen(library: Library, tmp_path: Path, cache: Path) -> None:
    Library.open(library.path).with_retrieval(
        RetrievalConfig(rule="current", alpha=0.15), {"env": "testbed:drawer", "starts": [10000]}
    )
    flags = {"policy": ["testbed:half"], "env": ["testbed:drawer"], "starts": "1", "seeds": 2, "arms": "base,retrieve"}
    diagnose(load_plan(None, {**flags, "demos": str(library.path), "probe_states": 0}), tmp_path / "run")
    told = (tmp_path / "run" / "run.json").read_text()
    assert '"rule": "current"' in told
    assert '"alpha": 0.15' in told


def test_starts_that_are_evaluated_on_are_refused(library: Library, tmp_path: Path, cache: Path) -> None:
    with pytest.raises(PlanError, match="never uses starts that are evaluated on"):
        tune(library, ["testbed:half"], "testbed:drawer", starts=len(seeds.TUNING) + 1)
    Library.open(library.path).with_retrieval(RetrievalConfig(), {"env": "testbed:drawer", "starts": [0]})
    flags = {"policy": ["testbed:half"], "env": ["testbed:drawer"], "starts": "1", "arms": "base,retrieve"}
    with pytest.raises(PlanError, match="was tuned on start 0"):
        diagnose(load_plan(None, {**flags, "demos": str(library.path)}), tmp_path / "run")
