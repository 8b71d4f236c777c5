"""Choose the retrieval settings of a policy before its first take: those of the plan, or what the check finds best.

The result of the check (`check`) is stored in the user's cache, by library and policy, so that every later run of that
policy with that library has the same settings. It is never stored in the library itself, because a library that someone
else made could claim results that were never measured.
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
    """The retrieval settings of a policy's takes, the check behind them, and the arms that are not worth a take."""

    config: RetrievalConfig
    check: RetrievalCheck | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def choose_retrieval(
    name: str, policy: Policy, plan: Plan, envs: Mapping[str, EnvSpec], library: Library | None, base: RetrievalConfig,
    reporter: Reporter,
) -> Choice:  # fmt: skip
    """Choose the retrieval settings of ``policy``, called ``name``; ``base`` has those of ``plan``.

    A plan that gives rule, noise and prior gets exactly these, and the check is only for the report. Otherwise the
    check chooses what the plan leaves open. If no prior helps, the arms that retrieve are left out, unless the plan
    names its arms or gives other retrieval settings than the noise.
    """
    specs = specs_of(plan.arms)
    retrieving = tuple(uri for uri, spec in specs.items() if "retrieval" in spec.settings)
    has_settings = retrieving or any("noise" in spec.settings for spec in specs.values())
    able = policy.spec.cools or policy.spec.warm_start  # a policy behind a server, say, is neither
    if library is None or not (has_settings and able) or not plan.check_states:
        return Choice(base)
    given, settled = plan.retrieval.given(), _is_settled(plan)
    check = check_for(policy, plan, envs, library, reporter)
    note = f"{name}: {words.check_sentence(check)}"
    if check.reason or settled:
        runs = f"{f'it runs as {words.retrieval_name(base)}' if retrieving else 'cooling runs'} at noise {base.noise:g}"
        unchecked = "" if settled else f"; {runs}, without a check"
        return Choice(base, check, notes=(note + unchecked,) if check.reason or not check.helps else ())
    tasks = [task for env in envs.values() for task in plan.chosen_tasks(env)]
    config = config_of(check, base, tasks)
    if not check.helps and retrieving and "arms" not in plan.model_fields_set and not {*given} - {"noise"}:
        arms = " and ".join(runnable(policy.spec, retrieving)[0])
        hint = f": {arms} not run; name them in `arms` to run them all the same" if arms else ""
        return Choice(config, check, retrieving, (f"{note}{hint}",))
    return Choice(config, check, notes=(note,))


def check_for(
    policy: Policy, plan: Plan, envs: Mapping[str, EnvSpec], library: Library, reporter: Reporter
) -> RetrievalCheck:
    """Check the retrieval settings that ``plan`` leaves open, or the only configuration if it leaves none open."""
    given = plan.retrieval.given()
    fixed = RetrievalConfig.from_dict(given).to_dict() if _is_settled(plan) else dict(given)
    if plan.event_angle is not None:
        fixed["angle"] = None  # the library was built with the plan's angle, so no other is tried
    tasks = [task for env in envs.values() for task in plan.chosen_tasks(env)]
    settings = CheckSettings(plan.check_states, seed=plan.seed, fixed=fixed, patience=plan.patience)
    return load_or_check(policy, library, tasks, settings, reporter)


def _is_settled(plan: Plan) -> bool:
    """Whether the plan gives rule, noise and prior, so that the check has nothing to choose."""
    return {"rule", "noise", "prior"} <= {*plan.retrieval.given()}


def load_or_check(
    policy: Policy, library: Library, tasks: Sequence[TaskSpec], settings: CheckSettings, reporter: Reporter
) -> RetrievalCheck:
    """Read the check of ``policy`` from the cache, or make it and store it there."""
    file = (
        cache_dir() / FOLDER / short_hash(library.fingerprint) / f"{_key(policy.spec, library, tasks, settings)}.json"
    )
    cached = _read(file)
    if cached is not None:
        _log.info("check of %s: read from %s", policy.spec.name, file)
        return cached
    with reporter.stage("check", 20 * settings.states * settings.draws, "samples") as stage:
        check = check_retrieval_of(policy, library, tasks, settings, stage.advance)
    if not check.reason:
        _write(file, {"policy": policy.spec.name, "check": asdict(check), "version": _VERSION})
    return check


def config_of(check: RetrievalCheck, base: RetrievalConfig, tasks: Sequence[TaskSpec]) -> RetrievalConfig:
    """The settings that a check recommends; if none helps, those with the lowest error, in case the arm runs anyway."""
    if not check.tried:
        return base if check.noise is None else replace(base, noise=check.noise)
    if not check.helps:
        return min(check.tried, key=lambda checked: value_or_inf(checked.added)).config
    config = check.chosen or replace(simplest(check.tried).config, prior=0.0)
    priors = {
        name: check.groups[task.group].prior
        for task in tasks if task.group in check.groups
        for name in (task.name, task.instruction) if name  # a server may know only the instruction
    }  # fmt: skip
    return config.changed({"by_task": {name: prior for name, prior in priors.items() if prior != config.prior}})


def _key(spec: PolicySpec, library: Library, tasks: Sequence[TaskSpec], settings: CheckSettings) -> str:
    fixed = json.dumps(dict(settings.fixed), sort_keys=True)
    names = " ".join(sorted(task.name for task in tasks))
    how = f"{settings.states} {settings.draws} {settings.seed} {fixed} {names}"
    return short_hash(f"{_VERSION} {library.fingerprint} {spec.name} {spec.fingerprint} {how}")


def _read(file: Path) -> RetrievalCheck | None:
    """A stored check; None if there is none, it cannot be read, or it is of an older version."""
    try:
        values = read_sealed_json(file)
        return _ADAPTER.validate_python(values["check"]) if values["version"] == _VERSION else None
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None


def _write(file: Path, values: Mapping[str, Any]) -> None:
    """Store a check, unless the cache cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, sealed_json(values))
    except OSError as error:
        _log.info("the check was not stored: %s", error)
