"""What a run is bound to: what may not change when it goes on, and the versions that its numbers depend on."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

from besttake import registry
from besttake.arms.base import identity as arms_identity
from besttake.arms.base import specs_of
from besttake.config import Plan
from besttake.files import version
from besttake.measure.looks import Unit, random_order
from besttake.takes.manifest import Extent, Manifest
from besttake.types import EnvSpec
from besttake.verbs.diagnose.setup import Setup


def manifest_of(setup: Setup, command: str) -> Manifest:
    """What ``run.json`` says: identity (may not change when a run goes on) and extent (may only grow)."""
    plan, library = setup.plan, setup.library
    identity: dict[str, Any] = {
        "seed": plan.seed,
        "stride": plan.stride,
        "until": plan.until and hashlib.sha256(json.dumps(order_of(setup)).encode()).hexdigest()[:16],
        **_decides_by(plan),
        **{f"env {uri}": [env.fingerprint, setup.goes_on(env)] for uri, env in setup.envs.items()},
        **{f"code of {uri}": code for uri, env in setup.envs.items() if (code := _code(uri, env))},
    }
    fingerprint = None if library is None else library.fingerprint
    identity |= arms_identity(specs_of(plan.arms), setup.retrieval, plan.candidates, fingerprint)
    return Manifest(
        besttake=version(), command=command, plan=plan.model_dump(mode="json"), versions=versions(),
        library=None if library is None else str(library.path), identity=identity,
        extent=Extent(
            policies=list(plan.policy), seeds=list(range(plan.seeds)), arms=list(plan.arms),
            tasks=[f"{uri} {task.name}" for uri, env in setup.envs.items() for task in plan.chosen_tasks(env)],
            starts=sorted({s for uri, env in setup.envs.items() for s in plan.chosen_starts(plan.offered(env), uri)}),
        ),
    )  # fmt: skip


def _code(uri: str, env: EnvSpec) -> str:
    """What tells an edited env of the user's own from the one before, where its own fingerprint cannot."""
    known = env.fingerprint and registry.Uri.parse(uri).scheme == "python"  # its own, or else that of its file
    return "" if known else registry.fingerprint_of_code(uri)


def _decides_by(plan: Plan) -> dict[str, Any]:
    """What the takes of a run until decided follow from: with another value its answers so far would not hold."""
    if plan.until is None:
        return {}
    kept = None if plan.n == plan.seeds else plan.n
    picks = plan.scorer[0]
    return {"seeds": plan.seeds, "best_of": kept, "worth": plan.worth, "scorer": picks, "window": plan.window}


def order_of(setup: Setup) -> list[Unit]:
    """All starts of the plan, in random order across tasks."""
    units = [
        (uri, task.name, start)
        for uri, env in setup.envs.items()
        for task in setup.plan.chosen_tasks(env)
        for start in setup.plan.chosen_starts(setup.plan.offered(env), uri)
    ]
    return random_order(units, setup.plan.seed)


def versions() -> dict[str, str]:
    """The versions that numbers may depend on."""
    libraries = ("numpy", "scipy", "mujoco", "torch", "lerobot", "hf-libero", "mani-skill")
    here = {"python": platform.python_version(), "machine": platform.machine()}
    return here | {name: number for name in libraries if (number := version(name, ""))}
