"""The diagnosis plan: one model for flags and YAML. Every flag has a key of the same name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from besttake import registry
from besttake.errors import ComponentError, PlanError
from besttake.types import Window


def _listed(value: Any) -> Any:
    """A lone string is a list of one; commas separate."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _one_or_many(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def parse_dims(text: Any) -> Any:
    """``"0,1,2"`` -> (0, 1, 2); None and sequences pass."""
    if not isinstance(text, str):
        return text
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError("dimensions are whole numbers with commas between them, e.g. 0,1,2") from None


Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]


class Plan(BaseModel):
    """What to measure, and how to run it. `what` lists the fields that takes depend on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: Names = Field(min_length=1, description="policies to diagnose (URIs)")
    env: Names = Field(min_length=1, description="environments to diagnose them in (URIs)")
    task: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field((), description="only these tasks")
    starts: str = Field("20", description="starts per task: a count, or a range FIRST:END")
    seeds: int = Field(3, ge=1, le=1000, description="takes per start")
    best_of: int | None = Field(None, description="takes that one is kept of, averaged over all subsets (all seeds)")
    arms: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ("base", "cooled", "shuffled", "retrieve")
    window: Window = Field("full", description="full: takes go on after success; else the verdict reads common")
    scorer: str = Field("manifold", description="the scorer that picks: manifold, coverage, or a URI")
    stride: int = Field(5, ge=1, description="score every so many steps")
    demos: str | None = Field(None, description="demonstrations: a library directory or a URI")
    demos_per_task: int = Field(40, ge=1)
    encoder: str | None = Field(None, description="encoder of frames; that of the library, or pixels")
    skip_still: float = Field(0.0, ge=0, description="frames that differ by less (grey levels) share an embedding")
    retrieval: dict[str, Any] = Field(default_factory=dict, description="rule, alpha, weights and variants")
    candidates: int = Field(4, ge=2, description="candidates per replan of the arm rerank")
    probe_states: int = Field(400, ge=0, description="library states that the probe asks (0: no probe)")
    probe_samples: int = Field(3, ge=1, description="samples per state (K)")
    worth: float = Field(3.0, gt=0, lt=100, description="smallest effect worth acting on, in points")
    seed: int = Field(0, ge=0, description="the run seed")
    gripper_dim: int | None = None
    eef_dims: Annotated[tuple[int, ...] | None, BeforeValidator(parse_dims)] = None
    trust_remote_code: bool = False
    workers: int = Field(2, ge=1, le=512)
    batch: int = Field(32, ge=1, le=4096)
    on: Literal["local", "ray"] = "local"

    @model_validator(mode="before")
    @classmethod
    def _short(cls, values: Any) -> Any:
        """``alpha`` and ``rule`` may stand by themselves, as they do on the command line."""
        if not isinstance(values, dict) or not isinstance(values.get("retrieval") or {}, dict):
            return values
        short = {name: values[name] for name in ("alpha", "rule") if values.get(name) is not None}
        rest = {name: value for name, value in values.items() if name not in ("alpha", "rule")}
        return {**rest, "retrieval": {**(values.get("retrieval") or {}), **short}}

    @field_validator("starts", mode="before")
    @classmethod
    def _starts(cls, value: Any) -> str:
        text = str(value).strip()
        parse_starts(text)
        return text

    @field_validator("best_of")
    @classmethod
    def _best_of(cls, value: int | None, info: ValidationInfo) -> int | None:
        seeds = info.data.get("seeds")
        if value is not None and seeds is not None and not min(2, seeds) <= value <= seeds:
            raise ValueError(f"one take is kept of at least {min(2, seeds)} and at most the {seeds} seeds of a start")
        return value

    @property
    def n(self) -> int:
        """N: of so many takes one is kept."""
        return self.seeds if self.best_of is None else self.best_of

    @field_validator("retrieval")
    @classmethod
    def _retrieval(cls, value: dict[str, Any]) -> dict[str, Any]:
        alpha = value.get("alpha", 0.0)
        if isinstance(alpha, bool) or not isinstance(alpha, int | float):
            raise ValueError("alpha is a number between 0 and 1")
        return value

    @field_validator("arms")
    @classmethod
    def _arms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("an arm is named twice")
        try:
            for uri in value:
                registry.check_scheme("arms", uri)
        except ComponentError as error:
            raise ValueError(str(error)) from None
        return value if "base" in value else ("base", *value)

    def chosen_starts(self, offered: range, env: str) -> tuple[int, ...]:
        """The start indexes that ``starts`` picks out of those an env offers."""
        first, end = parse_starts(self.starts)
        if end > len(offered):
            raise PlanError(f"--starts {self.starts}: {env} has {len(offered)} starts per task; ask for at most that")
        return tuple(offered[first:end])


def parse_starts(text: str) -> tuple[int, int]:
    """``"20"`` -> (0, 20); ``"20:60"`` -> (20, 60): positions among the starts an env offers, end excluded."""
    first, colon, end = text.partition(":")
    try:
        span = (int(first), int(end)) if colon else (0, int(first))
    except ValueError:
        raise ValueError(f"{text!r} is neither a count (20) nor a range (20:60)") from None
    if not 0 <= span[0] < span[1]:
        raise ValueError(f"{text!r} holds no start")
    return span


def as_plan(plan: Plan | str | Path) -> Plan:
    """A plan as it is, or read from a YAML file."""
    return plan if isinstance(plan, Plan) else load_plan(Path(plan), {})


def load_plan(path: Path | None, flags: dict[str, Any]) -> Plan:
    """The plan in ``path`` (YAML), overridden by those ``flags`` that are not None."""
    values: dict[str, Any] = {}
    where = "the command line"
    if path is not None:
        where = str(path)
        values = _read_yaml(path)
    values.update({name: value for name, value in flags.items() if value is not None and value != []})
    try:
        return Plan.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][:1]) or "plan"
        raise PlanError(f"{where}: {_explain(name, first)}") from None


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 20:40 as a number of base 60; here it is a range, so it stays text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:int"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.load(path.read_text(), Loader=_Loader)
    except OSError as error:
        raise PlanError(
            f"{path}: {error.strerror}; give a plan file, or use flags (besttake diagnose --help)"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        raise PlanError(f"{path}: not valid YAML{line}; see `besttake diagnose --help` for an example") from error
    if not isinstance(loaded, dict):
        raise PlanError(f"{path}: a plan is a mapping of keys to values, this is a {type(loaded).__name__}")
    return {str(key).replace("-", "_"): value for key, value in loaded.items()}


def _explain(name: str, error: Any) -> str:
    kind, given = error["type"], error.get("input")
    if kind == "missing":
        return (
            f"--{name.replace('_', '-')} is missing; e.g. --{name} testbed:half"
            if name == "policy"
            else (f"--{name.replace('_', '-')} is missing; e.g. --{name} testbed")
        )
    if kind == "extra_forbidden":
        from difflib import get_close_matches

        near = get_close_matches(name, Plan.model_fields, n=1)
        return f"unknown key {name!r}" + (f"; did you mean {near[0]!r}?" if near else "; see besttake diagnose --help")
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{name} = {given!r}: {message}"
