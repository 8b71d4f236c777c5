"""Open the library that a path or URI names, or build one from the demonstrations it names and keep it in the cache.

For a bare path, the format is told by its files, where a reader of this package has it; notes say what it assumed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

from besttake import registry
from besttake.demos import hdf5
from besttake.demos.base import Source
from besttake.demos.build import BuildHooks, Options, build, build_cached
from besttake.demos.library import Library
from besttake.demos.video import PICTURES, VIDEOS
from besttake.encoders.base import Fitted
from besttake.encoders.cache import cached
from besttake.errors import LibraryError
from besttake.files import cache_dir

DEFAULT_ENCODER = "pixels"
_MARKS = {"lerobot": "meta/info.json", "run": "run.json"}
"""Files that tell the format of a directory."""
_KNOWN = (
    "a LeRobotDataset (meta/info.json), a run of BestTake (run.json), HDF5 files, videos and folders of pictures; other"
    " data are named by their scheme, as in rlds:DIR"
)
_MOST_FILES = 20_000
_DEPTHS = ("*", "*/*", "*/*/*")
"""Where the videos of a directory lie, or the pictures of its folders."""


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
        return registry.demos(f"{guess(Path(path))}:{path}{'?' if query else ''}{query}")  # type: ignore[no-any-return]
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


def guess(path: Path) -> str:
    """The scheme of the reader for ``path``; LibraryError where no reader of this package has its format."""
    for scheme, mark in _MARKS.items():
        if (path / mark).is_file():
            return scheme
    inner = [path] if path.is_file() else list(islice(path.iterdir(), _MOST_FILES))
    if any(each.suffix in hdf5.SUFFIXES and each.is_file() for each in inner):
        return "hdf5"
    if path.suffix.lower() in VIDEOS and path.is_file():
        raise LibraryError(f"{path} is one video; name the directory that it is in")
    if any(
        each.suffix.lower() in (*VIDEOS, *PICTURES)
        for depth in _DEPTHS
        for each in islice(path.glob(depth), _MOST_FILES)
    ):
        return "video"
    raise LibraryError(f"{path}: its format is not known; there are {_KNOWN}")
