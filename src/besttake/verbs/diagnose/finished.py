"""A finished run of the same plan and version prints its result: nothing is loaded, played or computed again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import besttake
from besttake.config import Plan
from besttake.errors import BestTakeError
from besttake.files import version
from besttake.registry import Uri
from besttake.result import Result
from besttake.takes.scores import Scores, run_digest
from besttake.takes.store import Store
from besttake.verbs.diagnose.identity import versions

_SPEED = {"workers", "batch", "patience", "on"}
"""Keys of a plan that change no number."""


def finished_result(plan: Plan, out: str | Path) -> Result | None:
    """Return the result of the run ``out`` if it answers ``plan`` as it is; None if something has to be done.

    The ordinary way is taken if a take or a scorer failed, a file is damaged, a file or folder that the plan names (or
    BestTake itself) was changed after the result, and for code of the user's own (``python:``, ``gym:MODULE:ID``).
    """
    directory = Path(out)
    try:
        result = Result.load(directory)
        made = (result.besttake, result.versions, _numbers(result.plan))
        if made != (version(), versions(), _numbers(plan.model_dump(mode="json"))):
            return None
        uris = [Uri.parse(text) for text in _uris(plan)]
        written = (directory / "result.json").stat().st_mtime
        if any(map(_is_own_code, uris)) or any(_changed(path, written) for path in _places(uris)):
            return None
        return result if _is_whole(directory, plan, result) else None
    except (BestTakeError, OSError, RuntimeError, ValueError):
        return None


def _numbers(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name not in _SPEED}


def _uris(plan: Plan) -> list[str]:
    single = [uri for uri in (plan.demos, plan.encoder) if isinstance(uri, str)]
    return [*plan.policy, *plan.env, *plan.arms, *plan.scorer, *single]


def _is_own_code(uri: Uri) -> bool:
    return uri.scheme == "python" or (uri.scheme == "gym" and ":" in uri.rest)


def _places(uris: Sequence[Uri]) -> Iterator[Path]:
    """Yield BestTake's own code and everything on the disk that a URI names."""
    yield Path(besttake.__file__).parent
    for uri in uris:
        yield from (Path(text).expanduser() for text in (f"{uri.scheme}:{uri.rest}", uri.rest, *uri.options.values()))


def _changed(path: Path, since: float) -> bool:
    """Whether a file, or any file of a folder, is newer than ``since``."""
    if not path.is_dir():
        return path.is_file() and path.stat().st_mtime > since
    inside = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    return any(file.lstat().st_mtime > since for file in inside if file.suffix != ".pyc")


def _is_whole(directory: Path, plan: Plan, result: Result) -> bool:
    """Whether no take failed, every scorer of the plan gave scores, and all files are what was written."""
    with Store.open(directory) as store:
        if store.damaged() or any(row.status != "done" for row in store.rows()):
            return False
        takes = store.digest()
    scores = Scores.open(directory)
    known = {name.partition(":")[0] for name in scores.scorers} if scores is not None else set()
    asked = {Uri.parse(uri).scheme for uri in plan.scorer} if scores is not None else set()
    return asked <= known and run_digest(takes, scores) == result.digest
