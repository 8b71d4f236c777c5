"""Components that raise anything, or sleep, at their third call: the run ends, in one line or with failed takes."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from bench.campaign.stage import Attempt, check, stage
from bench.campaign.tiny import Diagnosis, make_world

_PARTS = {"env": "env", "factory": "env", "close": "env", "large": "policy?small=false", "small": "policy"}
_ENDS = ("SystemExit", "CancelledError", "GeneratorExit", "KeyboardInterrupt", "sleep")


@stage("components", "a policy or an environment raises what is no Exception, or sleeps", ci=3, full=100)
def components(scratch: Path) -> Iterator[Attempt]:
    world, parts = make_world(scratch), Path(__file__).parents[2] / "tests" / "verbs"

    def attempt(rng: random.Random, place: Path) -> str:
        kind = rng.choice([*_PARTS])
        end = rng.choice(_ENDS[: 3 if kind in ("factory", "close") else None])  # there is Ctrl-C, and no limit
        given = {_PARTS[kind].partition("?")[0]: f"python:odd_parts:{_PARTS[kind]}", "patience": 2, "workers": 1}
        with patch.dict("os.environ", {"ODD": f"{kind} {end}"}), patch.object(sys, "path", [*sys.path, str(parts)]):
            code, said = Diagnosis(world, place / "run", given).wait()
        check(code in (1, 2) and "Traceback" not in said, f"{kind} {end}: ended with {code}: {said[-300:]}")
        return "one line" if code == 2 else "failed takes, or one line"

    yield attempt
