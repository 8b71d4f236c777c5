"""Holds the code to its layers: cli -> verbs -> reporting -> measure -> takes -> core, without cycles.

The import graph is read from the source, so an import inside a function counts as much as one at the top of a file;
one under ``if TYPE_CHECKING`` does not count.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "besttake"


@dataclass(frozen=True)
class Import:
    """One import statement of the package: who imports what, where, and whether loading the importer runs it."""

    importer: str
    imported: str
    line: int
    lazy: bool

    @property
    def library(self) -> str:
        return self.imported.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported} (line {self.line}{', inside a function' if self.lazy else ''})"


def module_name(path: Path) -> str:
    parts = ["besttake", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def read_imports(module: str, path: Path) -> list[Import]:
    """Every import of ``path``, of the package and of other libraries, without those for the type checker alone."""
    collected: list[Import] = []

    def add(target: str, node: ast.stmt, lazy: bool) -> None:
        collected.append(Import(module, target, node.lineno, lazy))

    def visit(node: ast.AST, lazy: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child, lazy)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(alias.name, node, lazy)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import; write the whole name"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                add(full if full in FILES else base, node, lazy)
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.iter_child_nodes(node):
            visit(inner, lazy)

    visit(ast.parse(path.read_text()), lazy=False)
    return list(dict.fromkeys(collected))


IMPORTS = [each for module, path in FILES.items() for each in read_imports(module, path)]
INSIDE = [each for each in IMPORTS if each.imported in FILES]


def within(module: str, *packages: str) -> bool:
    """Whether ``module`` is one of ``packages`` (named without the leading ``besttake.``) or lies inside one."""
    return any(module == f"besttake.{name}" or module.startswith(f"besttake.{name}.") for name in packages)


def reachable(start: str, lazily: bool) -> dict[str, Import]:
    """What loading ``start`` loads of the package, each module with the import that first reached it.

    A package's ``__init__`` is loaded with any module inside it. With ``lazily``, imports inside functions count too.
    """
    reached: dict[str, Import] = {}
    queue = [start]
    while queue:
        module = queue.pop(0)
        for each in INSIDE:
            if each.importer != module or (each.lazy and not lazily):
                continue
            for target in with_parents(each.imported):
                if target not in reached and target != start:
                    reached[target] = each
                    queue.append(target)
    return reached


def with_parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(2, len(parts) + 1)]


def chain(start: str, end: str, reached: dict[str, Import]) -> str:
    """How ``start`` comes to load ``end``, as a line of imports."""
    steps: list[str] = []
    while end != start and end in reached:
        steps.append(str(reached[end]))
        end = reached[end].importer
    return "\n    ".join(reversed(steps))


def forbid(broken: list[Import], rule: str) -> None:
    assert not broken, f"{rule}:\n  " + "\n  ".join(map(str, broken))


def test_there_is_no_import_cycle_not_even_a_lazy_one() -> None:
    edges: dict[str, list[str]] = {module: [] for module in FILES}
    for each in INSIDE:
        # Importing a module also runs the packages that it lies in, but for those that are already being loaded.
        loaded = [name for name in with_parents(each.imported) if not f"{each.importer}.".startswith(f"{name}.")]
        edges[each.importer] += loaded
    done: set[str] = set()
    path: list[str] = []

    def walk(module: str) -> None:
        assert module not in path, "import cycle: " + " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for target in edges[module]:
            walk(target)
        path.pop()
        done.add(module)

    for module in FILES:
        walk(module)


def test_core_imports_no_sibling_and_only_numpy_and_scipy() -> None:
    libraries = {"numpy", "scipy", "besttake", *sys.stdlib_module_names}
    mine = [each for each in IMPORTS if within(each.importer, "core")]
    forbid([each for each in mine if each.imported in FILES and not within(each.imported, "core")], "core stands alone")
    forbid([each for each in mine if each.library not in libraries], "core uses numpy and scipy only")


ENGINE = ("takes.pool", "takes.worker", "takes.engine", "takes.ray", "registry")


@pytest.mark.parametrize("module", [name for name in FILES if within(name, "core", "measure")])
def test_core_and_measure_load_neither_engine_nor_drawing(module: str) -> None:
    reached = reachable(module, lazily=True)
    for target in reached:
        assert not within(target, *ENGINE), f"{module} must not load the engine:\n    {chain(module, target, reached)}"
    for each in IMPORTS:
        if each.importer == module or each.importer in reached:
            assert each.library not in {"rich", "PIL", "mujoco", "typer"}, (
                f"{module} must not load {each.imported}: {each}\n    {chain(module, each.importer, reached)}"
            )


LAYERS = ("core", "takes", "measure", "reporting", "verbs", "cli")


def test_a_layer_imports_only_from_the_layers_below_it() -> None:
    above = {layer: LAYERS[i + 1 :] for i, layer in enumerate(LAYERS)}
    broken = [e for e in INSIDE for layer in LAYERS if within(e.importer, layer) and within(e.imported, *above[layer])]
    forbid(broken, "the layers from below: " + ", ".join(LAYERS))


def test_only_the_command_line_and_the_public_api_call_verbs() -> None:
    callers = ("verbs", "cli", "__main__")
    broken = [e for e in INSIDE if within(e.imported, "verbs", "cli") and not within(e.importer, *callers)]
    forbid([e for e in broken if e.importer != "besttake"], "only cli and the public API call verbs")


def test_only_the_command_line_serves_the_live_page() -> None:
    broken = [
        e for e in INSIDE if within(e.imported, "watch") and not within(e.importer, "watch", "cli", "serving.operator")
    ]
    forbid(broken, "the live page reads runs; nothing that makes or measures them knows it")


def test_only_the_terminal_and_the_command_line_print_with_rich() -> None:
    allowed = ("reporting.terminal", "cli", "progress")
    broken = [e for e in IMPORTS if e.library == "rich" and not within(e.importer, *allowed)]
    forbid(broken, "only reporting/terminal.py, cli and progress import rich")


def test_typer_is_known_to_the_command_line_alone() -> None:
    broken = [e for e in IMPORTS if e.library in {"typer", "click"} and not within(e.importer, "cli")]
    forbid(broken, "only cli imports typer")


FAMILIES = ("policies", "envs", "encoders", "demos", "arms", "scorers")


def test_the_families_know_nothing_of_what_uses_them() -> None:
    users = ("verbs", "reporting", "cli", "recordings", "serving", "watch")
    broken = [e for e in INSIDE if within(e.importer, *FAMILIES) and within(e.imported, *users)]
    forbid(broken, "a family imports nothing that uses it")


def test_policies_and_envs_and_encoders_know_nothing_of_each_other() -> None:
    apart = ("policies", "envs", "encoders")
    # No adapters, but what several adapters have in common: LIBERO's conventions, and how torch is set up.
    common = ("envs.libero.harness", "encoders.pretrained")
    broken = [
        e for e in INSIDE for family in apart
        if within(e.importer, family) and within(e.imported, *(set(apart) - {family}))
        if not within(e.imported, *common)
    ]  # fmt: skip
    forbid(broken, "policies, envs and encoders do not import each other")


def loaded_after(statements: str) -> set[str]:
    """The modules that a fresh Python holds after ``statements``."""
    code = f"{statements}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_besttake_loads_no_library() -> None:
    extra = loaded_after("import besttake") - loaded_after("")
    heavy = {name for name in extra if name in {"numpy", "scipy", "pydantic", "typer", "rich", "mujoco", "PIL", "yaml"}}
    assert not heavy, f"import besttake loads {sorted(heavy)}"


def test_ingesting_a_table_loads_neither_mujoco_nor_the_engine_nor_drawing(tmp_path: Path) -> None:
    table = tmp_path / "outcomes.csv"
    rows = [f"pick,{start},{seed},{(start + seed) % 2}" for start in range(4) for seed in range(2)]
    table.write_text("\n".join(["task,start,seed,success", *rows]))
    loaded = loaded_after(
        f"from besttake.verbs.ingest import ingest\ningest([{str(table)!r}], {str(tmp_path / 'run')!r})"
    )
    # The registry itself loads nothing until it is asked for a component; plans are checked with it.
    heavy = {f"besttake.{name}" for name in ENGINE if name != "registry"}
    heavy |= {"mujoco", "ray", "PIL", "rich", "typer", "av"}
    assert not loaded & heavy, sorted(loaded & heavy)
