"""What ``library.json`` says: where a library comes from, how it was built, its demonstrations and its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator, model_validator

from besttake.core.events import EventConfig
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.base import Bad
from besttake.errors import LibraryError, one_line
from besttake.files import read_json, write_text

FORMAT = 1
FILE = "library.json"
_LARGEST = 1 << 31
_BESIDE = ("source", "shows", "retrieval", "fingerprint", "checksum")
_CONFIG = TypeAdapter(RetrievalConfig)


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
    frames: int
    events: tuple[int, ...]
    source: dict[str, Any]


class TunedOn(_Part):
    """The starts of an env that a retrieval was chosen on; what else was tried is kept as it was written."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    env: str
    starts: list[int]


class TunedHead(_Part):
    """The retrieval that was chosen for the library, and on what."""

    config: dict[str, Any]
    tuned_on: TunedOn

    @field_validator("config")
    @classmethod
    def _is_a_configuration(cls, values: dict[str, Any]) -> dict[str, Any]:
        try:
            _CONFIG.validate_python(values)
            RetrievalConfig.from_dict(values)
        except (TypeError, ValueError) as error:
            raise ValueError(one_line(error, 100)) from error
        return values


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

    @model_validator(mode="after")
    def _fits_together(self) -> LibraryContent:
        """Every place that the head names exists: dimensions of actions and states, steps of demonstrations."""
        sizes = {
            "stride": self.stride, "encoder.dim": self.encoder.dim,
            "action_dim": self.action_dim, "state_dim": self.state_dim,
        }  # fmt: skip
        for name, size in sizes.items():
            if size is not None and not 0 < size < _LARGEST:
                raise ValueError(f"{name} is {size}"[:60])
        if self.gripper_dim is not None and not 0 <= self.gripper_dim < (self.action_dim or 0):
            raise ValueError(f"gripper_dim is {self.gripper_dim} where actions have {self.action_dim}"[:100])
        if self.eef_dims is not None and not all(0 <= dim < (self.state_dim or 0) for dim in self.eef_dims):
            raise ValueError(f"eef_dims are {self.eef_dims} where states have {self.state_dim}"[:100])
        for demo in self.demos:
            if not (0 < demo.length < _LARGEST and 0 <= demo.frames <= demo.length):
                raise ValueError(f"{demo.id[:60]} has {demo.frames} frames in {demo.length} steps"[:150])
            if not all(0 <= event < demo.length for event in demo.events):
                raise ValueError(f"{demo.id[:60]} has events outside its {demo.length} steps"[:150])
        return self


class LibraryHead(LibraryContent):
    """All of ``library.json``. ``shows`` is the URI of a source that can show its cameras to a policy.

    ``checksum`` covers all the rest of the file, ``fingerprint`` what makes the library the one that it is.
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
        head = cls(**parts, source=source, shows=shows, fingerprint="")
        return head.model_copy(update={"fingerprint": _fingerprint(head.model_dump())})

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
        if values.get("checksum") != _checksum(values) or values.get("fingerprint") != _fingerprint(values):
            raise LibraryError(
                f"{damaged} (it is not as it was written: its checksum differs); build the library again"
            )
        try:
            head = cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise LibraryError(f"{damaged} ({place}: {first['msg']}); build the library again") from error
        if outside := [name for name in head.files if Path(name).name != name or len(name) > 100]:
            raise LibraryError(
                f"{damaged} ({outside[0][:80]!r} is not the name of a file in it); build the library again"
            )
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


def _fingerprint(values: Mapping[str, Any]) -> str:
    """The sha256 over what makes a library the one that it is: the content and the files."""
    parts = {name: value for name, value in values.items() if name not in _BESIDE}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _checksum(values: Mapping[str, Any]) -> str:
    """The sha256 over all of ``values`` but the checksum itself."""
    rest = {name: value for name, value in values.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
