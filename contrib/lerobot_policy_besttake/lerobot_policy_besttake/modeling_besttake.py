"""A policy of a run in one arm, as LeRobot runs policies: one action per call, for each row of a batch.

The arm is BestTake's own (`besttake.policies.augmented`, which `besttake serve` serves). This module turns LeRobot's
tensors into observations and keeps, for each row, its episode so far, its draw and the actions that are left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.pretrained import PreTrainedPolicy

from besttake import registry
from besttake.arms.retrieve import settings_of
from besttake.core.retrieve import RetrievalConfig
from besttake.errors import ComponentError
from besttake.policies import augmented
from besttake.policies.augmented import AugmentedPolicy, EpisodeHistory
from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.takes.manifest import Manifest, check_same_identity
from besttake.threads import one_thread
from besttake.types import F32, Observation
from lerobot_policy_besttake.configuration_besttake import BesttakeConfig

STATE, TASK = "observation.state", "task"


@dataclass
class _Row:
    """The episode of one row of the batch. ``ready``: actions that were sampled and not yet executed."""

    draw: Draw
    history: EpisodeHistory
    ready: deque[F32] = field(default_factory=deque)


class BesttakePolicy(PreTrainedPolicy):  # type: ignore[misc]
    """The policy type ``besttake``."""

    config_class = BesttakeConfig
    name = "besttake"

    def __init__(self, config: BesttakeConfig, **_: Any) -> None:
        super().__init__(config)
        self.wrapped = in_arm(config, policy_of(config))
        self._rows: list[_Row] = []
        self._played = self._rounds = 0

    @classmethod
    def from_pretrained(
        cls, pretrained_name_or_path: str | Path, *, config: PreTrainedConfig | None = None, **_: Any
    ) -> BesttakePolicy:
        """Load nothing: the weights are those of the wrapped checkpoint."""
        known = config if config is not None else PreTrainedConfig.from_pretrained(pretrained_name_or_path)
        return cls(known).eval()  # type: ignore[no-any-return]

    def reset(self) -> None:
        """Begin a new episode in every row."""
        self._played += len(self._rows)
        self._rounds += bool(self._rows)
        self._rows = []

    def select_action(self, batch: dict[str, Any], **_: Any) -> Any:
        """The next action of each row, (B, action_dim)."""
        seen = self._observations(batch)
        task = self.config.task.rpartition("/")[2]
        self._rows = self._rows or [_Row(self._draw(row), EpisodeHistory(task)) for row in range(len(seen))]
        if len(seen) != len(self._rows):
            raise ComponentError(f"{self.wrapped.spec.name}: {len(seen)} rows in episodes of {len(self._rows)}")
        for row, one in zip(self._rows, seen, strict=True):
            row.history.states.append(one.state)
        due = [index for index, row in enumerate(self._rows) if not row.ready]
        chunks = self._sampled([self._rows[index] for index in due], [seen[index] for index in due])
        for index, chunk in zip(due, chunks, strict=True):
            self._rows[index].ready.extend(chunk[: self.wrapped.spec.replan])
        actions = [row.ready.popleft() for row in self._rows]
        for row, action in zip(self._rows, actions, strict=True):
            row.history.actions.append(action)
        return torch.from_numpy(np.stack(actions)).to(self.config.device)

    def predict_action_chunk(self, batch: dict[str, Any], **_: Any) -> Any:
        """Raise an error: an arm has to know which actions are executed, so only `select_action` works."""
        raise NotImplementedError("a besttake policy acts step by step: use select_action (--inference.type=sync)")

    def forward(self, batch: dict[str, Any]) -> Any:
        """Nothing is trained."""
        raise NotImplementedError("a besttake policy is frozen: train the checkpoint that it wraps")

    def get_optim_params(self) -> Any:
        """Nothing is trained."""
        raise NotImplementedError("a besttake policy is frozen: train the checkpoint that it wraps")

    def _draw(self, row: int) -> Draw:
        """Return the draw of an episode: that of the n-th connection of `besttake serve`, or of a take of a start."""
        if self.config.task:
            return Draw(self.config.seed, self.config.task, self.config.start + self._played + row, 0)
        return Draw(self.config.seed, "connection", row, self._rounds)

    def _sampled(self, rows: Sequence[_Row], seen: Sequence[Observation]) -> list[F32]:
        """The next chunk (horizon, action_dim) of each row."""
        if not rows:
            return []
        draws = [row.draw for row in rows]
        with one_thread():
            if isinstance(self.wrapped, AugmentedPolicy):
                chunks: Sequence[Any] = self.wrapped.follow_all(seen, draws, [row.history for row in rows])
            else:
                chunks = list(self.wrapped.sample(seen, draws))
        for row, chunk in zip(rows, chunks, strict=True):
            if isinstance(chunk, Exception):
                raise chunk
            row.draw = row.draw.at(row.draw.chunk + 1)
        return list(chunks)

    def _observations(self, batch: Mapping[str, Any]) -> list[Observation]:
        """Each row as BestTake's policies see it: uint8 pictures by camera, float32 states."""
        missing = [key for key in (*self.config.cameras.values(), STATE) if key not in batch]
        if missing:
            have = ", ".join(key for key in batch if key.startswith("observation."))
            raise ComponentError(
                f"{self.wrapped.spec.name} needs {', '.join(missing)}; the observation has {have or 'nothing'}"
                " (rename with --rename_map)"
            )
        states = batch[STATE].detach().cpu().numpy().astype(np.float32, copy=False)
        pictures = {camera: _pictures(batch[key]) for camera, key in self.config.cameras.items()}
        words = batch.get(TASK) or [""] * len(states)
        return [
            Observation({camera: own[row] for camera, own in pictures.items()}, state, words[row] or "")
            for row, state in enumerate(states)
        ]


