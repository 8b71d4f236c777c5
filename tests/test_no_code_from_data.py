"""Data never names code: whatever a file says, nothing runs that the user did not name.

Each test plants ``python:planted:make`` (a module that is there and leaves a mark) or another name of code in one of
the files that BestTake opens, and then uses that file in every way there is.
"""

from __future__ import annotations

import ast
import json
import shutil
import sqlite3
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from besttake import registry
from besttake.config import load_plan
from besttake.demos.resolve import open_or_build
from besttake.demos.storage import LibraryHead
from besttake.envs import vla_eval
from besttake.errors import ComponentError, PlanError
from besttake.policies.lerobot_checkpoint import _family, check_family, check_processors
from besttake.result import Result
from besttake.verbs.act import act

PLANTED = "python:planted:make"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that would be found, and the file that it makes when it is imported or called."""
    mark, place = tmp_path / "it-ran", tmp_path / "cwd"
    place.mkdir()
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
    (place / "planted.py").write_text(code + "def make(*a, **k):\n    raise SystemExit(7)\nclass Env: make = make\n")
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [*sys.path, str(place)])
    monkeypatch.setattr(registry, "_TRUSTED", set())
    yield mark
    sys.modules.pop("planted", None)


@pytest.fixture(scope="module")
def run(diagnosed) -> Path:
    """A small finished run on the testbed."""
    return diagnosed(starts=2, seeds=2, arms="base,retrieve", check_states=8)


@pytest.fixture
def library(run: Path, tmp_path: Path) -> Path:
    """A copy of that run's library."""
    kept = json.loads((run / "run.json").read_text())["library"]
    return Path(shutil.copytree(kept, tmp_path / "library"))


def plant(directory: Path, **changes: Any) -> None:
    """Change the head of a library as its author could: all its sums are right afterwards."""
    head = LibraryHead.read(directory)
    encoder = head.encoder.model_copy(update={"uri": changes.pop("encoder", head.encoder.uri)})
    head.model_copy(update={"encoder": encoder, **changes}).write(directory)


CODE = (
    PLANTED,
    "python:os:system?command=touch%20it-ran",
    "dinov2:org/name?trust_remote_code=true",
)


@pytest.mark.parametrize("uri", CODE)
def test_a_library_names_no_code(uri: str, library: Path, mark: Path, call) -> None:
    plant(library, encoder=uri)
    few = ("--probe-states", 4, "--check-states", 4)
    (library.parent / "take").mkdir()
    Image.new("RGB", (32, 32)).save(library.parent / "take" / "0.png")
    for use in (
        ["library", "check", library],
        ["library", "show", library],
        ["rank", library.parent / "take", "--demos", library],
        ["diagnose", "--policy", "testbed:half", "--env", "testbed:pick", "--demos", library, "-o", "out", *few],
        ["probe", "--policy", "testbed:half", "--env", "testbed:pick", "--demos", library, *few],
        ["serve", "--policy", "testbed:half", "--retrieve", library, "--port", "0"],
    ):
        code, _, said = call(*use)
        assert code == (0 if "show" in use or "probe" in use else 2), said  # those two encode nothing
        if code:
            assert "names code to run" in said
            assert "--trust" in said
            assert said.count("\n") == 1
        assert not mark.exists()
        assert not Path("it-ran").exists()


def test_a_library_may_name_the_code_that_the_user_names(library: Path, mark: Path) -> None:
    plant(library, encoder=PLANTED)
    with pytest.raises(ComponentError, match="SystemExit: 7"):
        open_or_build(str(library), PLANTED).encoder()
    assert mark.exists()


def test_a_trusted_library_may_name_code(library: Path, mark: Path, call) -> None:
    plant(library, encoder=PLANTED)
    assert call("library", "check", library, "--trust", library)[0] == 2
    assert mark.exists()


@pytest.mark.parametrize(
    "line",
    [
        f"policy: {PLANTED}",
        f"policy: [testbed:half, '{PLANTED}']",
        f"env: {PLANTED}",
        f"demos: {PLANTED}",
        f"encoder: {PLANTED}",
        f"scorer: {PLANTED}",
        f"arms: [base, '{PLANTED}']",
        "trust_remote_code: true",
        "trust-remote-code: true",
        "policy: lerobot:org/name?trust_remote_code=true",
        "env: gym:planted:Env-v0",
        "env: vla-eval:planted:Env",
        "env: vla-eval:subprocess:Popen?args=[touch,it-ran]",
    ],
)
def test_a_plan_names_no_code(line: str, mark: Path, tmp_path: Path, call) -> None:
    key = line.partition(":")[0]
    others = {"policy": "testbed:half", "env": "testbed:pick", key: None}
    plan = tmp_path / "plan.yaml"
    plan.write_text("\n".join([*(f"{name}: {value}" for name, value in others.items() if value), line]))
    code, _, said = call("diagnose", plan, "-o", "out")
    assert code == 2
    assert "names code to run" in said
    assert f"--trust {plan}" in said
    assert not mark.exists()
    assert not Path("it-ran").exists()
    with pytest.raises(PlanError, match="names code to run"):
        load_plan(plan, {})
    registry.trust(plan)
    assert load_plan(plan, {})


