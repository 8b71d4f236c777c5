"""Fuzzed inputs over all parsers, each in a bounded process that watches what they do.

An input may be read or refused in one line. It may not raise anything else, take ten seconds of a processor, grow by
500 MB, end the process, run code, start a process, or open a file outside its own directory. An audit hook sees what
Python opens and runs; inotify sees whether anyone, C libraries too, opens the file outside.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.campaign.formats import Format, all_formats
from bench.campaign.havoc import mutated
from bench.campaign.stage import Attempt, Broken, check, stage
from besttake.demos.reading import Unreadable
from besttake.errors import BestTakeError

EACH = 100
_SECONDS, _GROWTH = 10, 500 << 20
_FORBIDDEN = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn",
    "socket.connect", "socket.bind", "ctypes.dlopen", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree",
)  # fmt: skip
WORDS = (
    b"python:planted:make", b"../secret", b"/etc/passwd", b"{chunk_index:900000000}",
    b"!!python/object/apply:os.system", b"\xff\xfe", b"\x00", b"[" * 500, b'{"a":' * 200, b"&a [*a]",
    b"9" * 5000, b"NaN", b"-Infinity", b"1e999",
    b"\xdd\xff\xff\xff\xff", b"\x80" * 200, b'"""q"""', b"=cmd|' /C calc'!A0", b"\x1b[2J",
    b"2001-99-99", b"\r\n,\r\n",
)  # fmt: skip


@stage("parsers", "fuzz every parser, 100 inputs a try", ci=30, full=1000, each=EACH)
def parsers(scratch: Path) -> Iterator[Attempt]:
    secret = scratch / "secret"
    secret.write_text("not yours")
    formats = all_formats(scratch)
    for number, one in enumerate(formats):
        _in_child(one, list(one.samples), scratch / f"sample-{number}", secret, expect=True)
    samples = [sample for one in formats for sample in one.samples]

    def attempt(rng: random.Random, place: Path) -> str:
        one = rng.choice(formats)
        inputs = [mutated(rng, rng.choice(one.samples), samples, WORDS) for _ in range(EACH)]
        refused = _in_child(one, inputs, place, secret)
        return "all read" if not refused else "all read or refused"

    yield attempt


@dataclass
class _Seen:
    """What happened in a child: inputs refused, why the last was, and what broke, with the number of its input."""

    refused: int = 0
    reason: str = ""
    broken: list[tuple[int, str]] = field(default_factory=list)


def _in_child(one: Format, inputs: list[bytes], place: Path, secret: Path, expect: bool = False) -> int:
    """How many of ``inputs`` were refused, in a process of their own; `Broken` says what else happened."""
    place.mkdir(exist_ok=True)
    (place.parent / "secret").write_text("not yours") if place.parent != secret.parent else None
    watch = _Watch(place.parent / "secret")
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        status = 70
        try:
            seen = _try_all(one, inputs, place)
            os.write(theirs, json.dumps([seen.refused, seen.reason, seen.broken[:20]]).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    check(not watch.opened(), f"{one.name}: a file outside its directory was opened")
    if status:
        code = os.waitstatus_to_exitcode(status)
        what = "hung in a C library" if code == -signal.SIGVTALRM else f"ended with {code}"
        raise Broken(f"{one.name}: the process {what}")
    refused, reason, broken = json.loads(said)
    if broken:
        number, what = broken[0]
        raise Broken(f"{one.name}, input {number} of {inputs[number][:60]!r}… and {len(broken) - 1} more: {what}")
    check(not (expect and refused), f"{one.name}: a good file was refused: {reason}")
    return int(refused)


def _try_all(one: Format, inputs: list[bytes], place: Path) -> _Seen:
    """In the child: give each input to the parser, and note all that may not happen."""
    allowed = _places(place)
    one.write(place, inputs[0])  # what stands beside the input is copied before anyone watches
    problems: list[str] = []
    sys.addaudithook(lambda event, arguments: _audit(event, arguments, allowed, problems))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _GROWTH + (64 << 20), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _too_long)
    os.chdir(place)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    seen = _Seen()
    for number, data in enumerate(inputs):
        path = one.write(place, data)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS + 5)  # a C library does not return to see the first
        try:
            one.parse(path)
        except (BestTakeError, Unreadable) as error:
            seen.refused += 1
            seen.reason = str(error)[:300]
            if "\n" in str(error).strip() or len(str(error)) > 3000:
                problems.append(f"told in {len(str(error))} characters: {str(error)[:200]!r}")
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            problems.append(f"{type(error).__name__}: {str(error)[:150]} ({Path(last.filename).name}:{last.lineno})")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        seen.broken += [(number, problem) for problem in problems[:3]]
        problems.clear()
    return seen


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {_SECONDS} s")


def _places(place: Path) -> tuple[str, ...]:
    """Where a parser may open files: the input's directory, Python itself, and what every process reads."""
    code = {sys.prefix, sys.base_prefix, *(str(Path(entry).resolve()) for entry in sys.path if entry)}
    return (str(place.resolve()), *sorted(code), "/proc/", "/sys/", "/dev/", "/usr/", "/lib", "/etc/ld.so")


def _audit(event: str, arguments: tuple[Any, ...], allowed: tuple[str, ...], problems: list[str]) -> None:
    if event in _FORBIDDEN and len(problems) < 10:
        problems.append(f"{event} {str(arguments)[:150]}")
    elif event == "open" and isinstance(arguments[0], str | bytes) and len(problems) < 10:
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not path.startswith(allowed):
            problems.append(f"opened {path[:150]}")
    elif event == "import" and arguments[0] == "planted" and len(problems) < 10:
        problems.append("imported a module that only the input names")


class _Watch:
    """Whether anyone opens a file (inotify)."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK)
        libc.inotify_add_watch(self._descriptor, os.fsencode(path), 0x20)  # IN_OPEN

    def opened(self) -> bool:
        """Whether it was opened since; ends the watch."""
        try:
            return bool(os.read(self._descriptor, 4096))
        except BlockingIOError:
            return False
        finally:
            os.close(self._descriptor)
