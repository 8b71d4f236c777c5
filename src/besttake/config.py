"""The plan of a diagnosis: all settings, with their types, ranges, help texts and defaults.

Every field of `Plan` is a key of a YAML plan and a flag of the command line, and a row of the table in docs/plan.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict

from besttake.arms import BASE, COOLED, RETRIEVE, SHUFFLED
from besttake.errors import ComponentError, PlanError, one_line
from besttake.files import read_regular
from besttake.types import EnvSpec, TaskSpec, Window


def as_tuple(value: Any) -> Any:
    """Turn a list or a single string into a tuple."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def count(most: int, value: Any) -> int | str:
    """Read a number from 1 to ``most``, or ``auto``."""
    text = str(value).strip()
    if text == "auto":
        return text
    if isinstance(value, bool) or not text.isdecimal() or not 1 <= int(text[:6]) <= most:
        raise ValueError(f"must be a number from 1 to {most}, or auto")
    return int(text)


def split(value: Any) -> Any:
    """Turn a list, or a string with commas, into a tuple."""
    return as_tuple([part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value)


def parse_dims(text: Any) -> Any:
    """``"0,1,2"`` -> (0, 1, 2); a list becomes a tuple."""
    if not isinstance(text, str):
        return as_tuple(text)
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError("dimensions are whole numbers with commas between them, e.g. 0,1,2") from None


_TUNING = "tuning:"


def is_tuning(starts: int | str) -> bool:
    """Whether ``starts`` are an env's tuning starts, as in ``tuning:40``: those for choosing and training."""
    return str(starts).strip().startswith(_TUNING)


def parse_starts(value: int | str) -> tuple[int, int]:
    """``"20"`` -> (0, 20); ``"20:60"`` -> (20, 60): positions among the starts of an env, without the end.

    After ``tuning:`` they are positions among its tuning starts.
    """
    text = str(value).strip().removeprefix(_TUNING)
    first, colon, end = text.partition(":")
    try:
        span = (int(first), int(end)) if colon else (0, int(first))
    except ValueError:
        raise ValueError(f"{text[:40]!r} is neither a count (20) nor a range (20:60)") from None
    if not 0 <= span[0] < span[1]:
        raise ValueError(f"{text[:40]!r} holds no start")
    return span


def check_worth(worth: float) -> None:
    """PlanError unless ``worth`` is a valid number of percentage points."""
    try:
        points(worth)
    except ValueError as error:
        raise PlanError(f"`worth` {worth:g}: {error}") from None


_LEAST_WORTH = 0.25


def points(worth: float) -> float:
    """Check a number of percentage points; ValueError if it is out of range or looks like a fraction."""
    if 0 < worth < _LEAST_WORTH:
        raise ValueError(f"is in points, and no run can show fewer than {_LEAST_WORTH}; did you mean {100 * worth:g}?")
    if not 0 < worth < 100:
        raise ValueError("must be above 0 and below 100 points, e.g. 3")
    return worth


Uris = Annotated[Sequence[str], BeforeValidator(as_tuple)]
REPEATABLE: JsonDict = {"repeatable": True}
"""Marks a field whose flag may be given several times."""
SCORER = "coverage"
"""The default scorer, the best without training in docs/scorers.md."""


class Retrieval(BaseModel):
    """Settings of the arm ``retrieve``: how it finds a demonstrated chunk and how the policy uses it.

    A setting that is None is chosen by the check on held-out demonstrations; without that check, it has the default of
    `besttake.core.retrieve.RetrievalConfig`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rule: str | None = Field(
        None, description="Which demonstrated chunk to retrieve: next, current or frame (default: the check chooses)."
    )
    weights: tuple[float, float, float] | None = Field(
        None, description="Weights of image, action and state in the distance."
    )
    noise: float | None = Field(
        None,
        description="How much of its noise the policy keeps, 0 to 1, in all arms but base (default: the check chooses,"
        " else 0.1).",
    )
    prior: float | None = Field(
        None,
        description="How much of the retrieved chunk is added to the noise, 0 to 1 (default: the check chooses, else"
        " 0.1).",
    )
    onset_alignment: bool | None = Field(None, description="Match the state at which the current event began.")
    rerank: int | None = Field(
        None, description="Compare only this many candidates with the nearest images in full (0: all)."
    )
    gripper_gating: bool | None = Field(None, description="Match only states with the same gripper phase.")
    reliability: float | None = Field(None, description="Prefer chunks close to the policy's own prediction.")
    lead: int | None = Field(None, description="How many events ahead the rule `next` looks.")

    def given(self) -> dict[str, Any]:
        """Return the settings that are not None."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _check(self) -> Retrieval:
        from besttake.core.retrieve import RetrievalConfig

        RetrievalConfig.from_dict(self.given())
        return self


class Plan(BaseModel):
    """All settings of a diagnosis: what to measure, and how to run it.

    Every field is also a key of a YAML plan and a flag of ``besttake diagnose``; docs/plan.md explains each. Only
    ``policy`` and ``env`` are required; both accept one URI or a list. A plan cannot be changed once it is made.

    Raises:
        PlanError: A key is unknown or a value is out of range. The message names the first wrong key.

    Examples:
        >>> plan = Plan(policy=["testbed:half", "testbed:alt"], env="testbed:pick", starts=60, arms="base,cooled")
        >>> plan.seeds, plan.arms
        (3, ('base', 'cooled'))
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    policy: Uris = Field(min_length=1, description="Policy to diagnose.", json_schema_extra=REPEATABLE)
    env: Uris = Field(min_length=1, description="Environment to diagnose it in.", json_schema_extra=REPEATABLE)
    name: Uris = Field(
        (), description="What to call the policy in all that is shown (default: its URI).", json_schema_extra=REPEATABLE
    )
    task: Annotated[Sequence[str], BeforeValidator(split)] = Field(
        (), description="Run only this task (default: all tasks of the environment).", json_schema_extra=REPEATABLE
    )
    demos: str | None = Field(
        None, description="Demonstrations: a library, a path to data, or a URI such as lerobot:org/name or rlds:DIR."
    )
    demos_per_task: int = Field(40, ge=1, description="Use at most this many demonstrations per task.")
    starts: int | str = Field(
        "20",
        description="Starts per task: a count, or a range FIRST:END; tuning:COUNT uses starts"
        " that are never evaluated on.",
    )
    until: Literal["decided"] | None = Field(
        None,
        description="Add starts, in random order, until every question is decided; arms that are settled stop early."
        " `starts` is then the most per task (default 500).",
    )
    budget: int | None = Field(
        None, ge=1, description="With `until`: play at most this many takes (default: 1500 per policy and task group)."
    )
    seeds: int = Field(3, ge=1, le=1000, description="Takes per start.")
    best_of: int | None = Field(None, description="Measure picking the best of this many takes (default: all seeds).")
    arms: Annotated[tuple[str, ...], BeforeValidator(split)] = Field(
        (BASE, COOLED, SHUFFLED, RETRIEVE),
        description="Ways of running the policy, with commas: base, cooled, shuffled, retrieve, rerank.",
    )
    window: Window = Field(
        "full",
        description="Frames to score: full (takes go on after success), common (up to the end of the shortest take) or"
        " episode (up to success, which gives the outcome away, so the verdict reads common instead).",
    )
    scorer: Uris = Field(
        (SCORER,), min_length=1, json_schema_extra=REPEATABLE,
        description="Scorer that picks a take: coverage, manifold, … The first one picks; the others are measured too."
        " Without demonstrations smoothness picks.",
    )  # fmt: skip
    stride: int = Field(5, ge=1, description="Score one frame every N steps.")
    encoder: str | None = Field(
        None, description="Encoder that embeds frames, e.g. dinov2+siglip (default: that of the library, else pixels)."
    )
    retrieval: Retrieval = Field(Retrieval(), description="Retrieval settings (see below).")
    check_states: int = Field(
        240, ge=0, description="Number of demonstrated states on which noise, prior and rule are chosen; 0 skips it."
    )
    candidates: int = Field(4, ge=2, description="Candidates that the arm rerank samples at each replan.")
    probe_states: int = Field(
        400,
        ge=0,
        description="Number of demonstrated states on which the demonstration-fit error is measured; 0 skips it.",
    )
    probe_samples: int = Field(3, ge=1, description="Policy samples per probed state.")
    worth: Annotated[float, AfterValidator(points)] = Field(
        3.0, description="Smallest effect worth acting on, in percentage points."
    )
    gripper_dim: int | None = Field(None, description="Index of the gripper in the action, if the data does not say.")
    gripper_threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="Gripper command that separates open from closed (default: the middle of those in the data).",
    )
    gripper_open: float | None = Field(
        None, allow_inf_nan=False, description="Gripper command that opens, if the data does not say."
    )
    event_angle: float | None = Field(
        None, gt=0, lt=180, description="Turn of the end effector that counts as an event, in degrees (default 60)."
    )
    event_turns: Literal["spaced", "every"] = Field(
        "spaced",
        description="Which sharp turns count as events: spaced (of a moving arm, at least 5 steps after the last event)"
        " or every (each one, as the paper's S2 says).",
    )
    eef_dims: Annotated[Sequence[int] | None, BeforeValidator(parse_dims)] = Field(
        None, description="Indexes of the end-effector position in the state, e.g. 0,1,2, if the data does not say."
    )
    trust_remote_code: bool = Field(
        False, description="Allow checkpoints, and envs from the hub, to run code that they contain."
    )
    workers: Annotated[int | str, BeforeValidator(partial(count, 512))] = Field(
        "auto", description="Simulator processes per replica; auto is one per core, as memory allows."
    )
    batch: Annotated[int | str, BeforeValidator(partial(count, 4096))] = Field(
        "auto", description="Takes in progress at once per replica; auto keeps workers and policy busy."
    )
    replicas: Annotated[int | str, BeforeValidator(partial(count, 1024))] = Field(
        "auto", description="Copies of the policy, each with its own workers; auto is one per GPU. Several need Ray."
    )
    patience: float | None = Field(
        None, gt=0,
        description="Replace a worker that does not answer for this many seconds (default: 300, doubled each time),"
        " and end the run when a policy or an encoder does not (default: 3000).",
    )  # fmt: skip
    on: Literal["local", "ray"] = Field(
        "local",
        description="Where replicas run: local (this machine), or ray (the cluster at RAY_ADDRESS, else this machine).",
    )
    gpus_per_replica: float | None = Field(
        None, ge=0, le=64,
        description="GPUs per replica on Ray; with 0.5, two replicas share one (default: 1, or 0 if there are none).",
    )  # fmt: skip
    seed: int = Field(0, ge=0, description="Seed of the run: the same seed gives the same takes.")

    @model_validator(mode="wrap")
    @classmethod
    def _one_line(cls, values: Any, handler: Callable[[Any], Plan]) -> Plan:
        """Raise a PlanError that names the first wrong key."""
        try:
            return handler(_completed(values))
        except ValidationError as error:
            problems = error.errors()
            absent = [problem for problem in problems if problem["type"] == "missing"]
            if len(absent) > 1:
                raise PlanError("`policy` and `env` are missing; e.g. `policy` testbed:half `env` testbed") from None
            raise PlanError(_explain(problems[0])[:_MOST_LETTERS]) from None

    @field_validator("name")
    @classmethod
    def _name(cls, value: Sequence[str], info: ValidationInfo) -> Sequence[str]:
        policies = info.data.get("policy", value)
        if value and (len(value) != len(policies) or len({*value}) != len(value)):
            raise ValueError(f"name each of the {len(policies)} policies once, in the same order")
        return value

    @field_validator("starts", mode="before")
    @classmethod
    def _starts(cls, value: Any) -> str:
        parse_starts(value)
        return str(value).strip()

    @field_validator("budget")
    @classmethod
    def _budget(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("until", "decided") is None:
            raise ValueError("a budget is for a run until decided: give `until` decided, too")
        return value

    @field_validator("best_of")
    @classmethod
    def _best_of(cls, value: int | None, info: ValidationInfo) -> int | None:
        seeds = info.data.get("seeds")
        if value is not None and seeds is not None and not min(2, seeds) <= value <= seeds:
            raise ValueError(f"must be at least {min(2, seeds)} and at most {seeds}, the number of seeds")
        return value

    @field_validator("arms")
    @classmethod
    def _arms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from besttake import registry  # here, so that reading a plan loads no component

        if len(set(value)) != len(value):
            raise ValueError("an arm is named twice")
        try:
            for uri in value:
                registry.check_scheme("arms", uri)
        except ComponentError as error:
            raise ValueError(str(error)) from None
        return value if BASE in value else (BASE, *value)

    @field_serializer("scorer")
    def _one_or_several(self, value: Sequence[str]) -> str | list[str]:
        return value[0] if len(value) == 1 else list(value)

    @field_serializer("retrieval")
    def _given(self, value: Retrieval) -> dict[str, Any]:
        return value.given()

    @property
    def names(self) -> dict[str, str]:
        """The name of each policy, by its URI."""
        return dict(zip(self.policy, self.name or self.policy, strict=True))

    @property
    def n(self) -> int:
        """The number of takes from which one is picked: ``best_of``, or all seeds."""
        return self.seeds if self.best_of is None else self.best_of

    def offered(self, env: EnvSpec) -> range:
        """Return the starts of ``env`` to choose from: tuning starts for ``tuning:COUNT``, else evaluation starts."""
        return env.tuning if is_tuning(self.starts) else env.starts

    def chosen_starts(self, offered: range, env: str) -> tuple[int, ...]:
        """Return the start indexes that ``starts`` chooses from those of an environment (`offered`)."""
        first, end = parse_starts(self.starts)
        if self.until is not None:
            end = min(end, len(offered))
        if end > len(offered):
            raise PlanError(f"`starts` {self.starts}: {env} has {len(offered)} starts per task; ask for at most that")
        return tuple(offered[first:end])

    def chosen_tasks(self, env: EnvSpec) -> tuple[TaskSpec, ...]:
        """Return the tasks of ``env`` that the plan names, or all of its tasks if the plan names none."""
        return tuple(task for task in env.tasks if not self.task or task.name in self.task)


def _completed(values: Any) -> Any:
    """Move ``noise``, ``prior`` and ``rule`` into ``retrieval``, and let a run until decided have up to 500 starts.

    500 is the number of starts that the test of such a run is designed for.
    """
    if not isinstance(values, Mapping):
        return values
    if values.get("until") is not None and values.get("starts") is None:
        values = {**values, "starts": "500"}
    short = ("noise", "prior", "rule")
    if not any(name in values for name in (*short, "retrieval")):
        return values
    rest = {name: value for name, value in values.items() if name not in short}
    named = {name: values[name] for name in short if values.get(name) is not None}
    retrieval = rest.get("retrieval") or {}
    settings = retrieval.given() if isinstance(retrieval, Retrieval) else retrieval
    return {**rest, "retrieval": {**settings, **named}} if isinstance(settings, Mapping) else values


def as_plan(plan: Plan | str | Path | None, keys: Mapping[str, Any] | None = None) -> Plan:
    """Return a plan, or the plan in a YAML file, with ``keys`` changed; without a plan, the plan of the keys alone."""
    if isinstance(plan, Plan):
        return Plan.model_validate({**plan.model_dump(exclude_unset=True), **keys}) if keys else plan
    return load_plan(None if plan is None else Path(plan), keys or {})


def load_plan(path: Path | None, flags: Mapping[str, Any]) -> Plan:
    """Return the plan in a YAML file, overridden by those ``flags`` that are not None."""
    changes = {name: value for name, value in flags.items() if value is not None and value != []}
    if path is None:
        return Plan.model_validate(changes)
    try:
        values = read_yaml(path)
        plan = Plan.model_validate({**values, **changes})
        _check_harmless(plan, values.keys() - changes.keys(), path)
    except (PlanError, ComponentError) as error:
        raise PlanError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
    return plan


_FAMILIES = {
    "policy": "policies", "env": "envs", "demos": "demos", "encoder": "encoders", "arms": "arms", "scorer": "scorers"
}  # fmt: skip


def _check_harmless(plan: Plan, keys: Collection[str], path: Path) -> None:
    """ComponentError if one of the ``keys`` that were read from ``path`` names code to run."""
    from besttake import registry  # here, so that reading a plan loads no component

    if "trust_remote_code" in keys and plan.trust_remote_code:
        registry.check_trusted(path, "trust_remote_code: true")
    for key in sorted(keys):
        value = getattr(plan, key, None)
        for text in value if isinstance(value, tuple | list) else (value,):
            if isinstance(text, str):
                registry.check_harmless(_FAMILIES.get(key, key), registry.FromFile(text, path))


_MOST_LETTERS = 1000


def _explain(error: Any) -> str:
    """Explain in one line what is wrong with a key of a plan."""
    kind, value, path = error["type"], error.get("input"), [str(part) for part in error["loc"]]
    name = path[0] if path else "plan"
    if kind == "missing":
        return f"`{name}` is missing; e.g. `{name}` {'testbed:half' if name == 'policy' else 'testbed'}"
    if kind == "extra_forbidden":
        keys = Plan.model_fields if len(path) == 1 else Retrieval.model_fields
        near = get_close_matches(path[-1], keys, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(keys)}"
        return f"unknown key {'.'.join(path)!r}; {hint}"
    if name in _FAMILIES and kind in ("is_instance_of", "string_type"):
        hint = "give a URI, e.g. python:my_module:make, because each process makes its own"
        return f"`{name}` is a {type(value).__name__}; {hint}"
    message = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{'.'.join(path) or name} = {_shown(value)}: {message}"


def _shown(value: Any, most: int = 120) -> str:
    """A value from a file, shortened."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}…"


_MOST_BYTES = 1 << 20


class _Loader(yaml.SafeLoader):
    """Leaves 20:40 and 2001-02-03 as text, which YAML 1.1 reads as a number of base 60 and a date."""


_LEFT_TEXT = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_TEXT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))


def bounded_yaml(path: Path) -> Any:
    """Read a YAML file that is not trusted, of limited size; raises OSError or whatever decoding and PyYAML raise."""
    return yaml.load(read_regular(path, _MOST_BYTES).decode("utf-8"), Loader=_Loader)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the keys and values of a plan file; PlanError if it cannot be read."""
    try:
        loaded = bounded_yaml(path)
    except OSError as error:
        raise PlanError(f"{error.strerror}; name a plan file") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = f" at line {mark.line + 1}" if mark else ""
        reason = f" ({problem[:80]})" if problem else ""
        raise PlanError(f"not valid YAML{place}{reason}; docs/plan.md shows an example") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        # Raised by PyYAML's constructors, e.g. for `!!bool maybe` or an integer of 5000 digits.
        raise PlanError(f"it holds a value that cannot be read ({one_line(error, 100)}); see docs/plan.md") from error
    if not isinstance(loaded, dict):
        raise PlanError(f"a plan is a mapping of keys to values, this is a {type(loaded).__name__}")
    return {str(key).replace("-", "_"): value for key, value in loaded.items()}
