"""Which of its candidates the arm `rerank` executes, against the rule of `besttake.core.retrieve` in plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from besttake import registry
from besttake.arms.base import TakeState
from besttake.arms.sampler import ArmSampler, arm_sampler
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.takes.draws import Draw
from besttake.types import F32, Observation, PolicySpec, Start, Warm

TASKS = ("pick", "drawer")
STARTS = 4


@pytest.fixture(scope="module")
def library(cache: Path) -> Library:
    return open_or_build("testbed", "pixels", Options(max_demos=2))


@pytest.fixture(scope="module")
def requests() -> list[TakeState]:
    """The first replan of takes of two tasks in the arm `rerank`."""
    env = registry.env("testbed")
    found = []
    for task in TASKS:
        for start in range(STARTS):
            env.reset(Start(task, start))
            found.append(request(task, start, env.observe(("wrist",))))
    env.close()
    return found


def request(task: str, start: int, seen: Observation, arm: str = "rerank") -> TakeState:
    return TakeState(task, arm, Draw(0, task, start, 0), seen)


def sampler(policy: object, library: Library, candidates: int = 4) -> ArmSampler:
    world = registry.env("testbed").spec.world
    return arm_sampler(policy, world, RetrievalConfig(), library, library.encoder(), candidates)  # type: ignore[arg-type]


def task_demos(library: Library, task: str) -> list[int]:
    return [number for number, info in enumerate(library.demos) if info.task == task]


def demonstrated(library: Library, demo: int, step: int, horizon: int) -> F32:
    """Its actions from ``step`` on; past its end no motion, the gripper as it was."""
    assert library.actions is not None
    info, first = library.demos[demo], sum(before.length for before in library.demos[:demo])
    own = library.actions[first : first + info.length]
    rest = own[-1] * [0, 0, 0, 1]
    return np.stack([own[t] if t < info.length else rest for t in range(step, step + horizon)])


def distance(library: Library, asked: TakeState, chunk: F32) -> float:
    """How far ``chunk`` is from the nearest of those demonstrated at the ten frames most like what the take sees."""
    task = asked.task
    demos = task_demos(library, task)
    spread = np.concatenate([demonstrated(library, d, 0, library.demos[d].length) for d in demos]).std(axis=0)
    seen = library.encoder().encode(asked.observation.images["wrist"][None])[0]
    frames = [f for f in range(len(library.embeddings)) if library.frame_demo[f] in demos]
    alike = sorted(frames, key=lambda f: -float(library.embeddings[f] @ seen))[:10]
    gaps = []
    for frame in alike:
        shown = demonstrated(library, int(library.frame_demo[frame]), int(library.frame_step[frame]), len(chunk))
        gaps.append(float(np.sqrt(np.mean(((chunk - shown) / spread) ** 2))))
    return min(gaps)


def test_the_candidate_nearest_to_the_demonstrated_one_is_executed(library: Library, requests: list[TakeState]) -> None:
    policy = registry.policy("testbed:half")
    chosen = []
    for asked, actions in zip(requests, sampler(policy, library).sample(requests), strict=True):
        candidates = [policy.sample([asked.observation], [asked.draw.candidate(c)])[0] for c in range(4)]
        far = [distance(library, asked, chunk) for chunk in candidates]
        chosen.append(int(np.argmin(far)))
        assert np.array_equal(actions, candidates[chosen[-1]][: policy.spec.replan])
    assert len(set(chosen)) > 1, "a rule that always took the same candidate would have passed"


def test_one_candidate_is_base_and_other_arms_are_left_alone(library: Library, requests: list[TakeState]) -> None:
    policy = registry.policy("testbed:half")
    base = [request(r.task, r.draw.start, r.observation, "base") for r in requests]
    plain = sampler(policy, library).sample(base)
    assert all(map(np.array_equal, sampler(policy, library, 1).sample(requests), plain))
    mixed = [row for pair in zip(requests, base, strict=True) for row in pair]
    together, alone = sampler(policy, library).sample(mixed), sampler(policy, library).sample(requests)
    assert all(map(np.array_equal, together[::2], alone))
    assert all(map(np.array_equal, together[1::2], plain))


class Offers:
    """Candidate c of a take is ``chunk`` moved by ``moved[c]`` in every number."""

    spec = PolicySpec("offers", "tokens", horizon=10, action_dim=4, replan=8)

    def __init__(self, chunk: F32, moved: Sequence[float]) -> None:
        self.chunk, self.moved = chunk, moved

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        return np.stack([self.chunk + np.float32(self.moved[candidate(draw)]) for draw in draws])


def candidate(draw: Draw) -> int:
    return int(draw.task.split("#")[1]) if "#" in draw.task else 0


@pytest.fixture(scope="module")
def at_a_demo(library: Library) -> tuple[TakeState, F32]:
    """A take that sees the first frame of a demonstration, and what was done there."""
    frame = int(np.flatnonzero(library.frame_demo == task_demos(library, "drawer")[1])[0])
    seen = Observation({"wrist": library.frame_image(frame)}, np.zeros(20, np.float32))
    chunk = demonstrated(library, int(library.frame_demo[frame]), int(library.frame_step[frame]), 10)
    return request("drawer", 0, seen), chunk


@pytest.mark.parametrize("best", range(4))
def test_a_demonstrated_chunk_is_kept_wherever_it_stands(
    library: Library, at_a_demo: tuple[TakeState, F32], best: int
) -> None:
    asked, chunk = at_a_demo
    moved = [0.9, 0.6, 0.7, 0.8]
    moved[best] = 0.0
    assert np.array_equal(sampler(Offers(chunk, moved), library).sample([asked])[0], chunk[:8])
