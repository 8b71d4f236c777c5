"""Memory that a worker and its parent share, so that pictures do not go through the pipe.

It has no name (a memfd): it is gone when both processes are, however they end, and nothing is left in /dev/shm. A
worker writes the pictures of a take into the region of its slot. The parent copies them out when it receives the
answer, and only after that gives the slot another order: no region is written before it was read.
"""

from __future__ import annotations

import mmap
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from besttake.takes.messages import Answer, Need
from besttake.types import U8

_REGION = 2 << 20
_REGIONS = 64
_WORTH = 64 << 10
"""Fewer bytes go through the pipe as fast (``python -m bench observations``)."""


@dataclass(frozen=True)
class Place:
    """Where a picture lies, in place of the picture."""

    at: int
    shape: tuple[int, ...]


@contextmanager
def created() -> Iterator[tuple[Memory | None, list[int]]]:
    """New memory, of which only what is written is taken, and its descriptor for the other side, open until the end.

    None where the system has no such memory, or no more. It costs us a descriptor as long as it lasts, so the second
    half of those that we may open is left for workers: they need one each in any case.
    """
    memory, descriptors = None, list[int]()
    with suppress(OSError, ValueError, AttributeError):
        descriptors.append(os.memfd_create("besttake"))
        os.ftruncate(descriptors[0], _REGION * _REGIONS)
        if len(os.listdir("/proc/self/fd")) < _most_descriptors() // 2:
            memory = Memory(descriptors[0])
    try:
        yield memory, descriptors if memory is not None else []
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _most_descriptors() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else most


class Memory:
    """One side's view of it. Pictures that do not fit go through the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._bytes = np.frombuffer(mmap.mmap(descriptor, _REGION * _REGIONS), np.uint8)

    def put(self, answers: Sequence[Answer]) -> list[Answer]:
        """The answers with pictures moved here."""
        return [self._moved(answer) if isinstance(answer, Need) else answer for answer in answers]

    def get(self, answers: Sequence[Answer]) -> list[Answer]:
        """The answers with pictures of their own again."""
        return [self._restored(answer) if isinstance(answer, Need) else answer for answer in answers]

    def _moved(self, need: Need) -> Need:
        pictures, at, places = need.observation.images, need.slot * _REGION, dict[str, Any]()
        total = sum(picture.nbytes for picture in pictures.values())
        plain = all(picture.dtype == np.uint8 for picture in pictures.values())
        if not plain or need.slot >= _REGIONS or not _WORTH <= total <= _REGION:
            return need
        for camera, picture in pictures.items():
            self._bytes[at : at + picture.size] = picture.reshape(-1)
            places[camera] = Place(at, picture.shape)
            at += picture.size
        return replace(need, observation=replace(need.observation, images=places))

    def _restored(self, need: Need) -> Need:
        images: dict[str, Any] = dict(need.observation.images)
        if not any(isinstance(image, Place) for image in images.values()):
            return need
        own = {camera: self._copy(place) for camera, place in images.items()}
        return replace(need, observation=replace(need.observation, images=own))

    def _copy(self, place: Place) -> U8:
        size = int(np.prod(place.shape))
        return self._bytes[place.at : place.at + size].reshape(place.shape).copy()
