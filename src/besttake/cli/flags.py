"""The flags of commands, and how results are printed.

Flags of a plan are made from its definition (`besttake.config.Plan`): names, types, ranges and help are its fields'.
``python -m besttake.cli.flags`` prints the same definition as the tables of docs/plan.md.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from besttake import log, registry
from besttake.config import Plan, Retrieval
from besttake.errors import PlanError
from besttake.progress import Reporter, SafeConsole

if TYPE_CHECKING:
    from besttake.reporting.terminal import Part

Flags = Mapping[str, Any]
"""Keys of a plan that were given as flags."""

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
"""What the help calls the value of a flag."""


def _group_of(name: str) -> str:
    return next(group for group, names in _GROUPS.items() if name in names)


def _value_of(name: str) -> str | None:
    """The name of a flag's value: given above, or the choices that there are."""
    kinds = [_FIELDS[name].annotation, *get_args(_FIELDS[name].annotation)]
    choices = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    return _VALUES.get(name) or "|".join(choices) or None


def option(name: str, help: str = "", group: str | None = None) -> Any:
    """The typer option of the plan's field ``name``, in the ``group`` of the help; ``help`` replaces its own."""
    field = _FIELDS[name]
    default = f" (default {value})." if (value := _default(field)) else "."
    meaning = re.sub(r"`(\w+)`", lambda key: _flag(key[1]) if key[1] in _FIELDS else key[0], field.description or "")
    text = f"{meaning.removesuffix('.')}{default}{' Repeatable.' if _repeatable(field) else ''}"
    least: Any = next((rule.ge for rule in field.metadata if isinstance(rule, Ge)), None)
    most: Any = next((rule.le for rule in field.metadata if isinstance(rule, Le)), None)
    return typer.Option(
        _flag(name), help=help or text, show_default=False, min=least, max=most,
        metavar=_value_of(name), rich_help_panel=group,
    )  # fmt: skip


def plan_flags(*names: str, helps: Mapping[str, str] | None = None) -> Callable[[Callable[..., None]], Any]:
    """A decorator: give a command the flags of the plan's fields ``names`` (all, if none are named).

    The command gets those that were used as its parameter ``given``. ``helps`` replaces help texts.
    """
    chosen, texts = names or tuple(_FIELDS), helps or {}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "given"]
        arguments = [p for p in own if is_argument(p)]
        order = [name for names in _GROUPS.values() for name in names]
        listed = sorted(chosen, key=order.index)
        made = [_parameter(name, texts.get(name, "")) for name in listed]
        options = [p.replace(kind=p.KEYWORD_ONLY) for p in own if not is_argument(p)]

        @wraps(command)
        def called(**values: Any) -> None:
            given = {name: values.pop(name) for name in chosen}
            command(**values, given={name: value for name, value in given.items() if not _unused(value)})

        return _with_signature(called, [*arguments, *made, *options])

    return decorate


def _with_signature(command: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Callable[..., Any]:
    """Let typer see these ``parameters`` of a command."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def key_table(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    """The lines of a table of docs/plan.md: every key with its flag, default and meaning."""
    yield "| key | flag | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in fields.items():
        flag, default = f"`{_flag(name)}`" if name in _FIELDS else "", _default(field)
        yield f"| `{name}` | {flag} | {'required' if field.is_required() else default} | {field.description} |"


def _parameter(name: str, help: str) -> inspect.Parameter:
    kind = _type(_FIELDS[name])
    made = option(name, help=help, group=_group_of(name))
    annotation, default = (Annotated[bool, made], False) if kind is bool else (Annotated[kind | None, made], None)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _type(field: FieldInfo) -> Any:
    """What the flag of a field takes: one of typer's plain types; texts are read by the plan itself."""
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
    """Whether a flag was not used: typer gives None, False or an empty list then. 0 is a value."""
    return value is None or value is False or value == [] or value == ()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def is_argument(parameter: inspect.Parameter) -> bool:
    """Whether a command's parameter is an argument, not an option."""
    return any(isinstance(part, typer.models.ArgumentInfo) for part in get_args(parameter.annotation))


Out = Annotated[Path, typer.Option("-o", "--out", help="Run directory to write; an unfinished run there is resumed.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress and notes.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print the tables, and the log (why a take failed).")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with code 3 if a verdict is undecided.")]
AllowFailed = Annotated[bool, typer.Option("--allow-failed", help="Exit with code 0 even if takes failed.")]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
Worth = Annotated[float, option("worth")]


Trust = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        help="Let this plan, library, run or checkpoint name code to run (python:…, trust_remote_code). Repeatable.",
    ),
]


def trusting(command: Callable[..., Any]) -> Callable[..., Any]:
    """``command`` with the option ``--trust``, which holds for all that it opens (`registry.trust`)."""

    @wraps(command)
    def called(*, trust: list[Path] | None = None, **values: Any) -> Any:
        for path in trust or ():
            if not path.exists():
                raise PlanError(f"`trust` {path}: no such file or directory")
            registry.trust(path)
        return command(**values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [p if is_argument(p) else p.replace(kind=p.KEYWORD_ONLY) for p in own]
    added = inspect.Parameter("trust", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Trust)
    return _with_signature(called, [*parameters, added])


def reporter(quiet: bool, verbose: bool = False) -> Reporter:
    """Progress as loud as asked for; ``verbose`` shows the log as well."""
    if verbose:
        log.show()
    return Reporter(not quiet)


def command() -> str:
    """The command line as it was typed, to be kept with the run."""
    words = ["…" if before == "--token" else word for before, word in pairwise(["besttake", *sys.argv[1:]])]
    return shlex.join(["besttake", *(re.sub("^--token=.*", "--token=…", word) for word in words)])


def pairs(name: str, given: list[str], form: str, example: str) -> dict[str, str]:
    """``["a=b"]`` -> ``{"a": "b"}``; PlanError says how option ``name`` is written."""
    split = [text.partition("=") for text in given]
    for key, equals, value in split:
        if not (key and equals and value):
            raise PlanError(f"`{name}` {key}{equals}{value}: write {form}, e.g. {example}")
    return {key: value for key, _, value in split}


def show(shown: str | Sequence[Part], data: Any = None, as_json: bool = False) -> None:
    """Print for people, or as JSON for scripts."""
    from besttake.reporting.terminal import Sentence, layout

    console = SafeConsole()
    if as_json:
        print(data if isinstance(data, str) else json.dumps(data, indent=1))
    elif isinstance(shown, str):
        console.print(shown, soft_wrap=True)
    else:
        # Sentences alone are not broken: a path in them can be copied.
        plain = all(isinstance(part, Sentence) for part in shown)
        console.print(layout(shown, console.width), soft_wrap=plain, crop=False)


if __name__ == "__main__":
    print("\n".join([*key_table(Plan.model_fields), "", *key_table(Retrieval.model_fields)]))
