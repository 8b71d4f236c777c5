import numpy as np
import pytest

from besttake.testbed.network import EULER_STEPS, HORIZON, SCALE, FlowNet, Weights, perceive, time_features
from besttake.testbed.policy import WEIGHTS
from besttake.testbed.tasks import World


@pytest.fixture(scope="module")
def weights():
    return Weights.read(WEIGHTS / "mid.safetensors")


def _textbook(weights, noise, state):
    """Euler integration of the MLP, one row, in float64 and without any of the network's arrangements."""
    w = {name: array.astype(np.float64) for name, array in weights.arrays.items()}
    x = noise.reshape(-1).astype(np.float64)
    for step in range(EULER_STEPS):
        hidden = np.concatenate([x, state * SCALE, time_features(step / EULER_STEPS)])
        for layer in range(3):
            before = hidden @ w[f"w{layer}"] + w[f"b{layer}"]
            hidden = before / (1 + np.exp(-before))
        x = x + (hidden @ w["w3"] + w["b3"]) / EULER_STEPS
    return np.clip(x.reshape(HORIZON, 4) * w["action_std"] + w["action_mean"], -1, 1)


def test_the_network_computes_what_the_textbook_says(weights):
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((5, HORIZON, 4), np.float32)
    states = rng.normal(0, 0.1, (5, 20)).astype(np.float32)
    got = FlowNet(weights)(noise, states)
    for row in range(5):
        np.testing.assert_allclose(got[row], _textbook(weights, noise[row], states[row]), atol=2e-4)


def test_misperceived_states_stay_consistent():
    world = World("pick")
    world.reset(1)
    noise = np.random.default_rng(5).normal(0, 0.01, (1, 6)).astype(np.float32)
    seen = perceive(world.state()[None], noise)[0]
    np.testing.assert_allclose(seen[10:13], seen[4:7] - seen[:3], atol=1e-6)
    np.testing.assert_allclose(seen[13:16], seen[7:10] - seen[4:7], atol=1e-6)
    np.testing.assert_allclose(seen[4:10] - world.state()[4:10], noise[0], atol=1e-6)
    assert np.array_equal(seen[:4], world.state()[:4])
