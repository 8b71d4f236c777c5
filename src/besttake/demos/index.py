"""What retrieval and scores prepare of a library, kept in the user's cache, memory-mapped, a file per purpose.

An index only makes things fast: no result depends on it. Its name is a hash of all that it depends on, the library's
fingerprint among them, its head has the sha256 of the rest, and what is not as it was written is made anew. The sum
finds damage; it does not prove who wrote an index, and one that someone else made could change matches without a word.
So none is ever read from a library.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake.errors import one_line
from besttake.files import cache_dir, read_json

Arrays = Mapping[str, NDArray[Any]]
FOLDER = "indexes"
# Changed whenever what is kept means something else, or would be chosen otherwise.
_VERSION = 3
_MAGIC, _HEAD, _ALIGNED = b"BestTake index\n", 4096, 64
_DAYS = 60
"""An index that nobody used for so many days is removed when another is written."""
_log = logging.getLogger(__name__)


def kept(key: str, make: Callable[[], Arrays], fits: Callable[[Arrays], bool]) -> Arrays:
    """The arrays of the index for ``key``: as they were kept, else by ``make``, and then kept.

    ``fits``: whether arrays can be what ``make`` gives; those that cannot were never written here.
    """
    name = hashlib.sha256(f"{_VERSION} {key}".encode()).hexdigest()
    path = cache_dir() / FOLDER / f"{name[:40]}.index"
    try:
        arrays = _read(path, name)
        if fits(arrays):
            with suppress(OSError):
                os.utime(path)
            return arrays
        raise ValueError("it is of something else")
    except FileNotFoundError:
        pass
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        _log.warning("%s is damaged (%s); it is made anew", path, one_line(error, 100))
    arrays = make()
    try:
        _write(path, name, arrays)
        _remove_unused(path.parent)
        return _read(path, name)
    except (OSError, ValueError) as error:  # a full disk, or a cache that may only be read
        _log.info("%s cannot be kept (%s); every process makes it anew", path, one_line(error, 100))
        return arrays


def _write(path: Path, name: str, arrays: Arrays) -> None:
    """A head with places and sums, then the arrays one after the other; the file is there whole or not at all."""
    parts, places, end = [], {}, 0
    for own, array in arrays.items():
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        places[own] = {"dtype": array.dtype.str, "shape": list(array.shape), "begin": end}
        parts.append(np.zeros(-parts[-1].size % _ALIGNED, np.uint8))
        end += parts[-2].size + parts[-1].size
    head = {"name": name, "arrays": places, "size": end, "sha256": _sum(name, places, parts)}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write((_MAGIC + json.dumps(head).encode()).ljust(_HEAD))
            for part in parts:
                file.write(part.data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_unused(folder: Path) -> None:
    oldest = time.time() - _DAYS * 86400
    for path in folder.glob("*.index*"):  # among them what a killed process was writing
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _read(path: Path, name: str) -> Arrays:
    """The arrays of an index, memory-mapped; an error where any bit is not as it was written."""
    if path.exists() and not path.is_file():
        raise ValueError("not a regular file")
    with path.open("rb") as file:
        start = file.read(_HEAD)
    if not start.startswith(_MAGIC):
        raise ValueError("it does not begin like one")
    head = read_json(start.removeprefix(_MAGIC))
    if not isinstance(head, dict) or head["name"] != name or head["size"] != path.stat().st_size - _HEAD:
        raise ValueError("its head is of another one")
    body = np.asarray(np.memmap(path, np.uint8, "r", _HEAD))
    if head["sha256"] != _sum(name, head["arrays"], [body]):
        raise ValueError("its checksum differs")
    arrays = {}
    for own, place in head["arrays"].items():
        dtype, shape = np.dtype(place["dtype"]), tuple(place["shape"])
        size = dtype.itemsize * prod(shape)
        arrays[own] = body[place["begin"] : place["begin"] + size].view(dtype).reshape(shape)
    return arrays


def _sum(name: str, places: Mapping[str, Any], parts: Sequence[NDArray[np.uint8]]) -> str:
    digest = hashlib.sha256(json.dumps([name, places], sort_keys=True).encode())
    for part in parts:
        digest.update(part.data)
    return digest.hexdigest()
