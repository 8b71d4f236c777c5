"""From the name of demonstrations to a library: opened where it is one, else built once and kept in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from besttake import registry
from besttake.demos.base import Source
from besttake.demos.checks import check_encoder_uri
from besttake.demos.library import Library, build, build_cached
from besttake.encoders.base import Encoder, Fitted
from besttake.encoders.cache import cached
from besttake.errors import LibraryError
from besttake.files import cache_dir

DEFAULT_ENCODER = "pixels"


def open_or_build(
    named: str,
    encoder: str | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    each: Callable[..., Iterable[Any]] = map,
    **options: Any,
) -> Library:
    """The library that ``named`` means: a library's directory, or demonstrations (`source_of`) to build one from.

    ``encoder`` is a URI: by default the library's own, or `pixels` where one is built. ``progress``, ``each`` and the
    ``options`` are those of `besttake.demos.build`.
    """
    if (Path(named) / "library.json").is_file():
        library = Library.open(named)
        if encoder is not None:
            check_encoder_uri(library, encoder)
        return library
    uri = encoder or DEFAULT_ENCODER
    return build_cached(
        source_of(named), _encoder(uri), cache_dir() / "libraries", encoder_uri=uri, progress=progress, each=each,
        **options,
    )  # fmt: skip


def build_at(out: Path, named: str, encoder: str | None = None, **options: Any) -> Library:
    """Build a library of the demonstrations ``named`` in directory ``out``."""
    uri = encoder or DEFAULT_ENCODER
    return build(source_of(named), _encoder(uri), out, encoder_uri=uri, **options)


def source_of(named: str) -> Source:
    """The demonstrations ``named`` by a URI, or by the path of a LeRobot data set or of a folder of videos."""
    path, (scheme, colon, _), known = Path(named), named.partition(":"), registry.schemes("demos")
    if path.is_dir() and not (colon and scheme in known):
        kind = "lerobot" if (path / "meta" / "info.json").is_file() else "video"
        return registry.demos(f"{kind}:{named}")  # type: ignore[no-any-return]
    if colon or named in known:
        return registry.demos(named)  # type: ignore[no-any-return]
    raise LibraryError(
        f"{named} is neither a library directory, nor a folder of videos, nor a source (lerobot:…, hdf5:…)"
    )


def _encoder(uri: str) -> Encoder | Fitted:
    encoder = registry.encoder(uri)
    return encoder if isinstance(encoder, Fitted) else cached(encoder)
