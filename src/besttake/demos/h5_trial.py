"""Whether HDF5's own library survives a file: it is tried in a process of its own first.

libhdf5 crashes on some damaged files and loops without end on others, and what it does cannot be interrupted. So
a child opens all groups, datasets and attributes of a file before this process opens it once. It reads the arrays that
libhdf5 has to follow into its heaps (texts and other values of no fixed length) or to decode by a filter of its own.
Arrays that are plain, or packed by gzip or lzf, are not read twice: a fuzzer found none among them that harms libhdf5.
The child may take two seconds of a processor, and one more for every 20 MB: a thousand demonstrations take less than
one.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from besttake.demos.frames import Unreadable
from besttake.errors import need

_SECONDS, _WAIT = 2, 600
_PER_SECOND = 20 << 20
_MOST_MEMORY = 1 << 30
_NO_MEMORY, _NO_LIST = 3, 4
_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError)
_KNOWN_FILTERS = {1, 2, 32000}
"""gzip, shuffle and lzf, by HDF5's numbers. fletcher32 is not: libhdf5 crashes on chunks shorter than their sum."""
_PIECE = 1 << 16
_REASONS = {
    _NO_MEMORY: "is damaged (it asks for more than 1 GB)",
    _NO_LIST: "is damaged (it does not tell what is in its groups)",
}


class _Unlisted(Exception):
    """A group cannot tell what it holds, so that not all of it can be tried."""


def check_survives(path: Path) -> None:
    """`Unreadable` where libhdf5 would crash on ``path``, or never come back from it; each file is tried once."""
    if not hasattr(os, "fork"):
        return
    kind = path.stat()
    reason = _tried(path.resolve(), kind.st_size, kind.st_mtime_ns, kind.st_ino)
    if reason:
        raise Unreadable(reason)


@lru_cache(maxsize=4096)
def _tried(path: Path, *_: int) -> str:
    """What is wrong with the file; nothing where the child came to its end, also by an error, which is told later."""
    h5py = need("h5py", "hdf5 demonstrations", "hdf5")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the child needs none of them
        child = os.fork()
    if child == 0:
        os._exit(_in_child(h5py, path))
    status = _ended(child)
    if status is None or os.WIFSIGNALED(status):
        endless = status is None or os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        what = "does not come back from it" if endless else "crashes on it"
        return f"is damaged (the HDF5 library {what})"
    return _REASONS.get(os.waitstatus_to_exitcode(status), "")


def _ended(child: int) -> int | None:
    """How the child ended; None where it had to be ended."""
    until, pause = time.monotonic() + _WAIT, 0.001
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _in_child(h5py: Any, path: Path) -> int:
    faulthandler.disable()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        most = int(used) + 1 + _SECONDS + path.stat().st_size // _PER_SECOND
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _MOST_MEMORY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        pass
    try:
        with h5py.File(path, "r") as file:
            _walk(h5py, file, set())
    except MemoryError:
        return _NO_MEMORY
    except _Unlisted:
        return _NO_LIST
    except BaseException:
        return 1
    return 0


def _walk(h5py: Any, group: Any, seen: set[int]) -> None:
    """Open all that hangs on hard links below ``group``, and read its attributes; `_Unlisted` where that is not told.

    What cannot be opened hides nothing else: whoever knows a name can open what lies beside it.
    """
    waiting = [group]
    while waiting:
        item = waiting.pop()
        with suppress(*_ERRORS):
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
        with suppress(*_ERRORS):
            for name in item.attrs:
                with suppress(*_ERRORS):
                    item.attrs[name]
        if isinstance(item, h5py.Group):
            waiting += _members(h5py, item)
        else:
            with suppress(*_ERRORS):
                _try_dataset(h5py, item)


def _members(h5py: Any, group: Any) -> Iterator[Any]:
    """What hangs on hard links of ``group`` and can be opened."""
    try:
        names = [*group]
    except _ERRORS as error:
        raise _Unlisted from error
    for name in names:
        with suppress(*_ERRORS):
            if group.id.links.get_info(name.encode()).type == h5py.h5l.TYPE_HARD:
                yield group[name]


def _try_dataset(h5py: Any, item: Any) -> None:
    if isinstance(item, h5py.Dataset):
        _ = item.shape, item.dtype, item.chunks
        if not item.is_virtual and not item.external:
            _read_odd(item)


def _read_odd(values: Any) -> None:
    """Read a dataset whose values have no fixed length, or that is packed by a filter that is not well known."""
    settings = values.id.get_create_plist()
    filters = {settings.get_filter(number)[0] for number in range(settings.get_nfilters())}
    if not values.dtype.hasobject and filters <= _KNOWN_FILTERS:
        return
    if not values.ndim:
        values[()]
        return
    rows = max(1, _PIECE // max(1, values.size // max(1, len(values))))
    for first in range(0, len(values), rows):
        values[first : first + rows]
