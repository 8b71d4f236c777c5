"""The paper's protocols: complete, its numbers as printed, and a run of one beside it."""

from __future__ import annotations

import json

import numpy as np
import paper_tables as paper
import pytest
import writers
from typer.testing import CliRunner

from besttake import registry
from besttake.cli.main import app
from besttake.config import Plan, Retrieval
from besttake.core import select
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options, build
from besttake.encoders.hog import Hog
from besttake.errors import PlanError
from besttake.result import Result
from besttake.takes.scores import ScoreName, Scores
from besttake.verbs import reproduce

TABLES = [f"table{number}" for number in range(1, 8)]


def test_every_table_of_the_paper_is_there_and_every_protocol_is_a_plan():
    assert set(reproduce.protocols()) == {*TABLES, "relation", "fit"}
    for name in reproduce.protocols():
        table = reproduce.protocol(name)
        policies = dict.fromkeys(table.policies, "testbed:half")
        plan, left = reproduce.plan_for(table, policies, {}, {})
        assert left == list(table.notes)
        assert plan.arms == (("base", "rerank") if name == "table6" else ("base", "retrieve"))
        assert (plan.check_states, plan.event_turns) == (0, "every")
        assert plan.seeds == (2 if name == "table7" else paper.SETTINGS["n"])
        assert table.chunk == (None if name == "table6" else paper.SETTINGS["chunk"])
        frames = {"table5": paper.LIBRARY_FRAMES["bridge"], "table6": paper.LIBRARY_FRAMES["coke-can"]}
        assert table.frames == frames.get(name)
        assert table.plan["demos_per_task"] == (None if table.frames else paper.SETTINGS["demos"])
        assert all("horizon=400" in uri for uri in table.envs.values()) == (name != "table6")
        assert plan.encoder == "dinov2+siglip"
        assert plan.scorer == ("manifold",)
        assert (plan.retrieval.prior, plan.retrieval.noise) == (paper.SETTINGS["alpha"], 1 - paper.SETTINGS["alpha"])
        assert (plan.probe_samples, plan.probe_states) == (paper.SETTINGS["k"], paper.SETTINGS["probe_states"])
        for row, numbers in table.paper.items():
            policy, _, env = row.partition("/")
            assert row == "all" or policy in table.policies
            assert not env or env in table.envs
            assert len(numbers) == len(table.columns)


def test_retrieval_is_frozen_every_setting_is_named_so_that_no_tuned_library_changes_one():
    named = reproduce.protocol("table1").plan["retrieval"]
    assert RetrievalConfig.from_dict(named) == RetrievalConfig(rule="next", noise=0.7, prior=0.3)
    assert {*named} == {*Retrieval.model_fields}


def rows(name):
    return {row: tuple(numbers) for row, numbers in reproduce.protocol(name).paper.items()}


def test_the_numbers_are_the_papers():
    main = {k: (v["pass1"], *v["retrieval"], *v["selector"]) for k, v in paper.MAIN.items()}
    assert rows("table1") == main
    assert rows("table2") == {f"{b}/{s}": pair for b, suites in paper.RETRIEVAL.items() for s, pair in suites.items()}
    ceilings = {"10": (paper.LIBERO_10_PASS3["base"], paper.LIBERO_10_PASS3["retrieval"])}
    both = {
        f"pi0/{s}": (a, *b, *c, d[0], e, *ceilings.get(s, (None, None))) for s, (a, b, c, d, e) in paper.COMPOSE.items()
    }
    a, b, c, d, e = paper.COMPOSE_MEAN
    assert rows("table3") == {**both, "pi0": (a, *b, *c, d[0], e, None, None)}
    assert rows("table4") == {k: tuple(v.values()) for k, v in paper.ABLATION.items()}
    bridge = {f"pi0-bridge/{t}": (a, *b, *c, d) for t, (a, b, c, d) in paper.BRIDGE.items()}
    a, b, c, d = paper.BRIDGE_OVERALL
    assert rows("table5") == {**bridge, "pi0-bridge": (a, *b, *c, d)}
    vla = {name: 100 * share for name, share in paper.OPENVLA.items()}
    assert rows("table6")["greedy"][0] == vla["greedy"]
    assert rows("table6")["openvla"] == (vla["sample1"], vla["rerank"], vla["selector"], vla["pass3"])
    cells = {f"{b}/{s}": numbers for b, suites in paper.OCCLUSION.items() for s, numbers in suites.items()}
    assert rows("table7") == {**cells, **paper.OCCLUSION_MEAN}
    assert rows("fit") == {b: (paper.DFE[b], paper.FIRST_ACTION_R[b], None) for b in paper.DFE}
    assert rows("relation")["all"] == (
        [paper.HEADROOM_R["r"], *paper.HEADROOM_R["ci"]], paper.HEADROOM_R["spearman"], paper.DISJOINT_R["mean"],
        paper.DISJOINT_R["sd"], *paper.WITHIN_R, *paper.LEAVE_ONE_OUT_R, paper.RETRIEVAL_R, paper.POOLED_AUC["auc"],
        paper.POOLED_AUC["valid"], paper.POOLED_AUC["all"], paper.CAPTURE["mean"], paper.CAPTURE["sd"],
        *paper.CAPTURE["range"],
    )  # fmt: skip


