"""The command line: every command, and the one place that prints errors."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from besttake import files
from besttake.cli import (
    complete,
    diagnose,
    doctor,
    export,
    interrupt,
    library,
    plan,
    recorded,
    reproduce,
    runs,
    serve,
)
from besttake.cli.help import WORDS, Command, Group
from besttake.cli.options import trusting
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
    f"Glossary: {WORDS}"
    "\n\nExit codes: 0 success, 1 could not finish (disk full) or takes failed, 2 bad input, 3 undecided with --strict,"
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


def _kept(text: str) -> str:
    """Keep the lines of examples: a paragraph with indented lines is not to be wrapped anew."""
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{p}" if "\n  " in p or p.startswith("  ") else p for p in paragraphs)


app = typer.Typer(
    cls=Group, help=_kept(_HELP), epilog=_EXIT, no_args_is_help=True, rich_markup_mode=None,
    pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


class _Command(Command):
    """A command whose errors name its options as flags."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error of the library names options as the command line does."""
        try:
            return super().invoke(ctx)
        except BestTakeError as error:
            error.args = (_with_flags(str(error), self),)
            raise


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


_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Measure a policy": (diagnose.demo, diagnose.diagnose, diagnose.probe, plan.plan, reproduce.reproduce),
    "Read and use a run": (
        runs.report, runs.score, runs.compare, export.export,
        serve.serve,
    ),
    "Use recordings from elsewhere": (recorded.rank, recorded.ingest),
    "Set up": (doctor.doctor,),
}  # fmt: skip
for group, verbs in _GROUPS.items():
    for verb in verbs:
        app.command(rich_help_panel=group)(verb)
app.add_typer(library.app, name="library", rich_help_panel="Set up")
app.add_typer(runs.app, name="runs", rich_help_panel="Read and use a run")
for known in (*app.registered_commands, *library.app.registered_commands, *runs.app.registered_commands):
    known.cls = _Command
    known.callback = trusting(known.callback) if known.callback else None
    known.help = _kept((known.callback and known.callback.__doc__) or "")


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
            code = complete.in_bash(partial(app, prog_name="besttake", standalone_mode=False))
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
            code = _say(_with_help(error), 2)
    if code == interrupt.CODE:  # typer turns Ctrl-C into this code
        _say(interrupt.text(), code)
    sys.exit(code if isinstance(code, int) else 0)


def _with_help(error: Any) -> str:
    """What is wrong with a command line; where no name comes near the unknown one, also where to find the names."""
    text = error.format_message()
    lost = text.startswith("No such") and "Possible" not in text and "Did you mean" not in text
    return f"{text.rstrip('.')}; see {error.ctx.command_path} --help" if lost and error.ctx else text


def _say(text: str, code: int) -> int:
    line = " ".join(text.split())
    SafeConsole(stderr=True, soft_wrap=True).print(f"besttake: {line}", style="red")
    return code
