"""What runs code from data is not in the package: no pickle, eval, exec or shell, and no torch.load without a guard."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import besttake

SOURCES = sorted(Path(besttake.__file__).parent.rglob("*.py"))
RESTRICTED = {"envs/libero/install.py"}
"""Its unpickler knows the parts of a numpy array and nothing else."""

MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"), ("os", "system"), ("os", "popen")}


def faults(tree: ast.AST, name: str) -> list[str]:
    """What a module does that it must not, each with its line."""
    wrong = []
    for node in ast.walk(tree):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if {module.partition(".")[0] for module in names} & MODULES and name not in RESTRICTED:
                wrong.append(f"{where} imports {names[0]}")
        if not isinstance(node, ast.Call):
            continue
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        shell = keywords.get("shell")
        if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
            wrong.append(f"{where} runs a shell")
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            wrong.append(f"{where} calls {node.func.id}")
        if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
            continue
        called = (node.func.value.id, node.func.attr)
        if called == ("torch", "load") and not _is(keywords.get("weights_only"), True):
            wrong.append(f"{where} calls torch.load without weights_only=True")
        if called == ("np", "load") and not _is(keywords.get("allow_pickle"), False):
            wrong.append(f"{where} calls np.load without allow_pickle=False")
        if called in LOADERS and not (called == ("yaml", "load") and _loader(keywords.get("Loader"))):
            wrong.append(f"{where} calls {'.'.join(called)}")
        if called[0] in MODULES and called[1] in ("load", "loads"):
            wrong.append(f"{where} calls {'.'.join(called)}")
    return wrong


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _loader(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Name) and node.id == "_Loader"  # config's own, a SafeLoader with bounds


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.name))
def test_a_module_runs_no_code_from_data(path: Path) -> None:
    name = path.relative_to(Path(besttake.__file__).parent).as_posix()
    assert faults(ast.parse(path.read_text(encoding="utf-8")), name) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle", "from pickle import loads", "import dill as d", "eval('1')", "exec(x)", "compile(a)",
        "subprocess.run(x, shell=True)", "Popen(x, shell=y)", "torch.load(x)", "torch.load(x, weights_only=False)",
        "np.load(x)", "np.load(x, allow_pickle=True)", "yaml.load(x, Loader=yaml.Loader)", "yaml.unsafe_load(x)",
        "os.system(x)",
    ],
)  # fmt: skip
def test_the_check_sees_what_it_is_for(code: str) -> None:
    assert faults(ast.parse(code), "module.py")


def test_the_one_unpickler_is_restricted() -> None:
    text = (Path(besttake.__file__).parent / "envs" / "libero" / "install.py").read_text()
    calls = [
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert not {"pickle.load", "pickle.loads"} & set(calls)
    assert "def find_class" in text
