"""What ``library.json`` says: where a library comes from, how it was built, its demonstrations and its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from besttake.core.events import EventConfig
from besttake.demos.base import Bad
from besttake.errors import LibraryError, one_line
from besttake.files import read_json, write_text

FORMAT = 1
FILE = "library.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class EncoderHead(_Part):
    """The encoder of the frames: how to make it again, and how to know it."""

    uri: str
    name: str
    dim: int
    fingerprint: str


class StoredFile(_Part):
    """A file of the library."""

    size: int
    sha256: str


class DemoHead(_Part):
    """One demonstration: its steps, its embedded frames, the steps of its events, and where it comes from."""

    id: str
    task: str
    instruction: str
    length: int
    frames: int = 0
    events: tuple[int, ...]
    source: dict[str, Any]


class TunedHead(_Part):
    """The retrieval that was chosen for the library, and on what."""

    config: dict[str, Any]
    tuned_on: dict[str, Any]


class LibraryContent(_Part):
    """What makes a library the one that it is: the fingerprint covers this and the files.

    ``notes`` are remarks for the user: what the data were taken for.
    """

    format: int
    source_fingerprint: str
    encoder: EncoderHead
    camera: str
    fps: float
    stride: int
    pad: Literal["hold", "repeat"]
    action_dim: int | None
    state_dim: int | None
    gripper_dim: int | None
    eef_dims: tuple[int, ...] | None
    event_config: EventConfig
    demos: tuple[DemoHead, ...]
    left_out: tuple[Bad, ...]
    notes: tuple[str, ...] = ()


class LibraryHead(LibraryContent):
    """All of ``library.json``. ``shows`` is the URI of a source that can show its cameras to a policy.

    ``checksum`` covers all the rest of the file; libraries of older versions have none.
    """

    files: dict[str, StoredFile]
    source: str
    shows: str | None = None
    retrieval: TunedHead | None = None
    fingerprint: str
    checksum: str = ""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(
        cls, content: LibraryContent, files: Mapping[str, StoredFile], source: str, shows: str | None
    ) -> LibraryHead:
        """The head of a new library, with its fingerprint."""
        parts = {**content.model_dump(), "files": {name: file.model_dump() for name, file in files.items()}}
        fingerprint = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return cls(**parts, source=source, shows=shows, fingerprint=fingerprint)

    @classmethod
    def read(cls, directory: Path) -> LibraryHead:
        """The head of the library in ``directory``; LibraryError when it is missing, damaged or of a newer format."""
        damaged = f"{directory}/{FILE} is damaged"
        try:
            values = read_json(directory / FILE)
            version = _version(values["format"])
        except (FileNotFoundError, NotADirectoryError):
            raise LibraryError(
                f"{directory} is not a library (it has no {FILE}); make one with `besttake library build`"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LibraryError(f"{damaged} ({one_line(error, 150)}); build the library again") from error
        if version > FORMAT:
            raise LibraryError(
                f"{directory}/{FILE} was written by a newer BestTake (format {version}, this one knows {FORMAT});"
                " upgrade besttake"
            )
        if "checksum" in values and values["checksum"] != _checksum(values):
            raise LibraryError(
                f"{damaged} (it is not as it was written: its checksum differs); build the library again"
            )
        try:
            head = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise LibraryError(f"{damaged} ({place}: {first['msg']}); build the library again") from error
        if outside := [name for name in head.files if Path(name).name != name]:
            raise LibraryError(f"{damaged} ({outside[0]!r} is not the name of a file in it); build the library again")
        return head

    def write(self, directory: Path) -> None:
        """Write ``library.json``, whole or not at all."""
        values = json.loads(json.dumps(self.model_dump(exclude={"checksum"})))
        values["checksum"] = _checksum(values)
        write_text(directory / FILE, json.dumps(values, indent=1, sort_keys=True))


def _version(value: Any) -> int:
    if not isinstance(value, int) or not 0 < value < 1000:
        raise ValueError("its format is not the number of one")
    return value


def _checksum(values: Mapping[str, Any]) -> str:
    """The sha256 over all of ``values`` but the checksum itself."""
    rest = {name: value for name, value in values.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
