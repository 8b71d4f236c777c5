"""``run.json``: the plan of a run, and the versions and fingerprints with which it is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from besttake.errors import RunError, one_line
from besttake.files import read_sealed_json, sealed_json, short_hash

SCHEMA = 2
SPEED = frozenset({"workers", "batch", "patience", "on", "replicas", "gpus_per_replica"})
"""Keys of a plan that do not change any result."""


class Extent(BaseModel):
    """Which takes are planned: every combination. A run may only grow, so a later plan contains all of an earlier one.

    A task is written with its env, ``"testbed:pick pick"``.
    """

    policies: list[str] = []
    tasks: list[str] = []
    starts: list[int] = []
    seeds: list[int] = []
    arms: list[str] = []


class Manifest(BaseModel):
    """The content of ``run.json``.

    ``identity`` is what takes depend on, by name: seeds, settings, and fingerprints of envs, policies and library. A
    run is continued only with the same identity. ``run`` is a hash of the first manifest, and is written into all files
    of the run. ``skipped`` has the planned arms that each policy cannot run. ``library`` is the path of the
    demonstrations. ``outgrown`` has earlier extents, with which takes were made before the run was given more starts or
    seeds.
    """

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    schema_version: int = Field(SCHEMA, alias="schema")
    run: str = ""
    besttake: str = ""
    command: str = ""
    plan: dict[str, Any] = {}
    versions: dict[str, str] = {}
    library: str | None = None
    identity: dict[str, Any] = {}
    extent: Extent = Extent()
    skipped: dict[str, list[str]] = {}
    outgrown: list[Extent] = []

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Read the manifest of a run; RunError if it is damaged or of another schema."""
        try:
            values = read_sealed_json(directory / "run.json")
            if int(values["schema"]) == SCHEMA:
                return cls.model_validate(values)
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise RunError(
                f"{directory}/run.json is damaged ({one_line(error, 100)}); choose another directory with `out`"
            ) from error
        raise RunError(
            f"{directory}/run.json is of schema {values['schema']}, this BestTake reads {SCHEMA}; use the version that"
            " made it, or choose another directory with `out`"
        )

    def to_bytes(self) -> bytes:
        """The content of ``run.json``."""
        return sealed_json(self.model_dump(mode="json", by_alias=True), indent=1)

    def named(self) -> Manifest:
        """Return the manifest with the name of the new run in ``run``."""
        values = self.model_dump(mode="json", include={"besttake", "versions", "identity", "extent"})
        values["plan"] = {name: value for name, value in self.plan.items() if name not in SPEED}
        return self.model_copy(update={"run": short_hash(json.dumps(values, sort_keys=True))})

    def continued_by(self, new: Manifest, directory: Path, *, begun: bool) -> Manifest:
        """Return ``new`` with the whole identity of the run; RunError if the run holds another plan.

        ``begun`` says whether the run has takes; before the first one, any plan is accepted.
        """
        if not begun:
            return new.model_copy(update={"run": self.run})
        for name in sorted(set(self.identity) & set(new.identity)):
            check_same_identity(directory, name, self.identity[name], new.identity[name])
        planned = new.extent.model_dump()
        for name, values in self.extent.model_dump().items():
            if gone := [value for value in values if value not in planned[name]]:
                raise _another_plan(directory, f"its {name} include {_short(gone[0])}, yours do not")
        grows = (self.extent.starts, self.extent.seeds) != (new.extent.starts, new.extent.seeds)
        outgrown = [*self.outgrown, *([self.extent] if grows else [])]
        identity = {**self.identity, **new.identity}
        return new.model_copy(update={"run": self.run, "identity": identity, "outgrown": outgrown})


def check_same_identity(directory: Path, name: str, old: Any, new: Any) -> None:
    """RunError unless an entry of the identity is still the one that the run was made with."""
    if old != new:
        if name.startswith("env ") and isinstance(old, list) and isinstance(new, list) and old[:1] == new[:1]:
            raise _another_plan(directory, "only one of the two plays on after success (see `window`)")
        if name.startswith(("env ", "policy ")):  # fingerprints tell a reader nothing
            raise _another_plan(directory, f"its {name} has changed since, in its code or its settings")
        raise _another_plan(directory, f"its {name} is {_short(old)}, yours is {_short(new)}")


def _another_plan(directory: Path, difference: str) -> RunError:
    return RunError(f"{directory} holds another plan: {difference}; choose another directory with `out`")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
