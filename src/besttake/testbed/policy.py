"""The testbed's small policies: ``testbed:half``, ``few``, ``alt``, ``mid``, ``strong``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from besttake.core.retrieve import warm_start
from besttake.errors import ComponentError
from besttake.options import Reader
from besttake.takes.draws import Draw
from besttake.testbed import network
from besttake.testbed.network import HORIZON, FlowNet, Weights
from besttake.testbed.tasks import ACTION_DIM, STATE_DIM
from besttake.types import F32, Observation, PolicySpec, Warms

NAMES = ("half", "few", "alt", "mid", "strong")
REPLAN = 8

WEIGHTS = Path(__file__).parent / "weights"


class TestbedPolicy:
    """A flow-matching MLP over the state. It perceives objects a few millimetres off, by a new error in each chunk."""

    __test__ = False

    def __init__(self, name: str, weights: Weights, replan: int, perception_mm: float) -> None:
        self._net = FlowNet(weights)
        self._perception_error = np.float32(perception_mm / 1000)
        self.spec = PolicySpec(
            name=f"testbed:{name}", kind="flow", horizon=HORIZON, action_dim=ACTION_DIM, replan=replan,
            state_dim=STATE_DIM, warm_start=True, cools=True, small=True,
            fingerprint=weights.fingerprint(replan, perception_mm),
        )  # fmt: skip

    def sample(self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Warms = None) -> F32:
        """One chunk per row, float32 (B, 10, 4); a row has the same bits alone and in any batch."""
        if not observations:
            return np.zeros((0, HORIZON, ACTION_DIM), np.float32)
        noise = np.stack([draw.normal((HORIZON, ACTION_DIM)) for draw in draws])
        for row, start in enumerate(warm or ()):
            if start is not None:
                chunk = None if start.chunk is None else self._net.normalise(start.chunk)
                noise[row] = warm_start(noise[row], start.noise, start.prior, chunk)
        return self._net(noise, self.perceive(observations, draws))

    def perceive(self, observations: Sequence[Observation], draws: Sequence[Draw]) -> F32:
        """The states (B, 20) as the policy perceives them: objects and goals a few millimetres off."""
        errors = self._perception_error * np.stack([draw.normal((6,), "perception") for draw in draws])
        return network.perceive(np.stack([observation.state for observation in observations]), errors)


def make(
    rest: str, replan: int | str = REPLAN, perception_mm: float | str = network.PERCEPTION_METRES * 1000
) -> TestbedPolicy:
    """The policy ``testbed:rest``; ``replan`` of its 10 actions are executed before it looks again."""
    if rest not in NAMES:
        raise ComponentError(f"testbed:{rest}: no such policy; choose one of {', '.join(NAMES)}")
    read = Reader(f"testbed:{rest}")
    steps, error = read.whole("replan", replan, most=HORIZON), read.number("perception_mm", perception_mm, least=0)
    return TestbedPolicy(rest, Weights.read(WEIGHTS / f"{rest}.safetensors"), steps, error)
