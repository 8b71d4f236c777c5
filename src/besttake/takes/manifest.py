"""``run.json``: what a run was planned as, and with which versions and fingerprints it is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from besttake.errors import RunError, one_line
from besttake.files import read_sealed_json, sealed_json, short_hash

SCHEMA = 2
SPEED = frozenset({"workers", "batch", "patience", "on", "replicas", "gpus_per_replica"})
"""Keys of a plan that change no number."""


class Extent(BaseModel):
    """Which takes are planned: every combination. A run may grow, so a later plan must contain all of an earlier one.

    A task is written with its env, ``"testbed:pick pick"``.
    """

    policies: list[str] = []
    tasks: list[str] = []
    starts: list[int] = []
    seeds: list[int] = []
    arms: list[str] = []


class Manifest(BaseModel):
    """``identity`` is what takes depend on, by name: seeds, settings, fingerprints of envs, policies and library.

    A run goes on only where it is the same. ``run`` is a hash of what the run was begun with, and stands in its files.
    ``skipped`` has the planned arms that each policy cannot run. ``library`` is the path of the demonstrations.
    ``outgrown`` has the extents with which takes were made before the run was given more starts or seeds.
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
        """The manifest of a run; RunError when it is damaged or of a newer version."""
        try:
            values = read_sealed_json(directory / "run.json")
            if int(values["schema"]) <= SCHEMA:
                return cls.model_validate(values)
        except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise RunError(
                f"{directory}/run.json is damaged ({one_line(error, 100)}); choose another directory with `out`"
            ) from error
        raise RunError(
            f"{directory} was written by a newer BestTake (schema {values['schema']}, this one knows {SCHEMA});"
            " upgrade besttake"
        )

    def to_bytes(self) -> bytes:
        """The content of ``run.json``."""
        return sealed_json(self.model_dump(mode="json", by_alias=True), indent=1)

    def begun(self) -> Manifest:
        """The manifest of a new run, with its name in ``run``."""
        values = self.model_dump(mode="json", include={"besttake", "versions", "identity", "extent"})
        values["plan"] = {name: value for name, value in self.plan.items() if name not in SPEED}
        return self.model_copy(update={"run": short_hash(json.dumps(values, sort_keys=True))})

    def continued_by(self, new: Manifest, directory: Path, *, begun: bool) -> Manifest:
        """``new``, with what it does not know of the identity; RunError when the run holds another plan.

        ``begun`` says that takes were made with this one; before the first, any plan will do.
        """
        if not begun:
            return new.model_copy(update={"run": self.run})
        for name in sorted(set(self.identity) & set(new.identity)):
            check_same(directory, name, self.identity[name], new.identity[name])
        planned = new.extent.model_dump()
        for name, values in self.extent.model_dump().items():
            gone = [value for value in values if value not in planned[name]]
            if gone:
                raise _another_plan(directory, f"its {name} include {_short(gone[0])}, yours do not")
        grows = (self.extent.starts, self.extent.seeds) != (new.extent.starts, new.extent.seeds)
        outgrown = [*self.outgrown, *([self.extent] if grows else [])]
        kept = {"run": self.run, "identity": {**self.identity, **new.identity}, "outgrown": outgrown}
        return new.model_copy(update=kept)


def check_same(directory: Path, name: str, old: Any, new: Any) -> None:
    """RunError when an entry of the identity is not what the run was made with."""
    if old != new:
        if name.startswith("env ") and isinstance(old, list) and isinstance(new, list) and old[:1] == new[:1]:
            raise _another_plan(directory, "of its takes and yours only one kind goes on after success (see `window`)")
        if name.startswith(("env ", "policy ")):  # fingerprints tell a reader nothing
            raise _another_plan(directory, f"its {name} has changed since, in its code or its settings")
        raise _another_plan(directory, f"its {name} is {_short(old)}, yours is {_short(new)}")


def _another_plan(directory: Path, difference: str) -> RunError:
    return RunError(f"{directory} holds another plan: {difference}; choose another directory with `out`")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
