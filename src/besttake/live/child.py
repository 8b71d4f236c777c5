"""The process that serves the live page of a run in another: the run waits for nothing here, and shares no lock.

The run's process says what it does ("phase"); this one says what the page orders ("order"). It ends with its parent.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from besttake.errors import BestTakeError
from besttake.live.server import Access, LiveServer

_SAID = {
    "stop": "Stopping: takes that are finished are kept.",
    "continue": "Going on.",
    "end": "The command ends.",
}
_NICE = 5


def serve(descriptor: int) -> None:
    """Serve the page that the parent asks for, until it says that the run is over or hangs up."""
    os.set_inheritable(descriptor, False)
    with suppress(OSError):
        os.nice(_NICE)  # where cores are short, the run comes first
    pipe = Connection(descriptor)
    run, name, port, token = pipe.recv()
    turn = threading.Lock()

    def obey(name: str) -> str:
        with turn:
            pipe.send(("order", name))
        return _SAID[name]

    try:
        server = LiveServer(Path(run), port, Access(token, obey), name)
    except BestTakeError as error:
        pipe.send(("error", str(error)))
        return
    server.content.observer.phase = "setting up"
    with turn:
        pipe.send(("ready", server.url))
    _follow(pipe, server)


def _follow(pipe: Any, server: LiveServer) -> None:
    observer = server.content.observer
    while True:
        try:
            phase, note = pipe.recv()
        except (EOFError, OSError):
            server.close()
            return
        observer.note, observer.phase = note, phase
        if phase in ("finished", "ended"):
            server.finish()
            return
        server.feed.look()
