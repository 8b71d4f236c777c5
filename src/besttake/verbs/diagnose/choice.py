"""Which retrieval a diagnosis runs for a policy: as the plan says, or as the check chooses; then frozen.

The check (`check`) runs before the first take. Its outcome is kept in the user's cache, by library and policy, so that
every later run of that policy with that library has the same configuration. It is never read from the library itself: a
library that someone else made could say what was never measured.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from besttake.arms.base import runnable, specs_of
from besttake.config import Plan
from besttake.core.offline import RetrievalCheck, simplest, value_or_inf
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.library import Library
from besttake.files import cache_dir, read_sealed_json, sealed_json, short_hash, write_bytes
from besttake.policies.base import Policy
from besttake.progress import Reporter
from besttake.reporting import words
from besttake.types import EnvSpec, PolicySpec, TaskSpec
from besttake.verbs.diagnose.check import CheckSettings, check_retrieval_of

FOLDER = "checks"
_VERSION = 4
_ADAPTER: TypeAdapter[RetrievalCheck] = TypeAdapter(RetrievalCheck)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """The configuration of a policy's takes, the check behind it, and the arms that are not worth a take."""

    config: RetrievalConfig
    check: RetrievalCheck | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def choose_retrieval(
    name: str, policy: Policy, plan: Plan, envs: Mapping[str, EnvSpec], library: Library | None, base: RetrievalConfig,
    reporter: Reporter,
) -> Choice:  # fmt: skip
    """The retrieval that ``plan`` means for ``policy``, called ``name``; ``base`` has its settings.

    A plan that names a rule and both dials gets exactly what it names, and the check is made for the report only.
    Otherwise the check chooses what the plan leaves open. Where no prior helps, the arms that retrieve are left out,
    unless the plan names its arms or settings of retrieval itself.
    """
    specs = specs_of(plan.arms)
    retrieving = tuple(uri for uri, spec in specs.items() if "retrieval" in spec.settings)
    reads = retrieving or any("noise" in spec.settings for spec in specs.values())
    able = policy.spec.cools or policy.spec.warm_start  # others, as behind a server, have nothing to choose
    if library is None or not (reads and able) or not plan.check_states:
        return Choice(base)
    given, settled = plan.retrieval.given(), _settled(plan)
    check = check_for(policy, plan, envs, library, reporter)
    note = f"{name}: {words.check_sentence(check)}"
    if check.reason or settled:
        runs = f"{f'it runs as {words.retrieval_name(base)}' if retrieving else 'cooling runs'} at noise {base.noise:g}"
        said = "" if settled else f"; {runs}, which nothing chose"
        return Choice(base, check, notes=(note + said,) if check.reason or not check.helps else ())
    tasks = [task for env in envs.values() for task in plan.chosen_tasks(env)]
    config = config_of(check, base, tasks)
    if not check.helps and retrieving and "arms" not in plan.model_fields_set and not {*given} - {"noise"}:
        able_to = runnable(policy.spec, retrieving)[0]  # what it cannot run, naming it does not change
        left = f": {' and '.join(able_to)} not run; name them in `arms` to run them all the same" if able_to else ""
        return Choice(config, check, retrieving, (f"{note}{left}",))
    return Choice(config, check, notes=(note,))


def check_for(
    policy: Policy, plan: Plan, envs: Mapping[str, EnvSpec], library: Library, reporter: Reporter
) -> RetrievalCheck:
    """The check of what ``plan`` leaves open, or of the one configuration that it names."""
    given = plan.retrieval.given()
    fixed = RetrievalConfig.from_dict(given).to_dict() if _settled(plan) else dict(given)
    if plan.event_angle is not None:
        fixed["angle"] = None  # the library was built with what the plan says, and no other is tried
    tasks = [task for env in envs.values() for task in plan.chosen_tasks(env)]
    asked = CheckSettings(plan.check_states, seed=plan.seed, fixed=fixed, patience=plan.patience)
    return load_or_check(policy, library, tasks, asked, reporter)


def _settled(plan: Plan) -> bool:
    """Whether nothing is left to choose."""
    return {"rule", "noise", "prior"} <= {*plan.retrieval.given()}


def load_or_check(
    policy: Policy, library: Library, tasks: Sequence[TaskSpec], asked: CheckSettings, reporter: Reporter
) -> RetrievalCheck:
    """The check of ``policy``, read from the cache where it was made before, else made and kept there."""
    place = _place(library) / f"{_key(policy.spec, library, tasks, asked)}.json"
    known = _read(place)
    if known is not None:
        _log.info("check of %s: as kept in %s", policy.spec.name, place)
        return known
    with reporter.stage("check", 20 * asked.states * asked.draws, "samples") as stage:
        check = check_retrieval_of(policy, library, tasks, asked, stage.advance)
    if not check.reason:
        _keep(place, {"policy": policy.spec.name, "check": asdict(check), "version": _VERSION})
    return check


def config_of(check: RetrievalCheck, base: RetrievalConfig, tasks: Sequence[TaskSpec]) -> RetrievalConfig:
    """What to run by a check; where nothing helps and the arm is asked for all the same, the lowest error."""
    if not check.tried:
        return base if check.noise is None else replace(base, noise=check.noise)
    if not check.helps:
        return min(check.tried, key=lambda one: value_or_inf(one.added)).config
    config = check.chosen or replace(simplest(check.tried).config, prior=0.0)
    priors = {
        name: check.groups[task.group].prior
        for task in tasks if task.group in check.groups
        for name in (task.name, task.instruction) if name  # a server may know only the instruction
    }  # fmt: skip
    return config.changed({"by_task": {name: prior for name, prior in priors.items() if prior != config.prior}})


def _place(library: Library) -> Path:
    return cache_dir() / FOLDER / short_hash(library.fingerprint)


def _key(spec: PolicySpec, library: Library, tasks: Sequence[TaskSpec], asked: CheckSettings) -> str:
    fixed = json.dumps(dict(asked.fixed), sort_keys=True)
    names = " ".join(sorted(task.name for task in tasks))
    how = f"{asked.states} {asked.draws} {asked.seed} {fixed} {names}"
    return short_hash(f"{_VERSION} {library.fingerprint} {spec.name} {spec.fingerprint} {how}")


def _read(place: Path) -> RetrievalCheck | None:
    """A kept check; None where there is none that can be read or it is of an older kind, which is then made again."""
    try:
        values = read_sealed_json(place)
        return _ADAPTER.validate_python(values["check"]) if values["version"] == _VERSION else None
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None


def _keep(place: Path, values: Mapping[str, Any]) -> None:
    """Write what was found; a cache that cannot be written to does without."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, sealed_json(values))
    except OSError as error:
        _log.info("the check was not kept: %s", error)
