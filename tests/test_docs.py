"""The documents name files and names that exist, and their Python examples run."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

import besttake
from besttake.cli.main import app

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "besttake"
PAGES = [ROOT / "docs" / "architecture.md", ROOT / "docs" / "run.md", ROOT / "CONTRIBUTING.md", ROOT / "README.md"]


def names_in(path: Path) -> set[str]:
    """What a module defines at its top, and the methods of its classes."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_name_that_a_page_cites_is_there(page: Path) -> None:
    missing = []
    for place, name in re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)(?:::(\w+))?`", page.read_text()):
        homes = [base / place for base in (SOURCE, ROOT) if (base / place).exists()]
        homes += SOURCE.rglob(place) if "/" not in place else ()
        if not homes or (name and name not in names_in(homes[0])):
            missing.append(f"{place}::{name}" if name else place)
    assert not missing, f"{page.name} cites what is not there: {', '.join(missing)}"


@pytest.mark.parametrize(
    "page", [*PAGES, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")], ids=lambda page: page.name
)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|src=\"([^\":]+)\"", page.read_text())
    broken = [link for pair in links for link in pair if link and not (page.parent / link).exists()]
    assert not broken, f"{page.name} links to what is not there: {broken}"


def test_every_check_that_the_architecture_names_is_there() -> None:
    testing = importlib.import_module("besttake.testing")
    named = set(re.findall(r"besttake\.testing\.(\w+)", "".join(page.read_text() for page in PAGES)))
    assert {name for name in named if not hasattr(testing, name)} == set()


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def marks_of(block: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if "besttake.diagnose(" in block else []


@pytest.mark.parametrize(
    "block",
    [pytest.param(b, id=f"{p.name}-{i}", marks=marks_of(b)) for p in PAGES for i, b in enumerate(python_blocks(p))],
)
def test_python_examples_run_as_they_stand(block: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(block)
    env = {**os.environ, "BESTTAKE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "example.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


WITH_EXAMPLES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>>" in path.read_text()]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_examples_in_docstrings_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.chdir(tmp_path)
    parts = ["besttake", *path.relative_to(SOURCE).with_suffix("").parts]
    module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
    outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert outcome.failed == 0


TUTORIAL = ROOT / "examples" / "reach"


def test_the_tutorial_shows_the_files_of_its_example_as_they_are() -> None:
    *files, notebook = python_blocks(ROOT / "docs" / "tutorial.md")
    assert files == [(TUTORIAL / name).read_text() for name in ("reach.py", "policy.py")]
    compile(notebook, "tutorial.md", "exec")
    assert [name for name in re.findall(r"besttake\.(\w+)\(", notebook) if name not in besttake.__all__] == []


def commands_in(page: Path) -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if re.match(r"(\w+=\S+ )*besttake \w", line)]


def written(command: str) -> list[str]:
    """The words of a command as a shell would see them, without what stands for anything (``…``, ``build|show``)."""
    words = shlex.split(command.partition(" #")[0])
    words = words[words.index("besttake") + 1 :]
    return [word.partition("|")[0] if re.fullmatch(r"\w+(\|\w+)+", word) else word for word in words]


COMMANDS = [
    (page, line) for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] for line in commands_in(page)
]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: value.name if isinstance(value, Path) else value)
def test_every_command_in_the_documents_parses(page: Path, line: str) -> None:
    group = get_command(app)
    context = group.make_context("besttake", written(line))
    try:
        while hasattr(group, "resolve_command"):
            name, group, rest = group.resolve_command(context, [*context._protected_args, *context.args])
            context = group.make_context(name, rest, parent=context)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        vague = "…" in line and type(error).__name__ == "MissingParameter"
        absent = "does not exist" in error.format_message()  # files of an example that only its reader has
        assert vague or absent, f"{page.name}: {line}: {error.format_message()}"


def test_the_menu_of_the_site_leads_to_every_page() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in menu] == []


def test_the_site_links_to_the_repository_and_loads_nothing_from_its_host() -> None:
    """The theme asks the host for stars wherever it finds its component "source", at every visit of every reader."""
    keep_link = runpy.run_path(str(ROOT / "docs" / "hooks.py"))["on_post_page"]
    link = '<a href="https://github.com/besttake/besttake" class="md-source"{}>besttake</a>'
    assert keep_link(link.format(' data-md-component="source"')) == link.format("")
    assert "font: false" in (ROOT / "mkdocs.yml").read_text()
