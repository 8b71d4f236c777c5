from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from besttake.core import planning
from besttake.core.stats import Finding, Forecast
from besttake.errors import PlanError
from besttake.reporting import words
from besttake.reporting.terminal import layout, plans
from besttake.result import Estimate
from besttake.verbs.ingest import ingest
from besttake.verbs.plan import Plans, plan

DATA = Path(__file__).parents[1] / "recordings" / "data" / "vla_eval"


def test_from_pass_at_1_the_starts_follow_the_formula() -> None:
    (found,) = plan(pass1=0.64, worth=3)
    v = planning.v_from_pass1(0.64)
    assert found.plan.half_width_starts == planning.starts_for_half_width(planning.blind_variance(v), 0.03)


def test_a_pilot_run_gives_one_plan_per_policy(tmp_path: Path) -> None:
    pilot = ingest(sorted(DATA.glob("recording-*.sqlite")), tmp_path / "pilot", policy_name="Pusher").result
    (found,) = plans = plan(pilot=tmp_path / "pilot")
    curve = pilot.policies[0].headroom.curve  # type: ignore[union-attr]
    assert found.name == "Pusher"
    assert found.plan.v == pytest.approx(float(curve[1].value or 0) - float(curve[0].value or 0))
    assert json.loads(plans.to_json())[0]["plan"]["seeds"] == 3
    assert found.tasks == len(pilot.policies[0].tasks) > 1
    assert found.flags.startswith(f"--policy URI --env URI --starts {-(-found.plan.half_width_starts // found.tasks)} ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "either `pass1`"),
        ({"pass1": 0.5, "pilot": "x"}, "either `pass1`"),
        ({"pass1": 64.0}, "did you mean 0.64"),
        ({"pass1": 0.5, "worth": 0}, "`worth`"),
        ({"pass1": 0.5, "seeds": 1}, "`seeds`"),
        ({"pass1": 0.5, "best_of": 1}, "`best_of` 1"),
        ({"pass1": 0.5, "best_of": 4}, "`best_of` 4: there are only 3 seeds"),
    ],
)
def test_wrong_numbers_give_one_line(options: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        plan(**options)  # type: ignore[arg-type]


def test_a_pilot_asks_for_the_further_starts_of_its_own_verdict(tmp_path: Path) -> None:
    result = ingest(sorted(DATA.glob("recording-*.sqlite")), tmp_path / "pilot", policy_name="Pusher").result
    cell = result.policies[0]
    verdict = cell.verdict
    takes = verdict.takes.model_copy(update={"answer": "open", "further": Forecast(40, 210, 500)})
    gain = Finding("open", Estimate(0.05, -0.01, 0.1, 20), 0.1, 0.5, variance=0.2)
    verdict = verdict.model_copy(update={"takes": takes, "questions": {**verdict.questions, "gain": gain}})
    changed = cell.model_copy(update={"verdict": verdict})
    result.model_copy(update={"policies": [changed]}).save(tmp_path / "pilot" / "result.json")
    (found,) = plan(pilot=tmp_path / "pilot")
    assert found.further == {"takes": Forecast(40, 210, 500)}
    assert found.flags.split()[5] == str(-(-(cell.starts + 210) // found.tasks))  # as many as settle what is open
    assert found.plan.sigma2 == 0.2
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(layout(plans(Plans([found])), 200))
    assert console.export_text().count(words.further(Forecast(40, 210, 500))) == 1
    for other in ({"worth": 5.0}, {"best_of": 2}):
        assert plan(pilot=tmp_path / "pilot", **other)[0].further == {}  # type: ignore[arg-type]
