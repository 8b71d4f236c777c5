"""What the tests of the report share. The helpers beside this file are loaded by path: tests are not packages."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load(name: str) -> ModuleType:
    full = f"besttake_report_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    return _load("synthetic")


@pytest.fixture(scope="session")
def run(synthetic: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary run of two policies and three tasks, with its report."""
    from besttake.reporting.html import make_html

    directory = tmp_path_factory.mktemp("run") / "run"
    synthetic.build(directory)
    make_html(directory)
    return directory


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Chromium for the tests of one module: it keeps a core busy as long as it lives."""
    module = _load("browser")
    if module.find() is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")
    with module.Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


AXE = "axe-core@4.14.0"


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The accessibility checker axe-core, as npm has it; kept for the next time."""
    from platformdirs import user_cache_path

    kept = user_cache_path("besttake") / "tests" / f"{AXE}.js"
    if not kept.exists():
        if shutil.which("npm") is None:
            pytest.skip("no npm on this machine to fetch axe-core with")
        where = tmp_path_factory.mktemp("axe")
        done = subprocess.run(["npm", "pack", AXE], cwd=where, capture_output=True, text=True, timeout=120)
        if done.returncode:
            pytest.skip(f"npm could not fetch {AXE}: {done.stderr.strip()[-200:]}")
        with tarfile.open(next(where.glob("*.tgz"))) as packed:
            member = packed.extractfile("package/axe.min.js")
            assert member is not None
            text = member.read()
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(text)
    return kept.read_text()
