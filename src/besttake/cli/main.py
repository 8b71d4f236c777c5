"""The command line: every command, how ``--help`` looks, and the one place that prints errors.

typer keeps the group of an option or a command in the help as its ``rich_help_panel``.
"""

from __future__ import annotations

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
from besttake.cli import diagnose, interrupt, library, recorded, runs
from besttake.cli.flags import trusting
from besttake.errors import LIMITS, BestTakeError, Interrupted, failure, one_line, place_in_code
from besttake.progress import SafeConsole
from besttake.registry import schemes

_COMMANDS: dict[str, dict[str, tuple[Callable[..., None] | None, str]]] = {
    "Measure": {
        "demo": (diagnose.demo, "diagnose three small policies on the embedded testbed"),
        "diagnose": (diagnose.diagnose, "find out what would help your policy, by playing takes"),
        "ingest": (recorded.ingest, "the same from outcomes that other harnesses recorded"),
        "rank": (recorded.rank, "order recorded takes by how close they stay to demonstrations"),
        "probe": (diagnose.probe, "how well a policy fits demonstrations; plays nothing"),
        "plan": (diagnose.plan, "how many starts and takes will settle the question"),
    },
    "Read a run": {
        "report": (runs.report, "write its page, as HTML or Markdown"),
        "compare": (runs.compare, "what changed from one run to another"),
        "score": (runs.score, "compare scorers on the takes that are there; add others"),
        "export": (runs.export, "tables, figures, films, or a LeRobot data set"),
        "runs": (None, "list, show, merge and watch runs"),
    },
    "Act on it": {
        "act": (diagnose.act, "play what was recommended on new starts: does the promise hold?"),
        "serve": (runs.serve, "serve the policy, cooled or with retrieval, to other harnesses"),
    },
    "Set up": {
        "library": (None, "build, show and check libraries of demonstrations"),
        "doctor": (library.doctor, "what works here, and whether policy, env and data fit together"),
        "reproduce": (diagnose.reproduce, "run a protocol of the paper, its numbers beside yours"),
    },
}
"""The commands by group, and what each is for in the help; those without a function have commands of their own."""
_WORDS = "https://github.com/besttake/besttake/blob/main/docs/concepts.md#words"


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


class Root(TyperGroup):
    """The help of all commands, on one screen."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """A line for each command, in groups."""
        lines = ["Usage: besttake COMMAND …   (besttake COMMAND --help says more)", ""]
        lines.append("What would help a frozen robot policy at test time? Begin with: besttake demo")
        for group, commands in _COMMANDS.items():
            lines += [f"{group}:", *(f"  {name:<10} {text}" for name, (_, text) in commands.items())]
        formatter.write("\n".join([*lines, f"Words: {_WORDS}", ""]))


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
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, **more)


app = _made("", cls=Root, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})
library_app = _made("Build, show and check libraries of demonstrations.")
runs_app = _made("List, show, merge and watch run directories.")


def _add(to: typer.Typer, name: str, function: Callable[..., None]) -> None:
    text = cleandoc(function.__doc__ or "")
    short = " ".join(re.split(r"(?<=[.?])\s", text)[0].split())
    to.command(name, cls=Command, help=_kept(text), short_help=short)(trusting(function))


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
    except BaseException as error:  # code of others would end the process, with an exit code that means another thing
        code = _say(f"{one_line(failure(error))}{place_in_code(error)}", 1)
    if code == interrupt.CODE:  # typer turns Ctrl-C into this code
        _say(interrupt.text(), code)
    sys.exit(code if isinstance(code, int) else 0)


def _say(text: str, code: int) -> int:
    line = " ".join(text.split())
    SafeConsole(stderr=True, soft_wrap=True).print(f"besttake: {line}", style="red")
    return code
