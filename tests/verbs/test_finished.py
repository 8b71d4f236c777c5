"""The same plan on a finished run is answered at once; whatever changed is noticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from besttake.config import Plan
from besttake.result import Result
from besttake.verbs.diagnose import diagnosis
from besttake.verbs.diagnose.diagnosis import diagnose, finished_result
from besttake.verbs.diagnose.setup import with_defaults
from besttake.verbs.plan import plan

PLAN = {
    "policy": "testbed:half", "env": "testbed:drawer", "starts": 2, "seeds": 2, "arms": ("base",), "demos_per_task": 4,
    "probe_states": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    diagnose(Plan(**PLAN), run)
    return run


@pytest.fixture
def run(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / "run"))


def known(run: Path, **changes: object) -> Result | None:
    return finished_result(with_defaults(Plan(**{**PLAN, **changes})), run)


def test_the_same_plan_is_answered_without_making_anything(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("something was computed")

    for name in ("open_envs", "load_policy", "set_up", "measure"):
        monkeypatch.setattr(f"besttake.verbs.diagnose.diagnosis.{name}", fail)
    before = (run / "result.json").read_bytes()
    result = diagnose(Plan(**PLAN, workers=1), run)  # how many workers there are changes no number
    assert result == Result.load(run / "result.json")
    assert (run / "result.json").read_bytes() == before


@pytest.mark.parametrize(
    "changes", [{"worth": 5}, {"starts": 3}, {"seed": 1}, {"policy": "testbed:alt"}, {"stride": 4}]
)
def test_another_plan_is_not(run: Path, changes: dict[str, object]) -> None:
    assert known(run) is not None
    assert known(run, **changes) is None


@pytest.mark.slow
def test_damage_is_noticed_and_mended(run: Path) -> None:
    result = known(run)
    assert result is not None
    take = next((run / "takes").rglob("*.take"))
    whole = take.read_bytes()
    take.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert known(run) is None
    mended = diagnose(Plan(**PLAN), run)
    assert mended.digest == result.digest  # the take is made again
    assert (result.cost.takes, result.cost.made) == (4, 4)
    assert (mended.cost.takes, mended.cost.made) == (4, 1), "seconds are of the last invocation, which made one"
    assert take.read_bytes() == whole
    text = (run / "result.json").read_bytes()
    (run / "result.json").write_bytes(text.replace(b"0.", b"1.", 1))
    assert known(run) is None
    assert diagnose(Plan(**PLAN), run).cells == result.cells


def test_another_version_is_noticed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "versions", lambda: {"numpy": "0"})
    assert known(run) is None


def test_what_a_pilot_asks_for_goes_on_in_its_directory(run: Path) -> None:
    assert plan(pilot=run)[0].flags.endswith(f"--seeds 2 --best-of 2 -o {run}")
    assert " -o " not in plan(pilot=run, worth=90)[0].flags  # fewer starts than it has
    result = Result.load(run / "result.json")
    result.model_copy(update={"plan": {**result.plan, "until": "decided"}}).save(run / "result.json")
    assert " -o " not in plan(pilot=run)[0].flags
