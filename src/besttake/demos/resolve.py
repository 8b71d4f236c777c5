"""From the name of demonstrations to a library: opened where it is one, else built once and kept in the cache."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from besttake import registry
from besttake.demos.base import Source
from besttake.demos.build import Options, Work, build, build_cached
from besttake.demos.checks import check_encoder_uri
from besttake.demos.guess import guess
from besttake.demos.library import Library
from besttake.encoders.base import Fitted
from besttake.encoders.cache import cached
from besttake.errors import LibraryError
from besttake.files import cache_dir

DEFAULT_ENCODER = "pixels"


def open_or_build(
    named: str, encoder: str | None = None, options: Options | None = None, work: Work | None = None
) -> Library:
    """The library that ``named`` means: a library's directory, or demonstrations (`source_of`) to build one from.

    ``encoder`` is a URI: by default the library's own, or `pixels` where one is built.
    """
    if not named.strip():
        raise LibraryError("`demos` is empty; name a library, a data set or a folder of videos")
    if encoder is not None and registry.Uri.parse(encoder).scheme == "python":
        registry.trust(encoder)  # a plan's was checked when the plan was read
    if not (Path(named) / "library.json").is_file():
        return build_at(None, named, encoder, options, work)
    library = Library.open(named)
    if encoder is not None:
        check_encoder_uri(library, encoder)
    return library


def build_at(
    out: Path | None, named: str, encoder: str | None = None, options: Options | None = None, work: Work | None = None
) -> Library:
    """Build a library of the demonstrations ``named`` in directory ``out``, or in the cache where it is None."""
    uri = encoder or DEFAULT_ENCODER
    options = replace(options or Options(), encoder_uri=uri)
    source, made = source_of(named), registry.encoder(uri)
    coder = made if isinstance(made, Fitted) else cached(made)
    if out is None:
        return build_cached(source, coder, cache_dir() / "libraries", options, work)
    return build(source, coder, out, options, work)


def source_of(named: str) -> Source:
    """The demonstrations ``named`` by a URI, or by a path whose format is guessed (`besttake.demos.guess`).

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
