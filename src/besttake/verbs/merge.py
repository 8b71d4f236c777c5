"""Join runs of parts of one plan, made apart, into one run (`besttake runs merge`).

The joined run holds the takes that one run of the whole plan would hold, so its digest is that run's. Scores and
verdicts are not copied: `diagnose` with the whole plan finds all takes there, scores them and judges.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from besttake.config import is_tuning, parse_starts
from besttake.errors import RunError
from besttake.files import version
from besttake.takes.key import Row
from besttake.takes.manifest import Extent, Manifest
from besttake.takes.store import Store

_SPLIT = {"policies": "policy", "tasks": "task", "starts": "starts", "seeds": "seeds", "arms": "arms"}
"""What a plan may be split by: the name in a run's extent, and the plan's key."""


@dataclass(frozen=True)
class Merged:
    """The joined run: how many takes it holds, how many failed ones were left out, and the digest of its takes."""

    path: str
    takes: int
    left_out: int
    digest: str


def merge(runs: Sequence[str | Path], out: str | Path, *, command: str = "") -> Merged:
    """Join ``runs``, parts of one plan, as a new run in ``out``; RunError where they do not fit together."""
    if len(runs) < 2:
        raise RunError("name at least two runs to merge")
    if (Path(out) / "run.json").exists():
        raise RunError(f"{out} is a run already; choose another directory with `out`")
    with ExitStack() as closing:
        stores = [closing.enter_context(Store.open(run)) for run in runs]
        manifest = _joined(stores, command)
        _check_takes(stores)
        closing.enter_context(_whole_or_gone(Path(out)))
        joined = closing.enter_context(Store.write(out, manifest))
        for store in stores:
            there = {row.key for row in joined.rows()}
            for row in store.rows():
                if row.status == "done" and row.key not in there:
                    joined.add(store.load(row), row.seconds)
        left_out = len({row.key for store in stores for row in store.rows()} - {row.key for row in joined.rows()})
        return Merged(str(out), len(joined.rows()), left_out, joined.digest())


@contextmanager
def _whole_or_gone(out: Path) -> Iterator[None]:
    """Remove what was made in ``out`` where something goes wrong, as where a part has a damaged take."""
    there = out.exists()
    try:
        yield
    except BaseException:
        if not there:
            shutil.rmtree(out, ignore_errors=True)
        raise


def _joined(stores: Sequence[Store], command: str) -> Manifest:
    """The manifest of all runs together."""
    first = stores[0]
    identity: dict[str, Any] = {}
    for store in stores:
        for name, value in store.manifest.identity.items():
            if identity.setdefault(name, value) != value:
                raise RunError(f"{store.path} does not fit {first.path}: its {name} is another")
        if store.manifest.versions != first.manifest.versions:
            names = sorted(dict(store.manifest.versions.items() ^ first.manifest.versions.items()))
            raise RunError(f"{store.path} does not fit {first.path}: made with another version of {', '.join(names)}")
    plans = [store.manifest.plan for store in stores]
    parts = [store.manifest.extent.model_dump() for store in stores]
    differing = [name for name in _SPLIT if any(part[name] != parts[0][name] for part in parts)]
    if len(differing) > 1:
        raise RunError(
            f"the runs differ in {' and in '.join(differing)}: together they are no plan; split a plan by one of these"
        )
    extent = {name: list(dict.fromkeys(value for part in parts for value in part[name])) for name in _SPLIT}
    extent["starts"].sort()
    plan = dict(plans[0])
    for name in differing:
        key = _SPLIT[name]
        plan[key] = _starts(stores) if name == "starts" else _together([each.get(key) for each in plans])
    skipped = {policy: arms for store in stores for policy, arms in store.manifest.skipped.items()}
    return Manifest(
        besttake=version(), command=command, plan=plan, versions=first.manifest.versions,
        library=first.manifest.library, identity=identity, extent=Extent(**extent), skipped=skipped,
        outgrown=[outgrown for store in stores for outgrown in store.manifest.outgrown],
    )  # fmt: skip


def _starts(stores: Sequence[Store]) -> str:
    """One range of starts; RunError where a part is missing in between, or some are tuning starts and some not."""
    texts = [store.manifest.plan["starts"] for store in stores]
    kinds = {is_tuning(text) for text in texts}
    if len(kinds) > 1:
        raise RunError("some of the runs are on tuning starts and some are not: together they are no plan")
    spans, kind = sorted(map(parse_starts, texts)), "tuning:" if True in kinds else ""
    first, end = spans[0]
    for begin, stop in spans[1:]:
        if begin > end:
            gap = f"{kind}{end}:{begin}"
            raise RunError(f"starts {gap} are in none of the runs: make them first (`starts` {gap})")
        end = max(end, stop)
    return f"{kind}{first}:{end}"


def _together(values: Sequence[Any]) -> Any:
    """Lists joined without repeats; of numbers the largest."""
    if all(isinstance(value, list | tuple) for value in values):
        return list(dict.fromkeys(each for value in values for each in value))
    return max(values)


def _check_takes(stores: Sequence[Store]) -> None:
    """RunError where two runs hold different takes by the same name."""
    known: dict[Any, tuple[Row, Path]] = {}
    for store in stores:
        for row in store.rows():
            if row.status != "done":
                continue
            other, path = known.setdefault(row.key, (row, store.path))
            if other.identity != row.identity:
                key = row.key
                raise RunError(
                    f"{store.path} and {path} hold different takes of {key.task} start {key.start} seed {key.seed}"
                    f" ({key.arm}): they were not made by the same policy and env"
                )
