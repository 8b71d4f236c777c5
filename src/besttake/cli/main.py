"""The command line: every command, how ``--help`` looks, and the one place that prints errors.

typer keeps the group of an option or a command in the help as its ``rich_help_panel``.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from besttake import files
from besttake.cli import acting, diagnose, interrupt, library, recorded, runs
from besttake.cli.flags import trusting
from besttake.errors import BestTakeError, Interrupted
from besttake.progress import SafeConsole
from besttake.registry import schemes

_HELP = """Find out what would help a frozen robot policy at test time.

BestTake measures whether it pays to play several takes and keep the best one (reuse), to start from retrieved
demonstrations (retrieve), to sample with less noise (cool), several of these, or none, with intervals, controls and
costs.

    besttake demo               the whole diagnosis on the embedded testbed
    besttake diagnose --help    diagnose your own policy on your own benchmark
    besttake runs list          list your runs and their verdicts

    take      one execution of a policy, from one start with one seed
    arm       a way of running the policy: base, cooled, shuffled, retrieve, …
    cell      one policy on one group of tasks; each cell gets its own verdict
    headroom  what a perfect pick among N takes would gain over one take
    content   what retrieved actions add beyond less noise (retrieve - cooled)
    worth     the smallest effect worth acting on, in percentage points
"""
_EXIT = (
    "Glossary: https://github.com/besttake/besttake/blob/main/docs/concepts.md#words"
    "\n\nExit codes: 0 success, 1 could not finish (disk full) or takes failed, 2 bad input, 3 undecided with --strict,"
    " 4 play another take (rank --run),"
    " 130 interrupted."
)
_LIMITS = {
    errno.EMFILE: "use fewer workers, or allow more open files (ulimit -n)",
    errno.ENFILE: "use fewer workers",
    errno.ENOMEM: "use fewer workers or a smaller batch",
    errno.EAGAIN: "use fewer workers",
    errno.ENOSPC: "make room and run the same command again",
    errno.EDQUOT: "make room and run the same command again",
}


_VALUES = {"int": "N", "int range": "N", "float": "X", "float range": "X", "str": "TEXT", "path": "PATH", "bool": ""}
"""What the help calls the values of typer's types."""


class Command(TyperCommand):
    """A command whose help has its options in groups, and whose errors name options as flags."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of the library names options as the command line does."""
        try:
            return super().invoke(ctx)
        except BestTakeError as error:
            error.args = (_with_flags(str(error), self),)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments by their plain names: ``RUN``, where typer writes ``{RUN}``."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then each group of options."""
        _write_parameters(self, ctx, formatter)


class Group(TyperGroup):
    """Commands in groups, each with its whole first sentence."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The groups of commands, then the options."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        _write(formatter, [(_group(one, "Commands"), (name, _first_sentence(one))) for name, one in commands])
        _write_parameters(self, ctx, formatter)


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    records = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            argument = parameter.param_type_name == "argument"
            name, text = (record[0].partition(" <")[0] if argument else plain(record[0])), without_range(record[1])
            records.append((_group(parameter, "Arguments" if argument else "Options"), (name, text)))
    _write(formatter, records)


def _write(formatter: Any, records: Iterable[tuple[str, tuple[str, str]]]) -> None:
    """A section for each group, in the order in which the groups first come up; "Options" last."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for group, record in records:
        groups.setdefault(group, []).append(record)
    for group in sorted(groups, key="Options".__eq__):
        with formatter.section(group):
            formatter.write_dl(groups[group], col_max=28)


def _group(thing: Any, default: str) -> str:
    own = getattr(thing, "rich_help_panel", None)
    return own if isinstance(own, str) else default


def plain(record: str) -> str:
    """``--seeds <int range>`` -> ``--seeds N``."""
    return re.sub(r"<(?:list\[)?([\w ]+)\]?>", lambda match: _VALUES.get(match[1], match[1].upper()), record)


def without_range(text: str) -> str:
    """``[default: 8; x>=1]`` -> ``[default: 8]``: the error for a number out of range names the range."""
    return re.sub(r"(?:\s*\[|; )[-\d.]*(?:<=?)?x[<>]=?[-\d.]+\]", lambda match: "]" if match[0][0] == ";" else "", text)


