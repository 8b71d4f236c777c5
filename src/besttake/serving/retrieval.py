"""What `besttake serve --retrieve` retrieves from, and how: from a library, or as a run was diagnosed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from besttake.core.retrieve import RetrievalConfig
from besttake.demos.library import Library
from besttake.errors import PlanError
from besttake.takes.manifest import Manifest


def retrieval_from(
    path: Path, policy: str = "", dials: Mapping[str, float | None] | None = None
) -> tuple[Library, RetrievalConfig]:
    """The library and the configuration that ``path`` names, a library or a run.

    ``dials``, noise and prior, override its own. In a run each policy has its own: ``policy`` is the one served.
    """
    if (path / "run.json").is_file():
        library, config = _of_run(path, policy)
    else:
        library = Library.open(path)
        config = RetrievalConfig()
    try:
        own = {name: value for name, value in (dials or {}).items() if value is not None}
        return library, config.changed(own)
    except ValueError as error:
        raise PlanError(str(error)) from None


def _of_run(path: Path, policy: str) -> tuple[Library, RetrievalConfig]:
    manifest = Manifest.read(path)
    if "retrieval" not in manifest.identity or not manifest.library:
        raise PlanError(f"{path} was diagnosed without retrieval, so there is none to serve; name a library instead")
    library = Library.open(manifest.library)
    if library.fingerprint != manifest.identity["library"]:
        raise PlanError(f"{library.path} is no longer the library that {path} was diagnosed with; diagnose again")
    own = {name: value for name, value in manifest.identity.items() if name.startswith("retrieval ")}
    alike = len({repr(value) for value in own.values()}) == 1
    chosen = next(iter(own.values())) if alike else own.get(f"retrieval {policy}")
    if own and chosen is None:
        names = ", ".join(name.partition(" ")[2] for name in own)
        raise PlanError(f"{path} was diagnosed with other policies ({names}), and each has a retrieval of its own")
    return library, RetrievalConfig.from_dict(chosen or manifest.identity["retrieval"])
