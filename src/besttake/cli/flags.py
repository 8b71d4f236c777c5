"""Flags of commands: those of a plan, made from the fields of `besttake.config.Plan`, and those that commands share.

``python -m besttake.cli.flags`` prints the fields as the tables of docs/plan.md.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from besttake import registry
from besttake.config import Plan, Retrieval
from besttake.errors import PlanError

Flags = Mapping[str, Any]
"""The keys of a plan that were given as flags, with their values."""

_FIELDS: dict[str, FieldInfo] = {
    **{name: field for name, field in Plan.model_fields.items() if name != "retrieval"},
    **{name: Retrieval.model_fields[name] for name in ("noise", "prior", "rule")},
}

_GROUPS = {
    "Policy, environment and data": ("policy", "name", "env", "task", "demos", "demos_per_task"),
    "How much to run": ("starts", "seeds", "arms", "worth", "until", "budget"),
    "Scoring and selection": ("scorer", "best_of", "window", "stride", "encoder"),
    "Retrieval and cooling": ("noise", "prior", "rule", "candidates"),
    "Measured on demonstrations, before the first take": ("check_states", "probe_states", "probe_samples"),
    "If the data does not say": (
        "gripper_dim", "gripper_threshold", "gripper_open", "event_angle", "event_turns", "eef_dims",
    ),
    "Speed and scale": ("workers", "batch", "replicas", "on", "gpus_per_replica", "patience"),
    "Randomness and trust": ("seed", "trust_remote_code"),
}  # fmt: skip
_VALUES = {
    "policy": "URI", "name": "NAME", "env": "URI", "demos": "PATH|URI", "encoder": "URI", "scorer": "URI",
    "task": "TASK", "arms": "ARM,…", "starts": "N|FIRST:END", "eef_dims": "N,N,N", "worth": "POINTS", "budget": "TAKES",
    "patience": "SECONDS", "event_angle": "DEGREES", "rule": "next|current|frame",
    "workers": "N|auto", "batch": "N|auto", "replicas": "N|auto",
}  # fmt: skip
"""The placeholder of a flag's value in the help."""


def _metavar(name: str) -> str | None:
    """Return the placeholder of a flag's value: from `_VALUES`, else its choices."""
    kinds = [_FIELDS[name].annotation, *get_args(_FIELDS[name].annotation)]
    choices = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    return _VALUES.get(name) or "|".join(choices) or None


def plan_option(name: str, help: str = "", group: str | None = None) -> Any:
    """Return the typer option of the plan's field ``name``; ``help`` replaces the description of the field."""
    field = _FIELDS[name]
    default = f" (default {value})." if (value := _default(field)) else "."
    meaning = re.sub(r"`(\w+)`", lambda key: _flag(key[1]) if key[1] in _FIELDS else key[0], field.description or "")
    text = f"{meaning.removesuffix('.')}{default}{' Repeatable.' if _repeatable(field) else ''}"
    least: Any = next((rule.ge for rule in field.metadata if isinstance(rule, Ge)), None)
    most: Any = next((rule.le for rule in field.metadata if isinstance(rule, Le)), None)
    return typer.Option(
        _flag(name), help=help or text, show_default=False, min=least, max=most,
        metavar=_metavar(name), rich_help_panel=group,
    )  # fmt: skip


def plan_flags(*names: str, helps: Mapping[str, str] | None = None) -> Callable[[Callable[..., None]], Any]:
    """Decorate a command with the flags of the plan's fields ``names`` (default: all).

    The command receives the flags that were used as its parameter ``given``. ``helps`` replaces help texts.
    """
    chosen, texts = names or tuple(_FIELDS), helps or {}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        others = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "given"]
        arguments = [p for p in others if is_argument(p)]
        order = [name for names in _GROUPS.values() for name in names]
        flags = [_parameter(name, texts.get(name, "")) for name in sorted(chosen, key=order.index)]
        options = [p.replace(kind=p.KEYWORD_ONLY) for p in others if not is_argument(p)]

        @wraps(command)
        def called(**values: Any) -> None:
            given = {name: values.pop(name) for name in chosen}
            command(**values, given={name: value for name, value in given.items() if not _unused(value)})

        return _with_signature(called, [*arguments, *flags, *options])

    return decorate


def _with_signature(command: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Set the ``parameters`` of a command that typer sees."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def key_table(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    """Yield the lines of a table of docs/plan.md: every key with its flag, default and meaning."""
    yield "| key | flag | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in fields.items():
        flag, default = f"`{_flag(name)}`" if name in _FIELDS else "", _default(field)
        yield f"| `{name}` | {flag} | {'required' if field.is_required() else default} | {field.description} |"


def _parameter(name: str, help: str) -> inspect.Parameter:
    kind = _type(_FIELDS[name])
    option = plan_option(name, help, next(group for group, names in _GROUPS.items() if name in names))
    annotation, default = (Annotated[bool, option], False) if kind is bool else (Annotated[kind | None, option], None)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _type(field: FieldInfo) -> Any:
    """Return the type of a field's flag; what typer has no type for is a text, which the plan reads."""
    if _repeatable(field):
        return list[str]
    kinds = {field.annotation, *get_args(field.annotation)}
    return next((kind for kind in (bool, float, int) if kind in kinds and str not in kinds), str)


def _repeatable(field: FieldInfo) -> bool:
    return isinstance(field.json_schema_extra, dict) and bool(field.json_schema_extra.get("repeatable"))


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if field.is_required() or _unused(value) or isinstance(value, Retrieval):
        return ""
    return ",".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def _unused(value: Any) -> bool:
    """Return whether a flag was not used: its value is then None, False or an empty list. 0 is a value."""
    return value is None or value is False or value == [] or value == ()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def is_argument(parameter: inspect.Parameter) -> bool:
    """Return whether a command's parameter is an argument, not an option."""
    return any(isinstance(part, typer.models.ArgumentInfo) for part in get_args(parameter.annotation))


Out = Annotated[Path, typer.Option("-o", "--out", help="Run directory to write; an unfinished run there is resumed.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress and notes.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print the tables, and the log (why a take failed).")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with code 3 if a verdict is undecided.")]
AllowFailed = Annotated[bool, typer.Option("--allow-failed", help="Exit with code 0 even if takes failed.")]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
Worth = Annotated[float, plan_option("worth")]
Trust = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        help="Let this plan, library, run or checkpoint name code to run (python:…, trust_remote_code). Repeatable.",
    ),
]


def trusting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--trust`` to a command; it holds for all that the command opens (`registry.trust`)."""

    @wraps(command)
    def called(*, trust: list[Path] | None = None, **values: Any) -> Any:
        for path in trust or ():
            if not path.exists():
                raise PlanError(f"`trust` {path}: no such file or directory")
            registry.trust(path)
        return command(**values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [p if is_argument(p) else p.replace(kind=p.KEYWORD_ONLY) for p in own]
    option = inspect.Parameter("trust", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Trust)
    return _with_signature(called, [*parameters, option])


def pairs(name: str, given: list[str], form: str, example: str) -> dict[str, str]:
    """``["a=b"]`` -> ``{"a": "b"}``; PlanError says which ``form`` the option ``name`` has."""
    values = {}
    for text in given:
        key, _, values[key] = text.partition("=")
        if not (key and values[key]):
            raise PlanError(f"`{name}` {text}: write {form}, e.g. {example}")
    return values


if __name__ == "__main__":
    print("\n".join([*key_table(Plan.model_fields), "", *key_table(Retrieval.model_fields)]))
