"""BestTake: what a frozen robot policy needs at test time.

>>> import besttake
>>> result = besttake.diagnose(policy="testbed:half", env="testbed", starts=20, out="runs/half")   # doctest: +SKIP
>>> print(result)   # one line per policy: what to do, and what it gains                           # doctest: +SKIP

The verbs of the command line are functions here; each returns its result and prints nothing.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from besttake.config import Plan, Retrieval
    from besttake.errors import BestTakeError
    from besttake.policies.base import FunctionPolicy
    from besttake.registry import trust
    from besttake.result import Result
    from besttake.serving.gate import Gate
    from besttake.verbs.act import act
    from besttake.verbs.compare import compare
    from besttake.verbs.diagnose.diagnosis import diagnose
    from besttake.verbs.doctor import doctor
    from besttake.verbs.export import export
    from besttake.verbs.ingest import ingest
    from besttake.verbs.plan import plan
    from besttake.verbs.probe import probe
    from besttake.verbs.rank import rank
    from besttake.verbs.report import report
    from besttake.verbs.reproduce import reproduce
    from besttake.verbs.runs import Run
    from besttake.verbs.score import score
    from besttake.verbs.session import session

    __version__: str

__all__ = [
    "BestTakeError", "FunctionPolicy", "Gate", "Plan", "Result", "Retrieval", "Run", "__version__", "act", "compare",
    "diagnose", "doctor", "export", "ingest", "plan", "probe", "rank", "report", "reproduce", "score", "session",
    "trust",
]  # fmt: skip

_MODULES = {
    "Plan": "config", "Retrieval": "config", "BestTakeError": "errors", "Result": "result", "Run": "verbs.runs",
    "FunctionPolicy": "policies.base", "Gate": "serving.gate", "trust": "registry",
    "diagnose": "verbs.diagnose.diagnosis",
}  # fmt: skip
"""The modules of public names; any other verb ``x`` is ``besttake.verbs.x.x``."""

logging.getLogger("besttake").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import besttake`` takes no time."""
    if name == "__version__":
        return import_module("besttake.files").version()
    if name not in __all__:
        raise AttributeError(f"module 'besttake' has no attribute {name!r}")
    return getattr(import_module(f"besttake.{_MODULES.get(name, f'verbs.{name}')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
