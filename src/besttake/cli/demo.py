"""``besttake demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from besttake.cli.diagnose import run
from besttake.cli.flags import Flags, plan_flags
from besttake.cli.options import Json, Out, Quiet, Strict, Verbose, reporter
from besttake.config import Plan

DEMO: dict[str, Any] = {
    "policy": ["testbed:half", "testbed:alt", "testbed:strong"], "env": ["testbed"], "stride": 8, "batch": 128,
}  # fmt: skip


@plan_flags("starts", "workers")
def demo(
    given: Flags,
    out: Out = Path("runs/demo"),
    strict: Strict = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Diagnose three policies on the embedded testbed, and write a report to open.

    Examples:
      besttake demo
      besttake demo --starts 60 -o runs/long
    """
    run(Plan(**DEMO, **given), out, strict=strict, as_json=as_json, progress=reporter(quiet or as_json, verbose))
