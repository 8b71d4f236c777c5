"""The whole diagnosis on the testbed, small; its numbers against ones worked out here by plain loops."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from besttake.config import load_plan
from besttake.encoders.base import Encoder
from besttake.errors import BestTakeError, PlanError
from besttake.reporting.html import make_html
from besttake.reporting.markdown import make_markdown
from besttake.result import SCHEMA, Result
from besttake.takes.key import Row, TakeKey
from besttake.takes.scores import ScoreName, Scores
from besttake.takes.store import Store
from besttake.types import F32, U8
from besttake.verbs.act import act
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.diagnose.setup import WITHOUT_DEMOS, with_defaults
from besttake.verbs.probe import probe

FLAGS = {
    "policy": ["testbed:half", "testbed:mid"],
    "env": ["testbed"],
    "task": ["pick", "drawer"],
    "starts": "3",
    "seeds": 2,
    "arms": "base,cooled,shuffled,retrieve,rerank",
    "demos_per_task": 6,
    "probe_states": 20,
    "check_states": 16,
}
SMALL = {**FLAGS, "policy": ["testbed:half"], "task": ["drawer"], "workers": 1}


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("diagnosis") / "run"
    diagnose(load_plan(None, FLAGS), out)
    return out


@pytest.fixture(scope="module")
def result(run: Path) -> Result:
    return Result.load(run / "result.json")


@pytest.fixture(scope="module")
def rows(run: Path) -> dict[TakeKey, Row]:
    with Store.open(run) as store:
        return {row.key: row for row in store.rows()}


def success(rows: dict[TakeKey, Row], policy: str, task: str, arm: str) -> np.ndarray:
    return np.array(
        [[bool(rows[TakeKey(policy, "testbed", task, s, arm, k)].success) for k in range(2)] for s in range(3)], float
    )


def test_every_take_that_was_planned_was_made(result: Result, rows: dict[TakeKey, Row]) -> None:
    assert len(rows) == 2 * 2 * 3 * 2 * 5
    assert result.cost.takes == len(rows)
    assert result.cost.errors == 0
    assert result.schema_version == SCHEMA


def test_rates_and_gains_are_what_plain_loops_give(result: Result, rows: dict[TakeKey, Row]) -> None:
    for cell in result.cells:
        base = success(rows, cell.policy, cell.group, "base")
        assert cell.headroom is not None
        assert cell.arms is not None
        assert cell.headroom.pass_1.value == pytest.approx(base.mean())
        assert cell.headroom.pass_n.value == pytest.approx(base.max(axis=1).mean())
        assert cell.headroom.headroom.value == pytest.approx((base.max(axis=1) - base.mean(axis=1)).mean())
        for arm in ("cooled", "shuffled", "retrieve", "rerank"):
            other = success(rows, cell.policy, cell.group, arm)
            assert cell.arms.arms[arm].gain.value == pytest.approx(other.mean() - base.mean())
        cooled, retrieve = (success(rows, cell.policy, cell.group, a) for a in ("cooled", "retrieve"))
        assert cell.arms.content.value == pytest.approx(retrieve.mean() - cooled.mean())


def test_the_selector_keeps_the_take_with_the_highest_score(
    result: Result, rows: dict[TakeKey, Row], run: Path
) -> None:
    scores = Scores.open(run)
    assert scores is not None
    for cell in result.cells:
        kept = []
        for start in range(3):
            keys = [TakeKey(cell.policy, "testbed", cell.group, start, "base", seed) for seed in range(2)]
            best = max(keys, key=lambda key: (scores.get(key).scores[ScoreName("manifold", "full")], -key.seed))  # type: ignore[union-attr]
            kept.append(bool(rows[best].success))
        assert cell.selectors is not None
        assert cell.selectors.scored["manifold"]["full"].success.value == pytest.approx(np.mean(kept))


def test_controls_are_exact(result: Result) -> None:
    for cell in (*result.cells, *result.policies):
        assert cell.headroom is not None
        assert cell.selectors is not None
        assert cell.selectors.random.success.value == cell.headroom.pass_1.value
        assert cell.selectors.oracle.success.value == pytest.approx(cell.headroom.pass_n.value)
        for windows in cell.selectors.scored.values():
            for selector in windows.values():
                assert selector.gain.value <= cell.headroom.headroom.value + 1e-12
        if not cell.headroom.headroom.value:
            assert cell.selectors.oracle.capture.value is None


def test_the_score_of_a_take_is_the_mean_of_its_trace(run: Path) -> None:
    scores = Scores.open(run)
    assert scores is not None
    with Store.open(run) as store:
        for row, take in store.takes():
            scored = scores.get(row.key)
            assert scored is not None
            assert scored.steps.tolist() == take.frame_steps.tolist()
            assert scored.scores[ScoreName("manifold", "full")] == pytest.approx(scored.best.mean(), abs=1e-6)
            end = take.success_step or take.steps
            assert scored.scores[ScoreName("manifold", "episode")] == pytest.approx(
                scored.best[scored.steps <= end].mean(), abs=1e-6
            )


@pytest.mark.slow
def test_arms_share_their_eps_so_without_a_prior_they_are_cooled_and_with_all_the_noise_base(
    cache: Path, tmp_path: Path
) -> None:
    flags = {**FLAGS, "policy": ["testbed:half"], "task": ["pick"], "starts": "2"}
    flags["retrieval"] = {"prior": 0.0, "noise": 0.1}
    flags["arms"] = "base,cooled,shuffled,retrieve,cooled?noise=1,retrieve?noise=1"
    diagnose(load_plan(None, flags), tmp_path / "run")
    with Store.open(tmp_path / "run") as store:
        takes = {row.key: take for row, take in store.takes()}
    for key, take in takes.items():
        same = "base" if key.arm == "base" or key.arm.endswith("noise=1") else "cooled"
        other = takes[TakeKey(key.policy, key.env, key.task, key.start, same, key.seed)]
        assert np.array_equal(take.actions, other.actions)
        assert np.array_equal(take.states, other.states)
    base, cooled = (take for key, take in takes.items() if key.arm in ("base", "cooled") and key.start == key.seed == 0)
    assert not np.array_equal(base.actions, cooled.actions)


def test_a_run_without_demonstrations_knows_headroom_and_says_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("besttake.verbs.diagnose.setup.library_for", lambda *_: None)
    flags = {**SMALL, "arms": "base,cooled"}
    found = diagnose(load_plan(None, flags), tmp_path / "run")
    cell = found.cells[0]
    assert cell.headroom is not None
    assert cell.ranking is None
    assert cell.verdict is not None
    assert cell.verdict.both.answer == "not measured"
    assert any("coverage: it needs demonstrations" in note for note in found.notes)
    assert with_defaults(load_plan(None, {"policy": "p", "env": "gym:Reach-v0"})).scorer == WITHOUT_DEMOS
    assert with_defaults(load_plan(None, {"policy": "p", "env": "gym:Reach-v0", "scorer": "mine"})).scorer == ("mine",)
    with pytest.raises(PlanError, match="need demonstrations"):
        diagnose(load_plan(None, {**flags, "arms": "base,retrieve"}), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_probe_alone_gives_the_same_error_as_the_diagnosis(cache: Path, result: Result) -> None:
    probed = {(c.policy, c.group): c.dfe for c in probe(load_plan(None, {**FLAGS, "arms": "base"}))}
    for cell in result.cells:
        assert cell.dfe is not None
        assert probed[cell.policy, cell.group].dfe == cell.dfe.dfe  # type: ignore[union-attr]
        assert cell.dfe.states == 10
        assert cell.dfe.ratio.value == pytest.approx(cell.dfe.dfe.value / cell.dfe.floor.value)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"env": ["testbed:fly"]}, "no such task"),
        ({"task": ["fly"]}, "no task 'fly'"),
        ({"starts": "5000"}, "1000 starts per task"),
        ({"demos": "nowhere"}, "neither a library directory, nor data on this machine"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(
    cache: Path, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    with pytest.raises(BestTakeError) as caught:
        diagnose(load_plan(None, {**FLAGS, **change}), tmp_path / "run")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


class Blind:
    """An encoder whose embeddings are no numbers."""

    def __init__(self, encoder: Encoder, patience: float | None) -> None:
        self.encoder, self.spec = encoder, replace(encoder.spec, name="blind", cheap=False)

    def encode(self, images: U8) -> F32:
        return np.full_like(self.encoder.encode(images), np.nan)


def test_an_encoder_that_sees_nothing_leaves_selection_unjudged_in_one_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("besttake.verbs.diagnose.setup.cached", Blind)
    flags = {**SMALL, "arms": "base,cooled"}
    found = diagnose(load_plan(None, flags), tmp_path / "run")
    line = "no take has a score: headroom is known, selection is not"
    for cell in (*found.cells, *found.policies):
        assert (cell.takes, cell.notes) == (12, [line])
        assert cell.headroom is not None
        assert cell.headroom.pass_n.value is not None
        assert cell.ranking is None
        assert cell.selectors is not None
        for windows in cell.selectors.scored.values():
            assert {selector.gain.value for selector in windows.values()} == {None}
        assert cell.verdict is not None
        assert (cell.verdict.takes.answer, cell.verdict.takes.reason) == ("open", "no-score")
        assert cell.verdict.both.answer == "not measured"
        assert [option.name for option in cell.verdict.options] == ["base", "cooled"]
    assert Scores.open(tmp_path / "run") is None, "a scorer without one number is lost, and asked again next time"
    assert "scorer coverage: it gave none of 12 takes a number" in found.notes
    for made in (make_markdown(tmp_path / "run"), make_html(tmp_path / "run")):
        text = made.read_text().lower()
        assert line in text
        assert ">nan<" not in text


def test_a_run_in_which_every_take_failed_says_so_and_goes_on_when_called_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    half: Any = importlib.import_module("large_half")
    flags = {**SMALL, "policy": ["python:large_half:make"], "arms": "base", "probe_states": 0}

    def unplugged(*_: object) -> NoReturn:
        raise RuntimeError("the machine was unplugged")

    with monkeypatch.context() as patch:
        patch.setattr("besttake.verbs.diagnose.policies.needs_rehearsal", lambda *_: False)  # it would succeed
        patch.setattr(half.Large, "sample", unplugged)
        (cell,) = diagnose(load_plan(None, flags), tmp_path / "run").cells
        assert (cell.takes, cell.errors) == (0, 6)
        for made in (make_markdown(tmp_path / "run"), make_html(tmp_path / "run")):
            assert "No take was finished" in made.read_text()
    (cell,) = diagnose(load_plan(None, flags), tmp_path / "run").cells
    assert (cell.takes, cell.errors) == (6, 0)


def test_a_policy_has_one_name_everywhere(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the table of takes, the result, the check and the notes; only the plan has its URI, which `act` finds."""
    result = diagnose(
        load_plan(None, {**SMALL, "name": "mine", "arms": "base,cooled"}), tmp_path / "run", progress=True
    )
    with Store.open(tmp_path / "run") as store:
        assert {row.key.policy for row in store.rows()} == set(store.manifest.extent.policies) == {"mine"}
    assert [cell.policy for cell in (*result.policies, *result.cells)] == ["mine", "mine"]
    assert {*result.checks} == {"mine"}
    assert "testbed:half" not in capsys.readouterr().err + " ".join(result.notes)
    assert act(tmp_path / "run", option="cooled", starts="3:4").promise.policy == "mine"
    with pytest.raises(PlanError, match="name each of the 1 policies once"):
        load_plan(None, {**SMALL, "name": ["one", "two"]})
