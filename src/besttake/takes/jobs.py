"""Which takes are to be played, and with whose randomness: the same for a diagnosis and for tuning."""

from __future__ import annotations

from dataclasses import dataclass

from besttake import registry
from besttake.registry import Uri
from besttake.takes.draws import Draw
from besttake.takes.key import TakeKey
from besttake.takes.messages import Actor, Job
from besttake.types import EnvSpec, PolicySpec, TaskSpec


@dataclass(frozen=True)
class Block:
    """Takes of one policy in one env: every seed of every arm, from every start of every task."""

    policy: str
    env: str
    tasks: tuple[TaskSpec, ...]
    starts: tuple[int, ...]
    arms: tuple[str, ...]
    seeds: int

    def take_keys(self) -> list[TakeKey]:
        """The names of the takes, in the order in which they are played."""
        return [
            TakeKey(self.policy, self.env, task.name, start, arm, seed)
            for task in self.tasks for start in self.starts for arm in self.arms for seed in range(self.seeds)
        ]  # fmt: skip

    def jobs(
        self, policy: PolicySpec, env: EnvSpec, *, stride: int | None, goes_on: bool, actor: Actor | None = None
    ) -> list[Job]:
        """The takes as jobs. ``stride`` is between frames that are kept; None keeps those of the start only."""
        horizons = {task.name: task.horizon for task in self.tasks}
        cameras = {
            arm: tuple(dict.fromkeys((*policy.cameras, *([env.score_camera] if sees else []))))
            for arm in self.arms for sees in [registry.arm(arm).spec.score_camera]
        }  # fmt: skip
        return [
            Job(
                key, horizons[key.task], cameras[key.arm], env.score_camera, stride or horizons[key.task], goes_on,
                actor=actor,
            )
            for key in self.take_keys()
        ]  # fmt: skip


def take_draw(run_seed: int, key: TakeKey) -> Draw:
    """The randomness of a take: that of its start and seed, whatever the arm, the policy or the env's options."""
    return Draw(run_seed, f"{Uri.parse(key.env).scheme}/{key.task}", key.start, key.seed)


def probe_draw(run_seed: int, task: str, state: int, sample: int) -> Draw:
    """The randomness of one sample at one demonstrated state."""
    return Draw(run_seed, f"probe/{task}", start=state, seed=sample)