POLICIES = """
from besttake import FunctionPolicy

def long(replan=64):
    return FunctionPolicy(lambda observation: None, horizon=64, action_dim=4, replan=int(replan))

def fixed():
    return FunctionPolicy(lambda observation: None, horizon=64, action_dim=4, replan=8)
"""


def test_chunks_are_executed_as_the_paper_does_and_what_cannot_is_said(module):
    module("chunky", POLICIES)
    table = reproduce.protocol("table1")
    plan = Plan(policy="testbed:half", env="testbed")
    given = {"pi0": "python:chunky:long", "smolvla": "python:chunky:fixed", "pi05": "testbed:half"}
    assert reproduce.with_whole_chunks(table, given, plan) == (
        {"pi0": "python:chunky:long?replan=50", "smolvla": "python:chunky:fixed", "pi05": "testbed:half?replan=10"},
        [
            "smolvla executes 8 of the 64 actions of a chunk, the paper's policies 50",
            "pi05 executes 10 of the 10 actions of a chunk, the paper's policies 50",
        ],
    )
    typed = {"pi0": "python:chunky:long?replan=32", "smolvla": "testbed:half?perception_mm=6"}
    changed, left = reproduce.with_whole_chunks(table, typed, plan)
    assert changed == {"pi0": typed["pi0"], "smolvla": "testbed:half?perception_mm=6&replan=10"}
    assert left[0].startswith("pi0 executes 32 of the 64")
    assert reproduce.with_whole_chunks(reproduce.protocol("table6"), given, plan) == (given, [])


def test_names_that_the_paper_does_not_have_are_refused():
    table = reproduce.protocol("table5")
    with pytest.raises(PlanError, match="table5 has no policy 'pi0'; it has pi0-bridge"):
        reproduce.plan_for(table, {"pi0": "testbed:half"}, {}, {})
    with pytest.raises(PlanError, match="table5 has no env 'spatial'; it has carrot, spoon, stack"):
        reproduce.plan_for(table, {"pi0-bridge": "testbed:half"}, {"spatial": "testbed"}, {})
    with pytest.raises(PlanError, match="no table 'table8'; there are fit"):
        reproduce.protocol("table8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Table 3 on the testbed, from the command line; its directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BESTTAKE_CACHE", str(tmp_path_factory.mktemp("cache")))
        out = tmp_path_factory.mktemp("reproduce") / "run"
        yield out, lambda table, *more: CliRunner().invoke(
            app,
            [
                "reproduce", table, "--policy", "pi0=testbed:half", "--env", "spatial=testbed:pick", "--env",
                "object=testbed:drawer", "--starts", "6", "--encoder", "pixels", "--stride", "10",
                "--demos", "testbed?demos_per_task=6", "--probe-states", "40", "-o", str(out),
                "-q", *more,
            ],
        )  # fmt: skip


def outcomes(out, arm, env):
    """Success (start, seed) of an arm and its manifold scores on the episode window, read off the run itself."""
    from besttake.takes.store import Store

    with Store.open(out) as store:
        found = {(row.key.start, row.key.seed): row for row in store.rows()
                 if row.key.arm == arm and row.key.env == env}  # fmt: skip
    scores = Scores.open(out)
    y = np.array([[found[s, k].success for k in range(3)] for s in range(6)], float)
    z = np.array(
        [[scores.get(found[s, k].key).scores[ScoreName("manifold", "episode")] for k in range(3)] for s in range(6)]
    )
    return y, z


