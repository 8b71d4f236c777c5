"""Camera names of data sets: which camera sits in the hand, which one is scored, and which one a policy means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from besttake.errors import LibraryError


def match_cameras(wanted: Sequence[str], stored: Sequence[str], named: Mapping[str, str]) -> dict[str, str] | None:
    """Match each ``wanted`` camera with one of the ``stored`` cameras of a data set; None unless all have a match.

    A camera is matched as ``named`` by the user; else by its name or last word (``observation.images.wrist`` is
    ``wrist``); else the only wrist camera with the only wrist camera, and the only other one with the only other one.
    """
    in_hand, matches = wrist_cameras(stored), {}
    for camera in wanted:
        candidates = [s for s in stored if named.get(camera, camera) in (s, last_word(s))]
        if camera not in named and not candidates and sum(is_wrist(w) == is_wrist(camera) for w in wanted) == 1:
            candidates = [s for s in stored if (s in in_hand) == is_wrist(camera)]
        if len(candidates) != 1:
            return None
        matches[camera] = candidates[0]
    return matches


def is_wrist(camera: str) -> bool:
    """Whether a camera's name says that it sits in the hand; in LeRobot's LIBERO data sets its name is ``image2``."""
    return _says_wrist(camera) or last_word(camera) == "image2"


def wrist_cameras(cameras: Sequence[str]) -> list[str]:
    """The cameras of a data set that sit in the hand: those whose names say so, else ``image2`` beside ``image``."""
    named = [camera for camera in cameras if _says_wrist(camera)]
    if named or "image" not in map(last_word, cameras):
        return named
    return [camera for camera in cameras if last_word(camera) == "image2"]


def last_word(camera: str) -> str:
    """The last word of a camera's name: ``wrist`` for ``observation.images.wrist`` and ``observation/wrist``."""
    return re.split(r"[./]", camera)[-1]


def _says_wrist(camera: str) -> bool:
    return any(word in camera.lower() for word in ("wrist", "hand", "gripper"))


def choose_camera(cameras: Sequence[str], wanted: str | None, named: Mapping[str, str], source: str) -> tuple[str, str]:
    """The stored name of the camera to score by, and its name for the user.

    It is the ``wanted`` camera, by its name or last word; by default the wrist camera, else the first. ``named`` maps
    an env's camera names to stored names; a camera that has a wrist camera's name there counts as the wrist camera.
    """
    if wanted is None:
        in_hand = [stored for name, stored in named.items() if is_wrist(name)] or wrist_cameras(cameras)
        wanted = in_hand[0] if in_hand else cameras[0]
    for camera in cameras:
        if wanted in (camera, last_word(camera)):
            names = [name for name, stored in named.items() if stored in (camera, last_word(camera))]
            return camera, names[0] if names else camera
    raise LibraryError(f"{source} has no camera {wanted}; it has {', '.join(cameras)}")
