"""Open the library that a path or URI names, or build one from the demonstrations it names and keep it in the cache.

The format of data at a bare path is recognised by its files, if this package has a reader for it.
"""

from __future__ import annotations

import os.path
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
"""The file by which each format of a directory is recognised."""
_KNOWN = (
    "a LeRobotDataset (meta/info.json), a run of BestTake (run.json), HDF5 files, videos and folders of pictures; other"
    " data are named by their scheme, as in rlds:DIR"
)
_MOST_FILES = 20_000
_DEPTHS = ("*", "*/*", "*/*/*")
"""Where to look for the videos of a directory, or the pictures of its folders."""


def open_or_build(
    named: str, encoder: str | None = None, options: Options | None = None, hooks: BuildHooks | None = None
) -> Library:
    """Open the library in the directory ``named``, or build one from the demonstrations ``named`` (`source_of`).

    ``encoder`` is a URI (default: the library's own encoder, or `pixels` for a new library).
    """
    if not named.strip():
        raise LibraryError("`demos` is empty; name a library, a data set or a folder of videos")
    if encoder is not None and registry.Uri.parse(encoder).scheme == "python":
        registry.trust(encoder)  # the encoder of a plan was checked when the plan was read
    if not (Path(named) / "library.json").is_file():
        return build_at(None, named, encoder, options, hooks)
    library = Library.open(named)
    if encoder not in (None, library.head.encoder.uri, library.head.encoder.name):
        library.check_encoder(registry.encoder(str(encoder)))
    return library


def build_at(
    out: Path | None, named: str, encoder: str | None = None, options: Options | None = None,
    hooks: BuildHooks | None = None,
) -> Library:  # fmt: skip
    """Build a library from the demonstrations ``named`` in directory ``out``, or in the cache if ``out`` is None."""
    uri = encoder or DEFAULT_ENCODER
    options = replace(options or Options(), encoder_uri=uri)
    source, opened = source_of(named), registry.encoder(uri)
    if not isinstance(opened, Fitted):
        opened = cached(opened, hooks.patience if hooks else None)
    if out is None:
        return build_cached(source, opened, cache_dir() / "libraries", options, hooks)
    return build(source, opened, out, options, hooks)


def source_of(named: str) -> Source:
    """The demonstrations ``named`` by a URI, or by a path whose format is recognised by its files (`guess`).

    A bare path may also have options: ``data/libero?camera=image``.
    """
    (scheme, colon, _), known = named.partition(":"), (*registry.schemes("demos"), "python")
    path, query = (named, "") if os.path.exists(named) else named.partition("?")[::2]
    if os.path.exists(path) and not (colon and scheme in known):
        return registry.demos(f"{guess(Path(path))}:{path}{'?' if query else ''}{query}")  # type: ignore[no-any-return]
    if colon or path in known:
        return registry.demos(named)  # type: ignore[no-any-return]
    hub = f"; on the hub it would be lerobot:{path}" if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path) else ""
    raise LibraryError(
        f"{path} is neither a library directory, nor data on this machine, nor a source (lerobot:…, hdf5:…){hub}"
    )


def guess(path: Path) -> str:
    """The scheme of the reader for ``path``; LibraryError if this package has no reader for its format."""
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
