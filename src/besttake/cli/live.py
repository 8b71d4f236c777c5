"""What concerns the live page: ``runs watch``, and the options of ``diagnose`` and ``demo`` for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from besttake.cli.options import Run
from besttake.progress import SafeConsole

T = TypeVar("T")
Live = Annotated[bool, typer.Option("--live", help="Serve a live page of the run on this machine.")]
LivePort = Annotated[int, typer.Option(min=0, max=65535, help="Port of the live page; 0 picks a free one.")]


@dataclass(frozen=True)
class Watched:
    """Whether a diagnosis has a live page, and at which port."""

    live: bool = False
    port: int = 0

    def do(self, work: Callable[[], T], out: Path) -> T:
        """``work``, with a live page as long as that takes."""
        if not self.live:
            return work()
        from besttake.live import AttachedPage

        with AttachedPage(out, self.port) as page:
            SafeConsole(stderr=True, soft_wrap=True).print(f"Live: {page.url}")
            return work()


UNWATCHED = Watched()


def watch(
    directory: Run,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
) -> None:
    """Serve the live page of a run on this machine, and its report once it is finished.

    The run is only read, so any number of people can watch it, even on a read-only disk. To watch from another machine,
    open a tunnel: ssh -L 8123:127.0.0.1:8123 MACHINE.

    Examples:
      besttake runs watch runs/half
      besttake runs watch runs/half --port 8123
    """
    from besttake.errors import Interrupted, RunError
    from besttake.live import LiveServer, RunPage
    from besttake.sanitize import printable

    if not any((directory / name).is_file() for name in ("run.json", "result.json")):
        raise RunError(f"{directory} is not a run (it has neither run.json nor result.json)")
    with LiveServer(RunPage(directory, str(directory)), port) as server:
        print(printable(f"{directory} at {server.url}; Ctrl-C ends it"), flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            raise Interrupted("the page is no longer served") from None
