"""Check that a library is intact and fits the encoder, the env, the tasks and retrieval.

Each check raises `LibraryError` with one line that says what is wrong and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from besttake import registry
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.base import is_wrist
from besttake.encoders.base import Encoder
from besttake.errors import LibraryError
from besttake.types import EnvSpec, TaskSpec, World

if TYPE_CHECKING:
    from besttake.demos.library import Library


def check_content(library: Library) -> None:
    """Check the checksums of all files."""
    for name in library.head.files:
        library.file(name)


def check_encoder(library: Library, encoder: Encoder) -> None:
    """Check that the embeddings were made by ``encoder``."""
    own, other = library.head.encoder, encoder.spec
    if other.fingerprint != own.fingerprint:
        raise LibraryError(
            f"{library.path} was embedded by {own.uri} ({own.fingerprint}), not by {other.name} ({other.fingerprint});"
            " use that encoder or build the library again"
        )


def check_encoder_uri(library: Library, uri: str) -> None:
    """Check that the embeddings were made by the encoder that ``uri`` names."""
    if uri not in (library.head.encoder.uri, library.head.encoder.name):
        check_encoder(library, registry.encoder(uri))


def check_retrieval(library: Library, env: EnvSpec | World, config: RetrievalConfig | None = None) -> None:
    """Check that chunks can be retrieved for ``env``: camera, actions, states and events must match."""
    check_chunks(library, env)
    _check_size(library, env, "states", library.head.state_dim, env.state_dim)
    if config is None or config.rule != "frame":
        check_events(library)


def check_gripper(library: Library, env: EnvSpec | World) -> None:
    """Check that the library's gripper commands match those of ``env``, if both declare them."""
    head = library.head
    opens = getattr(env, "gripper_open", None)
    if head.gripper_dim is None or env.gripper_dim is None or opens is None:
        return
    own = head.event_config
    if own.gripper_open != opens or abs(own.gripper_threshold) > 0.25:
        way = "above" if own.gripper_open > 0 else "below"
        raise LibraryError(
            f"{library.path} has gripper commands that open {way} {own.gripper_threshold:g}, but those of {env.name}"
            f" open {'above' if opens > 0 else 'below'} 0; build it again with `gripper_as` {opens},{-opens}"
        )


def check_chunks(library: Library, env: EnvSpec | World) -> None:
    """Check that demonstrated chunks can be compared with those of a policy in ``env``: camera and actions match."""
    check_camera(library, env)
    _check_size(library, env, "actions", library.head.action_dim, env.action_dim)
    check_gripper(library, env)


def _check_size(library: Library, env: EnvSpec | World, what: str, here: int | None, there: int) -> None:
    if here is None:
        raise LibraryError(
            f"{library.path} holds no {what}, only pictures; it can score takes but not be retrieved from"
        )
    if here != there:
        raise LibraryError(
            f"{library.path} has {what} of {here} numbers, but {env.name} has {there}; use its own robot's"
        )


def check_camera(library: Library, env: EnvSpec | World) -> None:
    """Check that the library has wrist images if and only if ``env`` is scored by a wrist camera."""
    if is_wrist(library.head.camera) != is_wrist(env.score_camera):
        raise LibraryError(
            f"{library.path} shows camera {library.head.camera}, but {env.name} is scored by {env.score_camera};"
            " build it with the matching ?camera=…"
        )


def has_events(library: Library) -> bool:
    """Whether some demonstration has an event after its start."""
    return any(len(demo.events) > 1 for demo in library.demos)


def check_events(library: Library) -> None:
    """Check that some demonstration has an event after its start, so that retrieval has something to match."""
    if not has_events(library):
        known = library.head.gripper_dim is not None or library.head.eef_dims is not None
        raise LibraryError(
            f"{library.path} has no events beyond episode starts; retrieve by `rule` frame"
            + ("" if known else ", or build it again with `gripper_dim` and `eef_dims`")
        )


def check_tasks(library: Library, tasks: Sequence[TaskSpec], least: int = 1) -> list[str]:
    """Check that each task has ``least`` demonstrations, and return notes on how tasks were matched.

    If library and plan have one task each under different names, they are taken to be the same, and a note says so.
    A library without task names is used for all tasks.
    """
    notes = []
    for task in tasks:
        rows, matched = library.demos_of(task.name, task.instruction)
        if matched == "all" and any(library.tasks):
            if len(tasks) > 1 or len(library.tasks) > 1:
                rows = []
            else:
                notes.append(f"the library calls its task {library.tasks[0]!r}; it was taken for {task.name}")
        if len(rows) < least:
            raise LibraryError(
                f"{library.path} has {len(rows)} of the {least} demonstrations of {task.name} that are needed (its"
                f" tasks: {', '.join(library.tasks)}); add more, or leave the task out"
            )
    return notes
