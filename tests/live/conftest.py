"""A run that goes on."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from besttake.takes.heartbeat import Beat, Heartbeat
from besttake.takes.key import TakeKey
from besttake.takes.store import Store


@pytest.fixture(scope="session")
def small() -> ModuleType:
    """The helper beside this file."""
    return import_module("small")


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