def _pictures(tensor: Any) -> Any:
    """Pictures, float (B, 3, H, W) from 0 to 1, as uint8 (B, H, W, 3): exactly those that they were made of."""
    grey = (tensor.detach().float() * 255).round().clamp(0, 255).to(torch.uint8)
    return np.ascontiguousarray(grey.permute(0, 2, 3, 1).cpu().numpy())


def policy_of(config: BesttakeConfig) -> Policy:
    """Load the policy that ``config`` wraps; RunError if it is no longer the one of the run."""
    run = Path(config.run)
    policy = registry.policy(registry.FromFile(config.wraps, run / "result.json"))
    name = f"policy {config.policy_name}"
    if (known := Manifest.read(run).identity.get(name)) is not None:
        check_same_identity(run, name, known, policy.spec.fingerprint)
    return policy


def in_arm(config: BesttakeConfig, policy: Policy) -> Policy:
    """The policy in the arm that ``config`` names, as `besttake serve` makes it."""
    run, arm = Path(config.run), registry.Uri.parse(config.arm)
    dials = {key: value for key in ("noise", "prior") if (value := getattr(config, key)) is not None}
    if arm.scheme == "base":
        return policy
    if arm.scheme == "cooled":
        noise = dials.get("noise", arm.options.get("noise", noise_of(Manifest.read(run), config.policy_name)))
        return augmented.cooled(policy, float(noise))
    if arm.scheme == "retrieve":
        library, retrieval = augmented.read_retrieval(run, config.policy_name)
        return augmented.retrieving(
            policy, library, retrieval.changed({**settings_of(config.arm, arm.options), **dials})
        )
    raise ComponentError(f"the arm {config.arm} cannot be played by LeRobot; choose base, cooled or retrieve")


def noise_of(manifest: Manifest, policy: str) -> float:
    """The noise of the arm ``cooled`` of a policy in its run."""
    chosen = manifest.identity.get(f"retrieval {policy}") or manifest.identity.get("retrieval")
    if chosen is not None:
        return RetrievalConfig.from_dict(chosen).noise
    return float(manifest.identity.get("noise", RetrievalConfig().noise))
