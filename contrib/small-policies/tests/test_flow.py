"""A small flow policy from a file: its contract, what it is told, what it sees, and what is wrong with a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from besttake import registry, testing
from besttake.errors import ComponentError
from besttake.takes.draws import Draw
from besttake.types import Observation, Warm

HORIZON, STATE, ACTION = 6, 5, 3
KNOWN = ("put it in the basket", "put it on the plate")


def write(path: Path, **changes) -> Path:
    """A random network; ``changes`` replace arrays."""
    rng = np.random.default_rng(4)
    sizes = [HORIZON * ACTION + 7 + len(KNOWN) + 16, 64, 64, HORIZON * ACTION]
    arrays = {
        "state_map": rng.normal(size=(STATE, 7)),
        "state_shift": rng.normal(size=7),
        "state_blur": 0.1 * np.eye(2, STATE),
        "action_mean": np.array([0.1, 0.0, -0.2]),
        "action_std": np.array([0.5, 0.2, 0.9]),
    }
    for index in range(3):
        arrays[f"w{index}"] = rng.normal(size=(sizes[index], sizes[index + 1])) / np.sqrt(sizes[index])
        arrays[f"b{index}"] = 0.1 * rng.normal(size=sizes[index + 1])
    metadata = {"horizon": str(HORIZON), "replan": "4", "instructions": json.dumps(KNOWN)}
    save_file({k: np.asarray(v, np.float16) for k, v in {**arrays, **changes}.items()}, path, metadata)
    return path


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "tiny.safetensors")


def situations(count):
    rng = np.random.default_rng(1)
    seen = [Observation({}, rng.normal(size=STATE).astype(np.float32), KNOWN[i % 2]) for i in range(count)]
    return seen, [Draw(3, "t", start=i, seed=i % 3, chunk=i % 4) for i in range(count)]


def test_it_keeps_the_contract_to_the_last_bit(file):
    policy = registry.policy(f"flow:{file}")
    told = ("shape", "repeat", "batch", "draw", "warm")
    assert testing.check_policy(policy, observations=situations(6)[0], atol=0.0) == told
    assert (policy.spec.horizon, policy.spec.action_dim, policy.spec.state_dim, policy.spec.replan) == (6, 3, 5, 4)
    assert policy.spec.name == "flow:tiny"


def test_it_flows_as_the_plain_loop_over_float64_does(file):
    from safetensors.numpy import load_file

    a = {k: v.astype(np.float64) for k, v in load_file(file).items()}
    seen, draws = situations(4)
    chunk = np.random.default_rng(2).uniform(-1, 1, (HORIZON, ACTION)).astype(np.float32)
    warm = [None, Warm(0.7), Warm(0.7, 0.3, chunk), None]
    sampled = registry.policy(f"flow:{file}").sample(seen, draws, warm)
    for got, observation, draw, start in zip(sampled, seen, draws, warm, strict=True):
        x = draw.normal((HORIZON, ACTION)).astype(np.float64)
        if start is not None:
            x = 0.7 * x + (0 if start.chunk is None else 0.3 * (chunk - a["action_mean"]) / a["action_std"])
        x = x.reshape(-1)
        state = observation.state + draw.normal((2,), "perception") @ a["state_blur"]
        told = [float(observation.instruction == known) for known in KNOWN]
        for step in range(10):
            angle = step / 10 * 2.0 ** np.arange(8) * np.pi / 4
            hidden = np.concatenate([x, state @ a["state_map"] + a["state_shift"], told, np.sin(angle), np.cos(angle)])
            for layer in range(2):
                hidden = hidden @ a[f"w{layer}"] + a[f"b{layer}"]
                hidden = hidden / (1 + np.exp(-hidden))
            x = x + 0.1 * (hidden @ a["w2"] + a["b2"])
        expected = np.clip(x.reshape(HORIZON, ACTION) * a["action_std"] + a["action_mean"], -1, 1)
        np.testing.assert_allclose(got, expected, atol=2e-5)


def test_neither_the_process_nor_the_number_of_threads_changes_a_bit(file):
    code = (
        "import sys, hashlib, numpy as np\n"
        "from besttake import registry\n"
        "from besttake.takes.draws import Draw\n"
        "from besttake.types import Observation\n"
        "states = np.random.default_rng(0).normal(0, 1, (20, 5)).astype(np.float32)\n"
        "policy = registry.policy('flow:' + sys.argv[1])\n"
        "sampled = policy.sample([Observation({}, s) for s in states], [Draw(0, 'p', i, 0) for i in range(20)])\n"
        "print(hashlib.sha256(sampled.tobytes()).hexdigest(), policy.spec.fingerprint)\n"
    )
    said = []
    for threads in ("1", "2"):
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        command = [sys.executable, "-c", code, str(file)]
        said.append(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
    assert said[0] == said[1] != ""


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("flow:absent.safetensors", "no such file"),
        ("flow:{file}?replan=7", "replan=7 is not a whole number from 1 to 6"),
        ("flow:{file}?replan=some", "replan=some is not a whole number"),
        ("flow:{file}?colour=red", "no option colour"),
    ],
)
def test_mistakes_give_one_clear_line(file, uri, told):
    with pytest.raises(ComponentError, match=told) as caught:
        registry.policy(uri.format(file=file))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_flow_policy_are_refused(tmp_path):
    (tmp_path / "text.safetensors").write_text("hello")
    write(tmp_path / "sizes.safetensors", w0=np.zeros((9, 64)))
    save_file({"w0": np.zeros((2, 2), np.float32)}, tmp_path / "other.safetensors")
    for name in ("text", "sizes", "other"):
        with pytest.raises(ComponentError, match="not a flow policy") as caught:
            registry.policy(f"flow:{tmp_path / name}.safetensors")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"w1": np.full((64, 64), np.nan)}, "w1 holds values that are not finite"),
        ({"action_std": np.array([0.5, 0.0, 0.9])}, "action_std has values that are not above zero"),
        ({"action_std": np.ones(4)}, "not a flow policy"),
        ({"w1": np.ones((64, 32))}, "not a flow policy"),
        ({"b2": np.ones(5)}, "not a flow policy"),
        ({"state_blur": np.ones((2, 3))}, "not a flow policy"),
        ({"state_shift": np.ones(3)}, "not a flow policy"),
        ({"state_map": np.ones(7)}, "not a flow policy"),
        ({"action_mean": np.ones((3, 1))}, "not a flow policy"),
    ],
)
def test_arrays_that_cannot_be_right_are_refused_when_the_file_is_read(tmp_path, changes, words):
    path = write(tmp_path / "wrong.safetensors", **changes)
    with pytest.raises(ComponentError, match=words):
        registry.policy(f"flow:{path}")