def test_a_plan_names_no_part_of_a_namespace_package(mark: Path, tmp_path: Path, monkeypatch: Any, call) -> None:
    """Of a package without an ``__init__.py``, any directory on the path can hold a part, so also the current one."""
    site = tmp_path / "site"
    (site / "spread").mkdir(parents=True)
    Path("spread").mkdir()
    Path("planted.py").rename("spread/planted.py")
    (site / "spread-1.dist-info").mkdir()
    (site / "spread-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: spread\nVersion: 1\n")
    (site / "spread-1.dist-info" / "top_level.txt").write_text("spread\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    plan = tmp_path / "plan.yaml"
    plan.write_text("policy: testbed:half\nenv: gym:spread.planted:Env-v0\n")
    assert call("diagnose", plan, "-o", "out")[0] == 2
    assert not mark.exists()
    with pytest.raises(PlanError, match="names code to run"):
        load_plan(plan, {})


def test_a_flag_names_what_the_plan_may_not(mark: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"policy: testbed:half\nenv: testbed\nscorer: {PLANTED}\ntrust_remote_code: true\n")
    assert load_plan(plan, {"scorer": PLANTED, "trust_remote_code": True}).scorer == (PLANTED,)
    assert load_plan(plan, {"scorer": "manifold", "trust_remote_code": True}).scorer == ("manifold",)


def _in_sqlite(column: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        with sqlite3.connect(run / "takes.sqlite") as base:
            base.execute(f"UPDATE takes SET {column} = ?", (PLANTED,))
        base.close()

    return change


def _in_json(file: str, *words: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        path = run / file
        for word in words:
            path.write_text(path.read_text().replace(json.dumps(word), json.dumps(PLANTED)))

    return change


@pytest.mark.parametrize(
    "change",
    [
        _in_sqlite("env"), _in_sqlite("policy"), _in_sqlite("task"),
        _in_json("run.json", "testbed:pick", "testbed:half"), _in_json("run.json", "retrieve", "manifold", "pixels"),
        _in_json("result.json", "testbed:half", "testbed:pick"), _in_json("result.json", "manifold", "retrieve"),
    ],
)  # fmt: skip
def test_a_run_and_a_result_name_no_code(
    change: Callable[[Path], None], run: Path, mark: Path, tmp_path: Path, call
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    change(copy)
    for use in (
        ["runs", "show", copy],
        ["export", copy, "--figures", tmp_path / "figures"],
        ["report", copy, "--format", "md"],
        ["score", copy, "--scorer", "coverage"],
        ["compare", copy, copy],
        ["library", "build", f"run:{copy}", "-o", tmp_path / "built"],
        ["library", "build", f"run:{copy}?arm=any", "-o", tmp_path / "built"],
        ["ingest", copy],
        ["serve", "--policy", "testbed:strong", "--retrieve", copy, "--host", "0.0.0.0"],  # refused: it needs a token
    ):
        code, _, said = call(*use)
        assert code in (0, 1, 2)
        assert "Traceback" not in said
        assert not mark.exists(), use


@pytest.mark.parametrize(
    "step",
    [
        {"class": "planted.make", "config": {}},
        {"class": "subprocess.Popen", "config": {"args": ["touch", "it-ran"]}},
        {"class": "lerobotx.Thing"},
        {"class": "lerobot.envs.factory.make_env", "config": {"cfg": "someone/else"}},
        {"class": "lerobot.configs.parser.load_plugin"},
        {"registry_name": "action_tokenizer_processor", "config": {"action_tokenizer_name": "someone/else"}},
        {"registry_name": "tokenizer_processor", "config": {"trust_remote_code": True}},
    ],
)
def test_a_checkpoint_names_lerobots_own_steps_only(step: dict[str, Any], mark: Path, tmp_path: Path) -> None:
    """LeRobot imports the class that a saved processor names, and calls it with the saved settings."""
    _checkpoint(tmp_path, {"class": "lerobot.processor.rename_processor.RenameObservationsProcessorStep"})
    check_processors(tmp_path)
    _checkpoint(tmp_path, step)
    with pytest.raises(ComponentError, match="names code to run"):
        check_processors(tmp_path)
    _checkpoint(tmp_path, {"registry_name": "rename", "state_file": "../../secret.safetensors"})
    with pytest.raises(ComponentError, match="outside the checkpoint"):
        check_processors(tmp_path)
    assert not mark.exists()


def _checkpoint(where: Path, step: dict[str, Any]) -> None:
    for name in ("policy_preprocessor.json", "policy_postprocessor.json"):
        steps = [{"registry_name": "device_processor", "config": {}}, step]
        (where / name).write_text(json.dumps({"name": "processor", "steps": steps}))


def test_a_family_that_runs_a_checkpoints_code_needs_the_users_word(tmp_path: Path) -> None:
    check_family(tmp_path, "pi0")
    with pytest.raises(ComponentError, match="trust_remote_code"):
        check_family(tmp_path, "pi0_fast")
    registry.trust(tmp_path)
    check_family(tmp_path, "pi0_fast")


def test_a_wall_x_of_tokens_is_refused_before_anything_of_it_is_loaded(tmp_path: Path) -> None:
    """LeRobot loads the tokenizer of its actions with the code beside it; one of flow matching has none."""
    for mode, problem in (("fast", "cannot act by WALL-X's tokens"), ("diffusion", "not in the checkpoint")):
        (tmp_path / "config.json").write_text(json.dumps({"type": "wall_x", "prediction_mode": mode}))
        with pytest.raises(ComponentError, match=problem):
            _family(tmp_path, "x")


def test_an_env_of_the_hub_runs_code_so_a_file_may_not_name_one(mark: Path, tmp_path: Path) -> None:
    named = registry.FromFile("hub:org/repo", tmp_path / "result.json")
    with pytest.raises(ComponentError, match="names code to run"):
        registry.check_harmless("envs", named)
    registry.trust(tmp_path)
    registry.check_harmless("envs", named)


def test_act_takes_no_trust_in_remote_code_from_its_run(run: Path, mark: Path, tmp_path: Path) -> None:
    result = Result.load(Path(shutil.copytree(run, tmp_path / "run")))
    plan = {**result.plan, "trust_remote_code": True}
    result.model_copy(update={"plan": plan}).save(tmp_path / "run" / "result.json")
    with pytest.raises(ComponentError, match="trust_remote_code: true"):
        act(tmp_path / "run", option="base")


ORIGINS = {
    # Where each call of the registry has its URI from. A new one belongs here; what comes from a file is a `FromFile`.
    "arms/base.py": "the user's arms",
    "arms/sampler.py": "the user's policy and arms",
    "cli/serve.py": "the user's policy",
    "demos/library.py": "a file: FromFile",
    "demos/resolve.py": "the user's demos and encoder",
    "policies/augmented.py": "the user's arm",
    "scorers/score_run.py": "the user's scorers",
    "serving/gate.py": "a run: checked, or FromFile",
    "takes/jobs.py": "the user's arms",
    "takes/worker.py": "the user's env, in the key of a planned take",
    "testing/methods.py": "the caller, or a built-in name",
    "verbs/act.py": "a run: checked, or FromFile",
    "verbs/doctor.py": "the user, or a built-in name",
    "verbs/rank.py": "the user's scorer",
    "recordings/footage.py": "the user's data set",
    "verbs/session.py": "the user",
    "verbs/diagnose/setup.py": "the user's plan; score and export hand it FromFile",
}


def test_every_call_of_the_registry_is_known_with_where_its_uri_comes_from() -> None:
    package, calls = Path(registry.__file__).parent, set()
    makers = {"make", "policy", "env", "encoder", "demos", "arm", "scorer"}
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "besttake.registry":
                assert not makers & {name.name for name in node.names}, f"{path}: call them as registry.…"
            if (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in makers
                and isinstance(node.func.value, ast.Name) and node.func.value.id == "registry"
            ):  # fmt: skip
                calls.add(str(path.relative_to(package)))
    assert calls == set(ORIGINS)


def test_a_benchmark_of_vla_eval_is_a_class_that_its_module_defines(monkeypatch: pytest.MonkeyPatch) -> None:
    base, module = types.ModuleType("vla_eval.benchmarks.base"), types.ModuleType("vla_eval.benchmarks.toy.benchmark")
    for name in ("vla_eval", "vla_eval.benchmarks", "vla_eval.benchmarks.toy"):
        package = types.ModuleType(name)
        package.__path__ = []
        monkeypatch.setitem(sys.modules, name, package)
    benchmark = type("Benchmark", (), {"__module__": base.__name__})
    base.Benchmark = benchmark  # type: ignore[attr-defined]
    module.Toy = type("Toy", (benchmark,), {"__module__": module.__name__})  # type: ignore[attr-defined]
    module.Path, module.Benchmark, module.run = Path, benchmark, print  # type: ignore[attr-defined]
    module.Helper = type("Helper", (), {"__module__": module.__name__})  # type: ignore[attr-defined]
    for each in (base, module):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    assert vla_eval._find("toy", "Toy") is module.Toy  # type: ignore[attr-defined]
    for name in ("Path", "Benchmark", "run", "Helper", "nothing"):
        with pytest.raises(ComponentError, match=f"defines no benchmark {name}"):
            vla_eval._find("toy", name)
