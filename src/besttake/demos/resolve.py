"""Open the library that a path or URI names, or build one from the demonstrations it names and keep it in the cache.

For a bare path, the format and the directory of the data set are detected; notes say what the reader assumed.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

from besttake import registry
from besttake.demos import hdf5
from besttake.demos.base import Source
from besttake.demos.build import BuildHooks, Options, build, build_cached
from besttake.demos.library import Library
from besttake.demos.reading import Unreadable, newest_version
from besttake.demos.video import PICTURES, VIDEOS
from besttake.encoders.base import Fitted
from besttake.encoders.cache import cached
from besttake.errors import LibraryError, MissingExtra
from besttake.files import cache_dir

DEFAULT_ENCODER = "pixels"
KNOWN = {
    "lerobot": "a LeRobotDataset (meta/info.json)", "run": "a run of BestTake (run.json)",
    "rlds": "RLDS (features.json and .tfrecord files)", "zarr": "a Zarr replay buffer (data/ and meta/)",
    "droid": "DROID folders (trajectory.h5 and metadata_….json)", "hdf5": "LIBERO or robomimic HDF5 (data/demo_0)",
    "maniskill": "ManiSkill trajectories (traj_0)", "aloha": "ALOHA HDF5 (observations/qpos)",
    "video": "videos or folders of pictures",
}  # fmt: skip
"""The formats by scheme, in the order in which they are tried."""
_MARKS = {
    "lerobot": ("meta/info.json",),
    "run": ("run.json",),
    "rlds": ("features.json",),
    "zarr": (".zgroup", "zarr.json", ".zmetadata"),
}
"""Files that tell the format of a directory."""
_FOLDERS_ABOVE = 4
"""tfds keeps a data set in NAME/CONFIG/VERSION of its directory, which may lie in another one."""
_DEEPEST = 8
_MOST_FOLDERS = 20_000


def open_or_build(
    named: str, encoder: str | None = None, options: Options | None = None, work: BuildHooks | None = None
) -> Library:
    """Open the library ``named`` by its directory, or build one from the demonstrations ``named`` (`source_of`).

    ``encoder`` is a URI: by default the library's own, or `pixels` where one is built.
    """
    if not named.strip():
        raise LibraryError("`demos` is empty; name a library, a data set or a folder of videos")
    if encoder is not None and registry.Uri.parse(encoder).scheme == "python":
        registry.trust(encoder)  # a plan's was checked when the plan was read
    if not (Path(named) / "library.json").is_file():
        return build_at(None, named, encoder, options, work)
    library = Library.open(named)
    if encoder not in (None, library.head.encoder.uri, library.head.encoder.name):
        library.check_encoder(registry.encoder(str(encoder)))
    return library


def build_at(
    out: Path | None, named: str, encoder: str | None = None, options: Options | None = None,
    work: BuildHooks | None = None,
) -> Library:  # fmt: skip
    """Build a library from the demonstrations ``named`` in directory ``out``, or in the cache if it is None."""
    uri = encoder or DEFAULT_ENCODER
    options = replace(options or Options(), encoder_uri=uri)
    source, made = source_of(named), registry.encoder(uri)
    coder = made if isinstance(made, Fitted) else cached(made, work.patience if work else None)
    if out is None:
        return build_cached(source, coder, cache_dir() / "libraries", options, work)
    return build(source, coder, out, options, work)


def source_of(named: str) -> Source:
    """The demonstrations ``named`` by a URI, or by a path whose format is guessed (`guess`).

    A bare path may have options, too: ``data/libero?camera=image``.
    """
    (scheme, colon, _), known = named.partition(":"), (*registry.schemes("demos"), "python")
    path, query = (named, "") if _exists(named) else named.partition("?")[::2]
    if _exists(path) and not (colon and scheme in known):
        scheme, place = guess(Path(path))
        return registry.demos(f"{scheme}:{place}{'?' if query else ''}{query}")  # type: ignore[no-any-return]
    if colon or path in known:
        return registry.demos(named)  # type: ignore[no-any-return]
    hub = f"; on the hub it would be lerobot:{path}" if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path) else ""
    raise LibraryError(
        f"{path} is neither a library directory, nor data on this machine, nor a source (lerobot:…, hdf5:…){hub}"
    )


def _exists(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except (OSError, ValueError):
        return False


def guess(path: Path) -> tuple[str, Path]:
    """The scheme of the reader for ``path``, and the data set: ``path`` itself, or the only one in it.

    LibraryError where no format fits, or where it holds several data sets.
    """
    here = path
    for _ in range(_DEEPEST):
        scheme = _of_file(here) if here.is_file() else _of_directory(here)
        if scheme is not None:
            return scheme, here
        # Folders that are or hold a data set, such as the suites of LIBERO side by side.
        inner = [p.name for p in _folders_in(here) if _holds_set(p, _FOLDERS_ABOVE)] if here.is_dir() else []
        if len(inner) > 1:
            raise LibraryError(f"{here} holds {len(inner)} data sets ({', '.join(inner[:6])}); name one of them")
        if not inner:
            break
        here = here / inner[0]
    if path.is_dir() and _has_videos(path):
        return "video", path
    raise LibraryError(f"{path}: its format is not known; there are {', '.join(KNOWN.values())}")


def _of_file(path: Path) -> str | None:
    if path.suffix in hdf5.SUFFIXES:
        return _of_hdf5(path)
    if path.name.endswith(".zarr.zip"):
        return "zarr"
    if ".tfrecord" in path.name:
        raise LibraryError(f"{path} is one file of a data set; name the directory that has features.json in it")
    if path.suffix.lower() in VIDEOS:
        raise LibraryError(f"{path} is one video; name the directory that it is in")
    return None


def _of_directory(path: Path) -> str | None:
    scheme = next((s for s, marks in _MARKS.items() if any((path / mark).is_file() for mark in marks)), None)
    if scheme is not None or newest_version(path) is not None:
        return scheme or "rlds"
    if _has_droid(path):
        return "droid"
    inner = _hdf5_in(path)
    return _of_hdf5(inner[0]) if inner else None


def _hdf5_in(path: Path) -> list[Path]:
    return sorted(p for p in path.glob("*") if p.suffix in hdf5.SUFFIXES and p.is_file())


def _of_hdf5(path: Path) -> str | None:
    try:
        with hdf5.opened(path) as file:
            keys = list(islice(file, 100))
    except (Unreadable, MissingExtra):
        return "hdf5"  # its reader says what is wrong
    if any(key.startswith("traj_") for key in keys):
        return "maniskill"
    if "observations" in keys and "action" in keys:
        return "aloha"
    return "hdf5" if "data" in keys else None


def _has_droid(path: Path) -> bool:
    """Whether a folder in it, not too deep, is an episode of DROID."""
    for number, (folder, inner, files) in enumerate(os.walk(path)):
        if number > _MOST_FOLDERS:
            return False
        if "trajectory.h5" in files and any(f.startswith("metadata_") and f.endswith(".json") for f in files):
            return True
        if len(Path(folder).relative_to(path).parts) >= _DEEPEST:
            inner.clear()
    return False


def _has_videos(path: Path) -> bool:
    """Whether a directory holds videos or folders of pictures, directly or one level below."""
    shown = (*VIDEOS, *PICTURES)
    return any(
        p.suffix.lower() in shown for depth in ("*", "*/*", "*/*/*") for p in islice(path.glob(depth), _MOST_FOLDERS)
    )


def _holds_set(path: Path, depth: int) -> bool:
    if _hdf5_in(path) or any((path / mark).is_file() for marks in _MARKS.values() for mark in marks):
        return True
    return depth > 0 and any(_holds_set(p, depth - 1) for p in _folders_in(path))


def _folders_in(path: Path) -> list[Path]:
    try:
        folders = [p for p in islice(path.iterdir(), _MOST_FOLDERS) if p.is_dir() and not p.is_symlink()]
    except OSError:
        return []  # not ours to read
    return sorted(p for p in folders if not p.name.startswith("."))
