"""Functions stay short enough to be read at once: at most 60 lines and 8 parameters."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "besttake"
MOST_LINES = 60
MOST_PARAMETERS = 8

MOST = {"modules": 200, "src": 36_000, "pages": 30, "tests": 26_000, "bench": 4_500}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Every function of ``tree``, also those inside classes and functions, under its full name."""
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, ast.ClassDef | Function):
            inner = f"{prefix}.{node.name}"
        if isinstance(node, Function):
            yield inner, node
        yield from functions(node, inner)


def all_functions() -> dict[str, Function]:
    named: dict[str, Function] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        prefix = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        named |= dict(functions(ast.parse(path.read_text()), prefix))
    return named


FUNCTIONS = all_functions()


def lines(function: Function) -> int:
    assert function.end_lineno
    return function.end_lineno - function.lineno + 1


def parameters(function: Function) -> int:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def is_command(name: str) -> bool:
    """A command of the command line: its parameters are the flags."""
    return name.startswith("cli.")


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = {name: lines(each) for name, each in FUNCTIONS.items() if lines(each) > MOST_LINES}
    assert long == {}


def test_no_function_has_more_than_eight_parameters() -> None:
    wide = {name: parameters(each) for name, each in FUNCTIONS.items() if parameters(each) > MOST_PARAMETERS}
    assert {name: n for name, n in wide.items() if not is_command(name)} == {}


def test_no_class_name_has_two_meanings() -> None:
    trees = (ast.walk(ast.parse(path.read_text())) for path in SOURCE.rglob("*.py"))
    names = Counter(node.name for tree in trees for node in tree if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_house_stays_small() -> None:
    """Lines and modules of src, lines of tests and bench, pages of docs; the limits only fall."""
    root = SOURCE.parent.parent
    source = list(SOURCE.rglob("*.py"))
    pages = len([*root.glob("docs/**/*.md")])
    counts = {"modules": len(source), "src": _lines(source), "pages": pages}
    counts |= {name: _lines(root.glob(f"{name}/**/*.py")) for name in ("tests", "bench")}
    print(counts)
    over = {name: count for name, count in counts.items() if count > MOST[name]}
    assert not over, f"{over}, and the limits are {MOST}"


def _lines(files: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in files)
