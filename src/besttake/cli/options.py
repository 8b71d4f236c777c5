"""Options that mean the same in every command, and how results are printed."""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from besttake import log
from besttake.cli.flags import is_argument, option
from besttake.progress import Reporter, SafeConsole

if TYPE_CHECKING:
    from besttake.reporting.terminal import Part

Out = Annotated[Path, typer.Option("-o", "--out", help="Run directory to write; an unfinished run there is resumed.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress and notes.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print the log, e.g. why a take failed.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with code 3 if a verdict is undecided.")]
AllowFailed = Annotated[bool, typer.Option("--allow-failed", help="Exit with code 0 even if takes failed.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
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
        from besttake import registry
        from besttake.errors import PlanError

        for path in trust or ():
            if not path.exists():
                raise PlanError(f"`trust` {path}: no such file or directory")
            registry.trust(path)
        return command(**values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [p if is_argument(p) else p.replace(kind=p.KEYWORD_ONLY) for p in own]
    option = inspect.Parameter("trust", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Trust)
    called.__signature__ = inspect.Signature([*parameters, option])  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in (*parameters, option)}
    return called


def reporter(quiet: bool, verbose: bool = False) -> Reporter:
    """Progress as loud as asked for; ``verbose`` shows the log as well."""
    if verbose:
        log.show()
    return Reporter(not quiet)


def command() -> str:
    """The command line as it was typed, to be kept with the run."""
    return shlex.join(["besttake", *sys.argv[1:]])


def pairs(name: str, given: list[str], form: str, example: str) -> dict[str, str]:
    """``["a=b"]`` -> ``{"a": "b"}``; PlanError says how option ``name`` is written."""
    from besttake.errors import PlanError

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
        console.print(layout(shown, console.width), soft_wrap=all(isinstance(part, Sentence) for part in shown))
