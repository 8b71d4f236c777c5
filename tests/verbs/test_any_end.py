"""Whatever a component raises, and however long it sleeps, a diagnosis ends: in one line, or with failed takes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import odd_parts
import pytest

from besttake.config import Plan
from besttake.demos.build import Options
from besttake.demos.resolve import build_at
from besttake.errors import BestTakeError
from besttake.result import Result
from besttake.verbs.diagnose.diagnosis import diagnose
from besttake.verbs.runs import summarise

LARGE = "python:odd_parts:policy?small=false"
PLAN: dict[str, Any] = {
    "policy": "testbed:half", "env": "testbed:pick", "starts": 2, "seeds": 2, "arms": ("base",), "probe_states": 0,
    "check_states": 0, "workers": 1,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "env": {"env": "python:odd_parts:env"},
    "factory": {"env": "python:odd_parts:env"},
    "close": {"env": "python:odd_parts:env"},
    "small": {"policy": "python:odd_parts:policy"},
    "large": {"policy": LARGE},
    "encoder": {"encoder": "python:odd_parts:encoder"},
    "scorer": {"scorer": ("coverage", "python:odd_parts:scorer")},
    "arm": {"arms": ("base", "python:odd_parts:arm")},
}


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two minutes for each, on a busy machine."""

    def over(*_: object) -> NoReturn:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> str:
    place = tmp_path_factory.mktemp("odd") / "library"
    return str(build_at(place, "testbed:pick", "python:odd_parts:encoder", Options(max_demos=2)).path)


def run(kind: str, end: str, library: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setenv("ODD", f"{kind} {end}")
    monkeypatch.setattr("besttake.verbs.diagnose.policies.needs_rehearsal", lambda *_: False)
    if kind == "encoder":
        monkeypatch.setenv("BESTTAKE_CACHE", str(out.parent))  # where nothing is embedded yet
    demos = {"demos": library, "starts": 4} if kind == "encoder" else {"demos_per_task": 2}
    patience = 1.0 if end == "sleep" else 60.0  # on a busy machine a simulator may take its time
    return diagnose(Plan(**{**PLAN, **demos, **KINDS[kind], "patience": patience}), out)


# In the main thread, where factories and scorers are called, KeyboardInterrupt is Ctrl-C; there is no limit for them.
MAIN = {(kind, end) for kind in ("factory", "close", "scorer") for end in ("sleep", "KeyboardInterrupt")}
WAYS = [
    pytest.param(kind, end, marks=() if end == "SystemExit" or kind == "large" else pytest.mark.slow)
    for kind in KINDS for end in (*odd_parts.ENDS, "sleep") if (kind, end) not in MAIN
]  # fmt: skip


@pytest.mark.parametrize(("kind", "end"), WAYS)
def test_a_component_may_end_as_it_likes(
    kind: str, end: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        result = run(kind, end, library, tmp_path / "run", monkeypatch)
    except BestTakeError as error:
        assert kind in ("factory", "close", "encoder") or (kind, end) == ("large", "sleep")
        assert ("gave no answer for 1 s" if end == "sleep" else end) in str(error)
        assert "\n" not in str(error)
        return
    if kind == "scorer":
        assert any(end in note for note in result.notes)
        return
    (cell,) = result.cells
    assert cell.errors > 0
    reasons = " ".join(reason for reason, _ in summarise(tmp_path / "run").failures)
    assert ("died or hung" if end == "sleep" else end) in reasons


def test_a_module_that_exits_when_it_is_imported_is_one_line(tmp_path: Path, module) -> None:
    module("leaves", "raise SystemExit(3)")
    with pytest.raises(BestTakeError, match=r"cannot import make from leaves \(SystemExit: 3\)"):
        diagnose(Plan(**{**PLAN, "env": "python:leaves:make"}), tmp_path / "run")


def test_takes_that_get_no_score_are_counted_and_embedded_again(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BESTTAKE_CACHE", str(tmp_path / "cache"))
    plan = Plan(**{**PLAN, "demos": library, "encoder": "python:odd_parts:encoder"})
    whole = odd_parts.OddEncoder.encode

    def broken(self: Any, images: Any) -> Any:
        given = whole(self, images).copy()
        given[0] = float("nan")
        return given

    with monkeypatch.context() as patch:
        patch.setattr(odd_parts.OddEncoder, "encode", broken)
        notes = diagnose(plan, tmp_path / "broken").notes
    assert any(re.search("scorer coverage: . of 4 takes have no score", note) for note in notes)
    assert not any("no score" in note for note in diagnose(plan, tmp_path / "whole").notes)
