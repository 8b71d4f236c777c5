"""``besttake probe``."""

from __future__ import annotations

from rich.console import Console

from besttake.cli.flags import Flags, plan_flags
from besttake.cli.options import Json, Quiet, Verbose, reporter, show


@plan_flags(
    "policy", "env", "task", "demos", "encoder", "probe_states", "probe_samples", "trust_remote_code", "seed",
    flags={"probe_states": "--states", "probe_samples": "--samples"},
)  # fmt: skip
def probe(given: Flags, as_json: Json = False, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Measure the demonstration-fit error alone: how close is the policy to the demonstrations, and they to each other?

    Examples:
      besttake probe --policy testbed:half --policy testbed:strong --env testbed
      besttake probe --policy lerobot:org/pi0_libero --env libero:spatial --demos lerobot:org/libero --json
    """
    from besttake.config import load_plan
    from besttake.reporting.terminal.probe import render
    from besttake.verbs.probe import probe as run

    result = run(load_plan(None, {**given, "arms": "base"}), progress=reporter(quiet or as_json, verbose))
    show(render(result, Console().width), [cell.model_dump(mode="json") for cell in result], as_json)