def _first_sentence(command: Any) -> str:
    """What a command is for: the beginning of its help, its first sentence."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.?])\s", paragraph)[0].removesuffix(".")


def _kept(text: str) -> str:
    """Keep the lines of examples: a paragraph with indented lines is not to be wrapped anew."""
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{p}" if "\n  " in p or p.startswith("  ") else p for p in paragraphs)


def _with_flags(text: str, command: Command) -> str:
    """Options that an error names in backticks, as the user types them: `` `skip_bad` `` becomes ``--skip-bad``.

    The command's own options come first; those of other commands follow, but for words that also name an arm.
    """
    others = {name: flag for name, flag in _flags(get_command(app)).items() if name not in schemes("arms")}
    flags = {**others, **_flags(command)}
    return re.sub(r"`(\w+)`", lambda match: flags.get(match[1], match[0]), text)


def _flags(command: Any) -> dict[str, str]:
    """Each option's Python name and its longest flag, of a command and all below it."""
    own = {p.name: max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}
    below = [_flags(sub) for sub in getattr(command, "commands", {}).values()]
    return {name: flag for flags in (*below, own) for name, flag in flags.items()}


def _made(help: str, **more: Any) -> typer.Typer:
    return typer.Typer(cls=Group, help=help, no_args_is_help=True, rich_markup_mode=None, **more)


app = _made(
    _kept(_HELP), epilog=_EXIT, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
library_app = _made("Build, show and check libraries of demonstrations.")
runs_app = _made("List, show, merge and watch run directories.")


def _add(to: typer.Typer, name: str, function: Callable[..., None], group: str | None = None) -> None:
    help = _kept(function.__doc__ or "")
    to.command(name, cls=Command, help=help, rich_help_panel=group)(trusting(function))


_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Measure a policy": (diagnose.demo, diagnose.diagnose, diagnose.probe, diagnose.plan, diagnose.reproduce),
    "Read and use a run": (runs.report, runs.score, runs.compare, runs.export, runs.serve, acting.act),
    "Use recordings from elsewhere": (recorded.rank, recorded.ingest),
    "Set up": (library.doctor,),
}
for group, functions in _COMMANDS.items():
    for function in functions:
        _add(app, function.__name__, function, group)
for function in (library.build, library.show_library, library.check):
    _add(library_app, function.__name__.removesuffix("_library"), function)
for function in (runs.runs_list, runs.runs_show, runs.runs_merge, runs.runs_watch):
    _add(runs_app, function.__name__.removeprefix("runs_"), function)
app.add_typer(library_app, name="library", rich_help_panel="Set up")
app.add_typer(runs_app, name="runs", rich_help_panel="Read and use a run")


def _show_version(asked: bool) -> None:
    if asked:
        print(f"besttake {files.version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Nothing but ``--version`` stands before the command."""


def main() -> NoReturn:
    """Entry point: every error that a user can mend is one line."""
    interrupt.listen()
    try:
        with interrupt.heeded():
            code = app(prog_name="besttake", standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = interrupt.CODE
    except Interrupted as error:  # the command itself says what is kept
        sys.exit(_say(f"interrupted; {error}", error.exit_code))
    except BestTakeError as error:
        code = _say(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError:
        code = _say("memory is short; use fewer workers, a smaller batch or a larger machine", 1)
    except OSError as error:
        if error.errno in _LIMITS:
            code = _say(f"{error.strerror}; {_LIMITS[error.errno]}", 1)
        elif error.filename is not None:
            place = os.fsdecode(error.filename2 or error.filename)
            code = _say(f"{place}: {error.strerror}; name another file or directory", 2)
        else:
            raise
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            code = 0
        else:
            code = _say(error.format_message(), 2)
    if code == interrupt.CODE:  # typer turns Ctrl-C into this code
        _say(interrupt.text(), code)
    sys.exit(code if isinstance(code, int) else 0)


def _say(text: str, code: int) -> int:
    line = " ".join(text.split())
    SafeConsole(stderr=True, soft_wrap=True).print(f"besttake: {line}", style="red")
    return code
