"""A finished run answers the same plan at once: nothing is loaded, played or computed again.

``answer.json`` in a run says what its result depends on besides the takes: the plan, the versions, this package's own
files, and the files that the plan names. Where one of them changed, a take or the result is damaged, or a take failed,
the diagnosis goes its ordinary way. So it does for components whose state cannot be told from files here: code of the
user's own (``python:``), servers, and names on a hub.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import besttake
from besttake.config import Plan
from besttake.errors import BestTakeError
from besttake.files import read_json, read_regular, version
from besttake.measure.scores import Scores, run_digest
from besttake.registry import Uri
from besttake.result import Result
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store

_FILE = "answer.json"
_OF_THE_MACHINE = {"workers", "batch", "patience", "on"}
_BUILT_IN = {
    "testbed", "libero", "maniskill", "pixels", "hog", "base", "cooled", "shuffled", "retrieve", "rerank",
    "manifold", "coverage",
}  # fmt: skip
"""Schemes whose behaviour is a matter of versions, and of `_PLACES`, alone."""
_PLACES = ("BESTTAKE_LIBERO_ASSETS", "LIBERO_CONFIG_PATH", "MS_ASSET_DIR")
"""Variables that say where simulators find their files."""
_MOST_FILES = 20_000


def answer(plan: Plan, out: str | Path, versions: dict[str, str]) -> Result | None:
    """The result of the finished run ``out`` if it answers ``plan`` as it is; None where something is to be done."""
    directory, key = Path(out), key_of(plan, versions)
    if key is None or not (directory / _FILE).is_file():
        return None
    try:
        known = read_json(read_regular(directory / _FILE))
        result = Result.load(directory / "result.json")
        if known != {"key": key, "digest": result.digest} or _digest_of_files(directory) != result.digest:
            return None
    except (BestTakeError, OSError, ValueError):
        return None
    return result


def keep(store: Store, plan: Plan, result: Result) -> None:
    """Note what ``result`` depends on, so that the same plan is answered by it."""
    key = key_of(plan, result.versions)
    if key is not None:
        store.write_bytes(_FILE, json.dumps({"key": key, "digest": result.digest}).encode())


def key_of(plan: Plan, versions: dict[str, str]) -> str | None:
    """A name for everything besides takes that a result depends on; None where that cannot be told from files."""
    values = plan.model_dump(mode="json", exclude=_OF_THE_MACHINE)
    named = [*plan.policy, *plan.env, *plan.arms, *_texts(plan.scorer), *_texts(plan.demos), *_texts(plan.encoder)]
    try:
        stamps = [_stamp(uri) for uri in named]
        package = _stamp_of(Path(besttake.__file__).parent)
    except (OSError, RuntimeError, ValueError):  # a folder that may not be read, a name that can be no file's
        return None
    if None in stamps:
        return None
    parts = [version(), versions, values, package, stamps, [os.environ.get(name) for name in _PLACES]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _texts(value: str | Sequence[str] | None) -> Sequence[str]:
    return () if value is None else (value,) if isinstance(value, str) else value


def _stamp(uri: str) -> str | None:
    """What tells whether a component has changed: the state of its files, or nothing where versions say it all."""
    parsed = Uri.parse(uri)
    places = [Path(place.partition("?")[0]).expanduser() for place in (uri, parsed.rest) if place]
    own = next((_stamp_of(path) for path in places if path.exists()), "" if parsed.scheme in _BUILT_IN else None)
    also = [_stamp_of(Path(value)) for value in parsed.options.values() if value and Path(value).exists()]
    return None if own is None or None in also else " ".join([own, *map(str, also)])


def _stamp_of(path: Path) -> str | None:
    """A hash of the names, sizes and times of all files at ``path``; None where they are too many to look at."""
    whole = hashlib.sha256()
    for number, file in enumerate(_files(path)):
        if number >= _MOST_FILES:
            return None
        state = file.stat() if file.exists() else file.lstat()  # a link may lead nowhere
        whole.update(f"{file} {state.st_size} {state.st_mtime_ns}\n".encode())
    return whole.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    """All files at ``path``, also behind links; each folder once."""
    if path.is_file():
        yield path
        return
    seen = {os.path.realpath(path)}
    for folder, inner, names in os.walk(path, followlinks=True):
        kept = []
        for name in sorted(inner):
            real = os.path.realpath(os.path.join(folder, name))
            if name != "__pycache__" and real not in seen:
                seen.add(real)
                kept.append(name)
        inner[:] = kept
        yield from (Path(folder) / name for name in sorted(names))


def _digest_of_files(directory: Path) -> str | None:
    """The digest of a run all of whose files are whole; None or RunError where one is damaged, or a take failed."""
    Manifest.read(directory)
    with Store.open(directory) as store:
        if store.damaged() or any(row.status != "done" for row in store.rows()):
            return None
        takes = store.digest()
    return run_digest(takes, Scores.open(directory))
