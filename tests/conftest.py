from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# Integration environments need not have hypothesis.
if find_spec("hypothesis"):
    from hypothesis import HealthCheck, settings

    # Machines are shared: how long a test takes says nothing about the code.
    settings.register_profile("besttake", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("besttake")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may have been told to ignore it

# Tests are no packages: they import the helpers of these folders by name.
HERE = Path(__file__).parent
sys.path += [
    str(HERE / folder) for folder in ("core", "demos", "golden", "live", "reporting", "scorers", "takes", "verbs")
]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole session, apart from the user's own, which may hold what other code made."""
    path = tmp_path_factory.mktemp("cache")
    os.environ["BESTTAKE_CACHE"] = str(path)
    return path


@pytest.fixture(scope="session")
def besttake(cache: Path) -> Run:
    """The command line in a process of its own."""

    def run(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "besttake", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise AssertionError(f"{command} exited with {done.returncode}: {done.stderr}")
        return done

    return run


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process: its exit code, and what it wrote to standard output and standard error."""
    from besttake.cli.main import main

    def run(*arguments: object) -> tuple[int, str, str]:
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as stop:
            patch.setattr(sys, "argv", ["besttake", *map(str, arguments)])
            main()
        written = capsys.readouterr()
        return int(stop.value.code or 0), written.out, written.err

    return run


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Path]]:
    """Writes a module that can be imported in this test, and returns its file."""
    written: list[str] = []
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        invalidate_caches()
        written.append(name)
        return path

    yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def diagnosed(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a small run of an embedded policy, by the plan that is given, and returns its directory."""
    small = {"policy": "testbed:half", "env": "testbed:pick", "arms": "base", "demos_per_task": 4, "workers": 1}

    def run(**plan: Any) -> Path:
        from besttake.config import load_plan
        from besttake.verbs.diagnose.diagnosis import diagnose

        out = tmp_path_factory.mktemp("diagnosed") / "run"
        diagnose(load_plan(None, {**small, "check_states": 0, "probe_states": 0, **plan}), out)
        return out

    return run


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """Makes runs with made-up takes and results: tests/reporting/synthetic.py."""
    return import_module("synthetic")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Chromium for the tests of one module: it keeps a core busy as long as it lives."""
    module = import_module("browser")
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
