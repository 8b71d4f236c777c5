"""The browser and the synthetic run of the tests of the report."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from besttake.takes.heartbeat import Beat, Heartbeat
from besttake.takes.key import TakeKey
from besttake.takes.store import Store


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_report = _load("besttake_report_conftest", Path(__file__).parents[1] / "reporting" / "conftest.py")
synthetic, browser, axe = _report.synthetic, _report.browser, _report.axe


@pytest.fixture(scope="session")
def small() -> ModuleType:
    """The helper beside this file; tests are not packages."""
    return _load("besttake_live_small", Path(__file__).with_name("small.py"))


@pytest.fixture
def going(small: ModuleType, tmp_path: Path) -> Iterator[Path]:
    """A run that another process would be writing: 24 starts are complete, one take could not be made."""
    with patch("os.fsync"), Store.write(tmp_path / "run", small.MANIFEST) as store:
        for start in range(24):
            for seed in range(small.SEEDS):
                store.add(small.take(start, seed))
        store.add_error(TakeKey("<b>p</b>", "e", "pick", 24, "base", 0), "boom <script>alert(1)</script>")
        with Heartbeat(store.path, lambda: Beat("takes p", 49, 60, 75.0)):
            yield store.path
