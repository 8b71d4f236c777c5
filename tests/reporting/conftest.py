"""What the tests of the report share."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def run(synthetic: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ordinary run of two policies and three tasks, with its report."""
    from besttake.reporting.html import make_html

    directory = tmp_path_factory.mktemp("run") / "run"
    synthetic.build(directory)
    make_html(directory)
    return directory