def test_a_protocol_runs_and_its_numbers_are_those_of_the_takes(run):
    out, invoke = run
    done = invoke("table3", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    here = {(one["row"], one["column"]): one["here"]["value"] for one in told["numbers"]}
    assert {row for row, _ in here} == set(reproduce.protocol("table3").paper)
    base, scores = outcomes(out, "base", "testbed:pick")
    warm, warm_scores = outcomes(out, "retrieve", "testbed:pick")
    alone = np.mean(select.start_selected(base, scores))
    both = np.mean(select.start_selected(warm, warm_scores))
    assert here["pi0/spatial", "pass@1"] == pytest.approx(100 * base.mean())
    assert here["pi0/spatial", "retrieve gain"] == pytest.approx(100 * (warm.mean() - base.mean()))
    assert here["pi0/spatial", "select"] == pytest.approx(100 * alone)
    assert here["pi0/spatial", "retrieve + select"] == pytest.approx(100 * both)
    assert here["pi0/spatial", "combine"] == pytest.approx(100 * (both - alone))
    assert here["pi0/goal", "pass@1"] is None
    assert "goal is not run" in told["left_protocol"]


def test_other_tables_read_the_same_run(run):
    out, invoke = run
    assert invoke("table3").exit_code == 0
    before = Result.load(out / "result.json").digest
    done = invoke("table4", "--json")
    here = {one["column"]: one["here"]["value"] for one in json.loads(done.stdout)["numbers"]}
    assert here["random"] == pytest.approx(here["pass@1"])
    halves = [outcomes(out, "base", env) for env in ("testbed:pick", "testbed:drawer")]
    of_two = np.mean([select.start_selected(y, z, 2) for y, z in halves])
    assert here["select of 2"] == pytest.approx(100 * of_two)
    assert here["pass@N"] >= here["select"]
    assert Result.load(out / "result.json").digest == before
    spread = {(one["row"], one["column"]): one["here"]["value"] for one in
              json.loads(invoke("table2", "--json").stdout)["numbers"]}  # fmt: skip
    base, _ = outcomes(out, "base", "testbed:pick")
    warm, _ = outcomes(out, "retrieve", "testbed:pick")
    expected = 100 * np.std((warm - base).mean(axis=0), ddof=1)
    assert spread["pi0/spatial", "sd over seeds"] == pytest.approx(expected)


def test_the_relation_is_that_of_the_papers_window(run):
    """Every number of the row is what `compare` gives on the window `episode`; the disjoint halves are no exception."""
    from besttake.verbs.compare import compare

    out, invoke = run
    done = invoke("relation", "--json")
    assert done.exit_code == 0, done.output
    here = {one["column"]: one["here"]["value"] for one in json.loads(done.stdout)["numbers"]}
    assert list(here) == list(reproduce.protocol("relation").columns)
    (r,) = (one for one in json.loads(done.stdout)["numbers"] if one["column"] == "r")
    assert (r["paper"], r["paper_interval"], r["here"]["low"]) == (0.954, [0.89, 0.99], None)
    assert here["takes with a valid score"] == here["takes"] == 36
    theirs = compare(out, window="episode")
    assert here["r on disjoint halves"] == theirs.result.relation.disjoint.mean
    assert here["pooled AUC"] == pytest.approx(theirs.across.auc.value)
    cells = Result.load(out / "result.json").cells
    captures = [cell.selectors.scored["manifold"]["episode"].capture.value for cell in cells]
    assert here["capture"] == pytest.approx(np.mean(captures))
    assert (here["lowest capture"], here["highest capture"]) == pytest.approx((min(captures), max(captures)))
    shown = invoke("relation").stdout
    assert "0.954 [0.890, 0.990]" in shown
    assert "17964" in shown


def test_the_demonstration_fit_is_in_the_units_of_the_papers_figures(run):
    out, invoke = run
    here = {one["column"]: one["here"]["value"] for one in json.loads(invoke("fit", "--json").stdout)["numbers"]}
    (cell,) = Result.load(out / "result.json").policies
    assert here["DFE"] == cell.dfe.mean_square.value
    assert here["DFE as a norm"] == cell.dfe.dfe.value
    # A chunk of the testbed has 10 actions of 4 numbers; a mean of squares is at least the square of the mean.
    assert here["DFE"] >= here["DFE as a norm"] ** 2 / 40 > 0.1 * here["DFE"]


def test_libraries_of_tables_5_and_6_have_about_as_many_frames_as_the_papers(tmp_path):
    """Demonstrations of 23 frames: 510 in all are 170 of each of three tasks, 7 demonstrations."""
    data = str(writers.libero_hdf5(tmp_path / "data", [writers.episode(i, side=16) for i in range(3)]))
    table, policies = reproduce.protocol("table5"), {"pi0-bridge": "testbed:half"}
    plan, left = reproduce.plan_for(table, policies, {}, {"demos": data})
    assert plan.demos_per_task == round(510 / 3 / 23) == 7
    assert left == list(table.notes)
    coke = reproduce.plan_for(reproduce.protocol("table6"), {"openvla": "testbed:half"}, {}, {"demos": data})[0]
    assert coke.demos_per_task == round(1360 / 23) == 59
    assert reproduce.demos_for(data, 1) == 1
    assert reproduce.demos_for("testbed:pick", 510) is None, "it does not say how long its demonstrations are"
    library = build(registry.demos("testbed:pick"), Hog(), tmp_path / "library", Options(max_demos=2)).path
    assert reproduce.demos_for(str(library), 510) is None, "a library is as it was built"
