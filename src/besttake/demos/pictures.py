"""Pictures of demonstrations at full size, for a policy to look at: read from a library's source."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from besttake import registry
from besttake.demos.base import Showing
from besttake.errors import BestTakeError, LibraryError
from besttake.types import U8

if TYPE_CHECKING:
    from besttake.demos.library import Library


class SourcePictures:
    """What the source of ``library`` shows, as long as it is still there and unchanged."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def can_show(self, cameras: Sequence[str]) -> bool:
        """Whether `show` can give these cameras."""
        return not cameras or (self._source is not None and self._source.shows(cameras))

    def show(self, demo: int, step: int, cameras: Sequence[str]) -> dict[str, U8]:
        """The pictures of ``cameras`` at a step of demonstration ``demo``."""
        if not cameras:
            return {}
        library = self._library
        if self._source is None or not self._source.shows(cameras):
            raise LibraryError(
                f"{library.path} cannot show {', '.join(cameras)}: {library.head.source} is gone or has none"
            )
        return self._source.show(library.demos[demo].id, step, cameras)

    @cached_property
    def _source(self) -> Showing | None:
        head = self._library.head
        try:
            source = None if head.shows is None else registry.demos(head.shows)
        except BestTakeError:
            return None
        same = source is not None and source.fingerprint == head.source_fingerprint
        return source if same and isinstance(source, Showing) else None
