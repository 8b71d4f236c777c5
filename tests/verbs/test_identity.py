"""A run is bound to the code of an env of one's own, as it is to that of a policy."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest

from besttake import registry
from besttake.config import Plan
from besttake.errors import RunError
from besttake.verbs.compare import changes_between
from besttake.verbs.diagnose.diagnosis import diagnose

EXAMPLE = Path(__file__).parents[2] / "examples" / "reach"
ENV = "gym:own_reach:Reach-v0"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """The file of an env that no installed package has; beside it stands a policy."""
    shutil.copy(EXAMPLE / "policy.py", tmp_path / "own_clumsy.py")
    monkeypatch.syspath_prepend(tmp_path)
    return Path(shutil.copy(EXAMPLE / "reach.py", tmp_path / "own_reach.py"))


def run(out: Path, starts: int) -> None:
    plan = Plan(
        policy="python:own_clumsy:make", env=ENV, starts=starts, seeds=1, arms=("base",), check_states=0,
        probe_states=0, workers=1,
    )  # fmt: skip
    diagnose(plan, out)


def test_an_edited_env_does_not_go_on_with_the_takes_of_the_one_before(own: Path, tmp_path: Path) -> None:
    run(tmp_path / "before", starts=1)
    run(tmp_path / "before", starts=2)
    own.write_text(own.read_text().replace("< 0.06", "< 0.6"))
    with pytest.raises(RunError, match=f"before holds another plan: its env {ENV} has changed since"):
        run(tmp_path / "before", starts=2)
    run(tmp_path / "after", starts=2)
    notes: list[str] = []
    assert changes_between([tmp_path / "before", tmp_path / "after"], notes) == ()
    assert any("share no start" in note for note in notes)


def test_an_edit_anywhere_in_a_package_is_noticed_whatever_its_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    part = tmp_path / "own_package" / "robot.py"
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_package")
    prints = set()
    for text in (b"x = 1", b"# -*- coding: latin-1 -*-\nx = '\xe9'"):
        part.write_bytes(text)
        prints.add(registry.hash_of_code("own_package"))
    assert len(prints - {""}) == 2
