"""Whether HDF5's own library survives a file: it is tried in a process of its own first.

libhdf5 crashes on some damaged files and loops without end on others, and what it does cannot be interrupted. So
a child opens all groups, datasets and attributes of a file before this process opens it once; it reads no arrays. The
child may take two seconds of a processor, and one more for every 20 MB: a thousand demonstrations take less than one.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import time
import warnings
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from besttake.demos.frames import Unreadable
from besttake.errors import need

_SECONDS, _WAIT = 2, 600
_PER_SECOND = 20 << 20
_MOST_MEMORY = 1 << 30
_NO_MEMORY = 3


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
    return "is damaged (it asks for more than 1 GB)" if os.waitstatus_to_exitcode(status) == _NO_MEMORY else ""


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
    except BaseException:
        return 1
    return 0


def _walk(h5py: Any, group: Any, seen: set[int]) -> None:
    """Open all that hangs on hard links below ``group``, and read its attributes."""
    waiting = [group]
    while waiting:
        item = waiting.pop()
        with suppress(OSError, RuntimeError, KeyError, ValueError, TypeError):
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
        with suppress(OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError):
            for name in item.attrs:
                with suppress(OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError):
                    item.attrs[name]
        with suppress(OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError):
            if isinstance(item, h5py.Dataset):
                _ = item.shape, item.dtype, item.chunks, item.is_virtual, item.external
            elif isinstance(item, h5py.Group):
                links = item.id.links
                hard = [name for name in item if links.get_info(name.encode()).type == h5py.h5l.TYPE_HARD]
                waiting += [item[name] for name in hard]
