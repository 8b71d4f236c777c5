"""What a policy of type ``besttake`` is: a run, one of its policies, and the arm to run it in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lerobot.configs.policies import PreTrainedConfig


@PreTrainedConfig.register_subclass("besttake")
@dataclass
class BesttakeConfig(PreTrainedConfig):  # type: ignore[misc]
    """A policy of a finished run, in one arm. ``python -m lerobot_policy_besttake RUN OUT`` writes it.

    Attributes:
        run: Directory of the run, whose library and chosen retrieval the arm uses.
        policy_name: Name of the policy in the run.
        wraps: URI of the policy.
        arm: ``base``, ``cooled`` or ``retrieve``, with options as in a plan (``cooled?noise=0.5``).
        noise: Another noise than the run's.
        prior: Another prior than the run's.
        seed: Seed of the sampling noise.
        cameras: LeRobot's image feature for each camera that the policy reads.
        task: With ``start``, draw the noise of BestTake's own takes: ``testbed/drawer`` is the task ``drawer`` of the
            env ``testbed:…``, and the n-th episode that is played is that of start ``start`` + n. Empty: draw as
            `besttake serve` does for a client that does not name its episodes.
        start: The first start, as in ``lerobot-eval --seed``.
    """

    run: str = ""
    policy_name: str = ""
    wraps: str = ""
    arm: str = "base"
    noise: float | None = None
    prior: float | None = None
    seed: int = 0
    cameras: dict[str, str] = field(default_factory=dict)
    task: str = ""
    start: int = 0

    @property
    def observation_delta_indices(self) -> None:
        """One observation at a time: arms remember earlier ones themselves."""
        return

    @property
    def action_delta_indices(self) -> None:
        """Nothing is trained."""
        return

    @property
    def reward_delta_indices(self) -> None:
        """Nothing is trained."""
        return

    def get_optimizer_preset(self) -> Any:
        """Nothing is trained."""
        raise NotImplementedError("a besttake policy is frozen: train the checkpoint that it wraps")

    def get_scheduler_preset(self) -> None:
        """Nothing is trained."""
        return

    def validate_features(self) -> None:
        """Its features are those of what it wraps."""
