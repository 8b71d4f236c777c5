"""The command line's verbs as functions: the same words, typed results, nothing printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from besttake.config import Plan, load_plan
from besttake.result import Cell, Result


def diagnose(plan: Plan | str | Path | None = None, *, out: str | Path, progress: bool = False, **flags: Any) -> Result:
    """Measure what policies need, in run directory ``out`` (an unfinished run there goes on).

    ``plan`` is a `Plan` or a YAML file; ``flags`` are its keys and override it:

    >>> besttake.diagnose(policy="testbed:half", env="testbed:pick", starts=20, out="runs/half")  # doctest: +SKIP
    """
    from besttake.verbs.diagnose import diagnose as run

    return run(_plan(plan, flags), out, progress=progress)


def probe(plan: Plan | str | Path | None = None, **flags: Any) -> list[Cell]:
    """The demonstration-fit error of each policy: cells with ``dfe``, one per task group and one (``"*"``) for all."""
    from besttake.verbs.probe import probe as run

    return run(_plan(plan, flags))


def report(run: str | Path, out: str | Path | None = None) -> Path:
    """Write the HTML report of a run and return its path."""
    from besttake.reporting.html import make_html

    return make_html(run, out)


def _plan(plan: Plan | str | Path | None, flags: dict[str, Any]) -> Plan:
    if isinstance(plan, Plan):
        return load_plan(None, {**plan.model_dump(), **flags})
    return load_plan(Path(plan) if plan is not None else None, flags)
