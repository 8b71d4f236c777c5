"""What commands print: results, progress, and the address of a server while it runs."""

from __future__ import annotations

import json
import re
import shlex
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from besttake import log
from besttake.errors import Interrupted
from besttake.progress import Reporter, SafeConsole
from besttake.sanitize import printable

if TYPE_CHECKING:
    from besttake.reporting.terminal import Part


def reporter(quiet: bool, verbose: bool = False) -> Reporter:
    """Return a reporter of progress that is silent if ``quiet``; ``verbose`` shows the log as well."""
    if verbose:
        log.show()
    return Reporter(not quiet)


def command_line() -> str:
    """Return the command line as it was typed, without tokens, to be stored with the run."""
    words = ["…" if before == "--token" else word for before, word in pairwise(["besttake", *sys.argv[1:]])]
    return shlex.join(["besttake", *(re.sub("^--token=.*", "--token=…", word) for word in words)])


def show(shown: str | Sequence[Part], data: Any = None, as_json: bool = False) -> None:
    """Print a result for people, or its ``data`` as JSON."""
    from besttake.reporting.terminal import Sentence, layout

    console = SafeConsole()
    if as_json:
        print(data if isinstance(data, str) else json.dumps(data, indent=1))
    elif isinstance(shown, str):
        console.print(shown, soft_wrap=True)
    else:
        # Without a table, lines are not wrapped, so that a path in them can be copied.
        plain = all(isinstance(part, Sentence) for part in shown)
        console.print(layout(shown, console.width), soft_wrap=plain, crop=False)


def wait(address: str, end: str) -> None:
    """Print what is served where, and wait for Ctrl-C; then raise Interrupted with ``end``."""
    print(printable(f"{address}; Ctrl-C ends it"), flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        raise Interrupted(end) from None
