"""The successful takes of a BestTake run as demonstrations: ``run:DIRECTORY``.

Each take is cut at its success, so that the policy's later actions are not part of the demonstration. Options: ``arm``
(``base`` by default, ``any`` for all), ``policy`` and ``env`` (URIs; only takes of that policy or env are used).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from besttake import registry
from besttake.arms import BASE
from besttake.demos.base import UnreadableDemo
from besttake.errors import BestTakeError, LibraryError
from besttake.takes.key import Row
from besttake.takes.store import Store
from besttake.types import Demo, EnvSpec


class RunDemos:
    """The successful takes of a run as demonstrations, in canonical order."""

    def __init__(self, path: str, arm: str = BASE, policy: str | None = None, env: str | None = None) -> None:
        self.name, self._path = f"run:{path}", path
        with Store.open(path) as store:
            successes = [row for row in store.rows() if row.status == "done" and row.success]
            self.fingerprint = store.digest()[:12] + f"-{arm}-{policy}-{env}"
        chosen = [row for row in successes if arm in ("any", row.key.arm) and policy in (None, row.key.policy)]
        self._rows = [row for row in chosen if env in (None, row.key.env)]
        if not self._rows:
            raise LibraryError(
                f"{self.name} has no successful takes of arm {arm} to learn from; see `besttake runs show`"
            )
        spec = _spec(self._rows, Path(path) / "takes.sqlite")
        self.camera, self.fps = spec.score_camera, spec.fps
        self.gripper_dim, self.gripper_open, self.eef_dims = spec.gripper_dim, spec.gripper_open, spec.eef_dims
        self._instructions = {task.name: task.instruction for task in spec.tasks}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Demo | UnreadableDemo]:
        return self.of_tasks(lambda _: True)

    def of_tasks(self, wanted: Callable[[str], bool]) -> Iterator[Demo | UnreadableDemo]:
        """Yield the takes whose task is ``wanted``."""
        with Store.open(self._path) as store:
            for row in self._rows:
                key = row.key
                if not wanted(key.task):
                    continue
                demo_id = f"{key.task}/{key.start}/{key.arm}/{key.seed}/{key.policy}"
                try:
                    take = store.load(row)
                except BestTakeError as error:
                    yield UnreadableDemo(demo_id, f"cannot be read ({error})")
                    continue
                length = take.steps if take.success_step is None else take.success_step
                before = take.frame_steps < length
                origin = {name: getattr(key, name) for name in ("policy", "env", "start", "arm", "seed")}
                yield Demo(
                    demo_id, key.task, take.frames()[before], take.frame_steps[before].astype(np.int64),
                    take.states[:length], take.actions[:length], self._instructions.get(key.task, ""), origin,
                )  # fmt: skip


make = RunDemos


def _spec(rows: list[Row], file: Path) -> EnvSpec:
    """The spec of the env in which the takes were played: it names the camera, the gripper and the end effector."""
    uris = sorted({row.key.env for row in rows})
    if len(uris) > 1:
        raise LibraryError(f"the takes come from {', '.join(uris)}; name one of them with ?env=…")
    with registry.opened_env(registry.FromFile(uris[0], file)) as env:
        return env.spec
