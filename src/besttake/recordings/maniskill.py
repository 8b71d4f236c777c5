"""ManiSkill: the JSON beside a trajectory file, with a success per episode.

Layout: ``mani_skill/utils/wrappers/record.py`` (``RecordEpisode``) of ManiSkill 3.0.1: ``env_info`` and ``episodes``,
each with ``episode_seed``, ``elapsed_steps``, ``success`` where the task has one, and ``reset_kwargs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from besttake.recordings.episodes import Episode, IngestError, Recording, outcome_at, whole


def is_trajectories(data: Any) -> bool:
    """Whether parsed JSON is that of a ManiSkill trajectory file."""
    return isinstance(data, dict) and isinstance(data.get("env_info"), dict) and isinstance(data.get("episodes"), list)


def read_trajectories(path: Path, data: Mapping[str, Any]) -> list[Recording]:
    """Read the episodes of a trajectory file. A start is the seed that the env was reset with."""
    env = str(data["env_info"].get("env_id") or "ManiSkill")
    episodes, without, unknown = [], 0, 0
    for number, episode in enumerate(data["episodes"]):
        if not isinstance(episode, dict):
            raise IngestError(f"{path}: episode {number} is no object, as ManiSkill writes")
        if "success" not in episode:
            without += 1
            continue
        seed = _seed(episode)
        if seed is None:
            unknown += 1
            continue
        won = outcome_at(f"{path}: episode {number}", _only(episode["success"]))
        episodes.append(Episode(env, str(seed), won, env=env, steps=whole(_only(episode.get("elapsed_steps")))))
    notes = []
    if without:
        notes.append(f"{path.name}: {without} episodes have no success and were left out")
    if unknown:
        notes.append(f"{path.name}: {unknown} episodes do not say the seed of their reset and were left out")
    if source := data.get("source_type"):
        notes.append(f"{path.name}: ManiSkill says that these episodes come from {source!s:.60}")
    place = path.resolve()
    words = "/".join([*place.parent.parts, path.stem])
    return [
        Recording(
            str(path), "ManiSkill trajectories", tuple(episodes), notes=tuple(notes), origin=str(place), words=words
        )
    ]


def _seed(episode: Mapping[str, Any]) -> int | None:
    reset = episode.get("reset_kwargs")
    given = _only(reset.get("seed")) if isinstance(reset, dict) else None
    seed = given if given is not None else _only(episode.get("episode_seed"))
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


def _only(value: Any) -> Any:
    """The one value of a list of one, which ManiSkill writes for one env."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
