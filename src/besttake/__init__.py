"""BestTake: what a frozen robot policy needs at test time.

>>> import besttake
>>> result = besttake.diagnose(policy="testbed:half", env="testbed", out="runs/half")  # doctest: +SKIP
>>> result.policies[0].verdict.headline                                                # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from besttake.api import diagnose, probe, report
    from besttake.config import Plan
    from besttake.errors import BestTakeError
    from besttake.result import Result

__all__ = ["BestTakeError", "Plan", "Result", "diagnose", "probe", "report"]

_HOME = {
    "diagnose": "api", "probe": "api", "report": "api", "Plan": "config", "BestTakeError": "errors", "Result": "result",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``besttake --help`` answers at once."""
    if name not in _HOME:
        raise AttributeError(f"module 'besttake' has no attribute {name!r}")
    return getattr(import_module(f"besttake.{_HOME[name]}"), name)
