"""The log of the package, which is silent unless it is shown.

A program that uses BestTake configures ``logging`` as it likes; the command line's ``-v`` calls `show`, which worker
processes inherit through the environment.
"""

from __future__ import annotations

import logging
import os
import sys

from besttake.sanitize import printable

_SHOWN = "BESTTAKE_LOG"


class _StandardError(logging.Handler):
    """Writes to the present ``sys.stderr``, which a progress bar replaces to keep lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(self.format(record)), file=sys.stderr, flush=True)


def show(level: int = logging.DEBUG) -> None:
    """Write the log to standard error, in this process and in workers that it starts later."""
    logger = logging.getLogger("besttake")
    os.environ[_SHOWN] = str(level)
    logger.setLevel(level)
    if not any(isinstance(handler, _StandardError) for handler in logger.handlers):
        handler = _StandardError()
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)


def show_if_parent_does() -> None:
    """In a worker process, write the log if the parent does."""
    if os.environ.get(_SHOWN, "").isdigit():
        show(int(os.environ[_SHOWN]))
