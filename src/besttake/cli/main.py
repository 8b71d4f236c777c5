"""The command line: all commands, the layout of ``--help``, and how errors are printed.

typer stores the help group of an option as its ``rich_help_panel``.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from inspect import cleandoc
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from besttake import files
from besttake.cli import diagnose, interrupt, library, recorded, runs, serve
from besttake.cli.flags import trusting
from besttake.errors import LIMITS, BestTakeError, Interrupted, failure, one_line, place_in_code
from besttake.progress import SafeConsole
from besttake.registry import schemes

_COMMANDS: dict[str, dict[str, tuple[Callable[..., None] | None, str]]] = {
    "Measure": {
        "demo": (diagnose.demo, "diagnose three small policies on the embedded testbed"),
        "diagnose": (diagnose.diagnose, "play takes of your policy, and find out what would help it"),
        "ingest": (recorded.ingest, "measure headroom from outcomes that other tools recorded"),
        "rank": (recorded.rank, "rank recorded takes by how close they stay to demonstrations"),
        "probe": (diagnose.probe, "measure how well a policy fits demonstrations; plays no takes"),
        "plan": (diagnose.plan, "compute how many starts and takes a diagnosis needs"),
    },
    "Read a run": {
        "report": (runs.report, "write its report as HTML, Markdown or JSON"),
        "compare": (runs.compare, "show what changed from one run to another"),
        "score": (runs.score, "compare scorers on the takes of a run, and add others"),
        "export": (runs.export, "write tables, figures, films, or a LeRobot data set"),
        "runs": (None, "list, show, merge and watch runs"),
    },
    "Act on it": {
        "act": (diagnose.act, "play what a run recommends on new starts, and check its promise"),
        "serve": (serve.serve, "serve a policy to other harnesses, or to a real robot"),
    },
    "Set up": {
        "library": (None, "build, show and check libraries of demonstrations"),
        "doctor": (library.doctor, "check this machine, and whether policy, env and data fit together"),
        "reproduce": (diagnose.reproduce, "run a protocol of the paper, and compare its numbers with yours"),
    },
}
"""The commands by group, with their line in the help; those without a function have subcommands."""
_WORDS = "https://github.com/besttake/besttake/blob/main/docs/concepts.md#words"
_METAVARS = {"int": "N", "int range": "N", "float": "X", "float range": "X", "str": "TEXT", "path": "PATH", "bool": ""}
"""The placeholders of typer's types in the help."""


class Command(TyperCommand):
    """A command whose help shows options in groups, and whose errors name options as flags."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; errors of the library get the names of flags."""
        try:
            return super().invoke(ctx)
        except BestTakeError as error:
            error.args = (_options_as_flags(str(error), self),)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line without typer's braces: ``RUN``, not ``{RUN}``."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then the groups of options in the order of their first option; "Options" comes last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            argument = parameter.param_type_name == "argument"
            name = record[0].partition(" <")[0] if argument else plain_metavar(record[0])
            panel = getattr(parameter, "rich_help_panel", None)
            group = panel if isinstance(panel, str) else "Arguments" if argument else "Options"
            groups.setdefault(group, []).append((name, without_range(record[1])))
        for group in sorted(groups, key="Options".__eq__):
            with formatter.section(group):
                formatter.write_dl(groups[group], col_max=28)


class Root(TyperGroup):
    """All commands; their help fits on one screen."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each command, in groups."""
        lines = ["Usage: besttake COMMAND …   (besttake COMMAND --help says more)", ""]
        lines.append("What would help a frozen robot policy at test time? To begin: besttake demo")
        for group, commands in _COMMANDS.items():
            lines += [f"{group}:", *(f"  {name:<10} {text}" for name, (_, text) in commands.items())]
        formatter.write("\n".join([*lines, f"Words: {_WORDS}", ""]))


def plain_metavar(record: str) -> str:
    """``--seeds <int range>`` -> ``--seeds N``."""
    return re.sub(r"<(?:list\[)?([\w ]+)\]?>", lambda match: _METAVARS.get(match[1], match[1].upper()), record)


def without_range(text: str) -> str:
    """``[default: 8; x>=1]`` -> ``[default: 8]``: the error for a number out of range names the range."""
    return re.sub(r"(?:\s*\[|; )[-\d.]*(?:<=?)?x[<>]=?[-\d.]+\]", lambda match: "]" if match[0][0] == ";" else "", text)


def _options_as_flags(text: str, command: Command) -> str:
    """Write options that an error names in backticks as flags: `` `skip_bad` `` becomes ``--skip-bad``.

    Options of other commands are replaced as well, unless an arm has the same name.
    """
    others = {name: flag for name, flag in _flags(get_command(app)).items() if name not in schemes("arms")}
    flags = {**others, **_flags(command)}
    return re.sub(r"`(\w+)`", lambda match: flags.get(match[1], match[0]), text)


def _flags(command: Any) -> dict[str, str]:
    """Return the longest flag of each option, by its Python name, of a command and its subcommands."""
    flags: dict[str, str] = {}
    for subcommand in getattr(command, "commands", {}).values():
        flags |= _flags(subcommand)
    return flags | {p.name: max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}


_group = partial(typer.Typer, no_args_is_help=True, rich_markup_mode=None)
app = _group(cls=Root, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})
library_app = _group(help="Build, show and check libraries of demonstrations.")
runs_app = _group(help="List, show, merge and watch run directories.")


def _add(to: typer.Typer, name: str, function: Callable[..., None]) -> None:
    text = cleandoc(function.__doc__ or "")
    short = " ".join(re.split(r"(?<=[.?])\s", text)[0].split())
    # \b keeps the lines of examples, which are indented, from being wrapped.
    help = "\n\n".join(f"\b\n{p}" if "\n  " in p or p.startswith("  ") else p for p in text.split("\n\n"))
    to.command(name, cls=Command, help=help, short_help=short)(trusting(function))


for _commands in _COMMANDS.values():
    for _name, (_function, _) in _commands.items():
        if _function is not None:
            _add(app, _name, _function)
for function in (library.build, library.show_library, library.check):
    _add(library_app, function.__name__.removesuffix("_library"), function)
for function in (runs.runs_list, runs.runs_show, runs.runs_merge, runs.runs_watch):
    _add(runs_app, function.__name__.removeprefix("runs_"), function)
app.add_typer(library_app, name="library")
app.add_typer(runs_app, name="runs")


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
    _warn_once()
    try:
        with interrupt.errors_as_interruption():
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
        if error.errno in LIMITS:
            code = _say(f"{error.strerror}; {LIMITS[error.errno]}", 1)
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
    except BaseException as error:  # a SystemExit of a plug-in would end with an exit code of its own
        code = _say(f"{one_line(failure(error))}{place_in_code(error)}", 1)
    if code == interrupt.CODE:  # typer turns Ctrl-C into this code
        _say(interrupt.message(), code)
    sys.exit(code if isinstance(code, int) else 0)


def _warn_once() -> None:
    """Show each warning of other libraries once; Python shows it again whenever the filters of warnings change."""
    show, shown = warnings.showwarning, set[tuple[str, type[Warning]]]()

    def once(message: Warning | str, category: type[Warning], *place: Any, **file: Any) -> None:
        if (str(message), category) not in shown:
            shown.add((str(message), category))
            show(message, category, *place, **file)

    warnings.showwarning = cast("Any", once)


def _say(text: str, code: int) -> int:
    line = " ".join(text.split())
    SafeConsole(stderr=True, soft_wrap=True).print(f"besttake: {line}", style="red")
    return code
