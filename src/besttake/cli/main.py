"""The command line: parse, call, print. No logic lives here; the commands are in `besttake.commands`."""

from __future__ import annotations

import os
import sys
from inspect import cleandoc
from typing import NoReturn

import typer
from rich.console import Console

from besttake.cli import data, diagnose, library, reproduce, results, serve
from besttake.errors import BestTakeError

_HELP = """What does a frozen robot policy need at test time?

More takes and a good pick (reuse), a demonstration prior (retrieve), calmer sampling (cool), or nothing:
BestTake measures it, with intervals, controls and the cost of each.

    besttake demo               the whole diagnosis on the embedded testbed
    besttake diagnose --help    on your own policy and benchmark
"""
_INTERRUPTED = 130
_EXIT = "Exit codes: 0 done, 1 could not go on (disk full), 2 bad input, 3 undecided with --strict, 130 interrupted."


def _kept(text: str) -> str:
    """Keep the lines of examples: a paragraph with indented lines is not to be wrapped anew."""
    paragraphs = cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{p}" if "\n  " in p or p.startswith("  ") else p for p in paragraphs)


app = typer.Typer(
    help=_kept(_HELP), epilog=_EXIT, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
for verb in (
    diagnose.demo, diagnose.diagnose, diagnose.probe, results.report, data.rank, data.ingest, data.plan, data.compare,
    serve.serve, reproduce.reproduce, results.doctor,
):  # fmt: skip
    app.command()(verb)
app.add_typer(library.app, name="library")
app.add_typer(results.runs, name="runs")
for known in (*app.registered_commands, *library.app.registered_commands, *results.runs.registered_commands):
    known.help = _kept((known.callback and known.callback.__doc__) or "")


def main() -> NoReturn:
    """Entry point: every error that a user can mend is one line."""
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BestTakeError as error:
        code = _say(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _say(error.format_message(), 2)
    if code == _INTERRUPTED:
        _say("interrupted; finished takes are kept, run the same command to go on", code)
    sys.exit(code if isinstance(code, int) else 0)


def _say(text: str, code: int) -> int:
    line = " ".join(text.split())
    console = Console(stderr=True, highlight=False, emoji=False, markup=False, soft_wrap=True)
    console.print(f"besttake: {line}", style="red")
    return code
