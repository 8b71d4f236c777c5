"""Every LeRobot family under BestTake against LeRobot alone, on tiny random models of the real classes.

    python -m bench.families [NAME ...]          # in the environment of tests/integration/lerobot

It prints the table of docs/policies.md.

LeRobot's side is its own loader, its own processors and `select_action`, called once per step of one replan, with
torch's first normal draw answered by the row's noise, or torch seeded where a family takes none. BestTake's side is
`registry.policy("lerobot:…").sample`. The number is the largest difference of an action that would be played.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from besttake import registry
from besttake.takes.draws import Draw
from besttake.types import Observation, PolicySpec

TINY = Path(__file__).resolve().parents[1] / "tests/integration/lerobot"
TITLES = {
    "pi0": "pi0",
    "pi05": "pi0.5",
    "relative": "pi0.5, relative actions",
    "smolvla": "SmolVLA",
    "diffusion": "DiffusionPolicy, DDIM",
    "ddpm": "DiffusionPolicy, DDPM",
    "multi_task": "multi-task DiT, diffusion",
    "multi_task_flow": "multi-task DiT, flow matching",
    "eo1": "EO-1",
    "vla_jepa": "VLA-JEPA",
    "xvla": "X-VLA, `action_mode=auto`",
    "groot": "GR00T N1.7",
    "wall_x": "WALL-X",
    "molmoact2": "MolmoAct2, continuous",
    "evo1": "EVO-1",
    "pi0_fast": "pi0-FAST, `temperature=1`",
    "act": "ACT",
    "vqbet": "VQ-BeT",
    "tdmpc": "TD-MPC",
    "gaussian_actor": "Gaussian actor (SAC)",
}
OPTIONS = {"pi0_fast": "temperature=1"}
SAID = {"molmoact2": {"inference_action_mode": "continuous"}}
"""What a user of LeRobot must say, and BestTake settles by itself."""


def observations(count: int) -> list[Observation]:
    rng = np.random.default_rng(3)
    return [
        Observation(
            {camera: rng.integers(0, 256, (64, 64, 3), np.uint8) for camera in ("agentview", "wrist")},
            rng.normal(0, 0.3, 8).astype(np.float32),
            ("pick up the cube", "open the drawer and stack it")[row % 2],
        )
        for row in range(count)
    ]


def compare(directory: Path, options: str = "") -> tuple[PolicySpec, float]:
    """The spec of a checkpoint, and how far its actions are from LeRobot's own."""
    ours: Any = registry.policy(f"lerobot:{directory}?{options}", trust_remote_code=True)
    own, before, after = lerobots(directory, options)
    worst = 0.0
    for row, seen in enumerate(observations(2)):
        draw = Draw(5, "task", start=row, seed=0)
        chunk = ours.sample([seen], [draw])[0]
        theirs = played(own, before, after, seen, draw, ours._family.latent, ours.spec.replan)
        worst = max(worst, float(np.abs(chunk[: len(theirs)] - theirs).max()))
    return ours.spec, worst


def lerobots(directory: Path, options: str = "") -> tuple[Any, Any, Any]:
    """Policy, preprocessor and postprocessor as LeRobot loads them."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    config = PreTrainedConfig.from_pretrained(directory)
    for key, value in (option.split("=") for option in options.split("&") if option):
        setattr(config, key, float(value))
    for key, said in SAID.get(config.type, {}).items():
        setattr(config, key, said)
    policy = get_policy_class(config.type).from_pretrained(directory, config=config).eval()
    return policy, *make_pre_post_processors(config, pretrained_path=str(directory))


def played(
    own: Any, before: Any, after: Any, seen: Observation, draw: Draw, latent: tuple[int, ...], steps: int
) -> Any:
    """(steps, action_dim): what LeRobot's own loop executes at ``seen``, with the noise of ``draw``."""
    import torch

    raw: dict[str, Any] = {"task": [seen.instruction], "observation.state": torch.from_numpy(seen.state)[None]}
    pictures = {"image": "agentview", "image2": "wrist"}
    for key in own.config.input_features:
        if camera := pictures.get(key.rpartition(".")[2]):
            raw[key] = torch.from_numpy(seen.images[camera]).permute(2, 0, 1)[None].float() / 255
    own.reset()
    with torch.inference_mode(), torch.random.fork_rng(), answered(draw, latent):
        torch.manual_seed(draw.integer())
        return np.concatenate([after(own.select_action(before(dict(raw)))).float().numpy() for _ in range(steps)])


@contextlib.contextmanager
def answered(draw: Draw, latent: tuple[int, ...]) -> Iterator[None]:
    """torch's draws by hand: the row's noise, then those of a generator seeded by it; `rand` is EVO-1's."""
    import torch

    if not latent:
        yield
        return
    plain, generator = torch.randn, torch.Generator().manual_seed(draw.integer())
    ready = [torch.from_numpy(draw.normal(latent))[None]]

    def answer(*_: Any, **__: Any) -> Any:
        return ready.pop() if ready else plain(latent, generator=generator)[None]

    def from_0_to_1(*_: Any, **__: Any) -> Any:
        return (torch.from_numpy(draw.uniform(latent)).reshape(1, -1) + 1) / 2

    with contextlib.ExitStack() as stack:
        for name, by_hand in (("randn", answer), ("normal", answer), ("rand", from_0_to_1)):
            stack.enter_context(mock.patch.object(torch, name, by_hand))
        yield


def arms(spec: PolicySpec) -> str:
    if spec.warm_start:
        return "all"
    return "base, cooled" if spec.cools else "base" if spec.kind != "deterministic" else "base (deterministic)"


def main(names: list[str]) -> None:
    os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=tempfile.mkdtemp(prefix="besttake-hf-"), OMP_NUM_THREADS="1")
    sys.path.insert(0, str(TINY))
    tiny: Any = importlib.import_module("tiny")

    print("| family | arms | denoising steps | largest difference |\n| --- | --- | --- | --- |")
    with tiny.shrunken_paligemma(), tempfile.TemporaryDirectory() as where:
        for name in names or TITLES:
            directory = Path(where) / name
            directory.mkdir()
            tiny.MAKERS[name](directory)
            spec, error = compare(directory, OPTIONS.get(name, ""))
            steps = spec.fingerprint.rpartition("/s")[2].partition("/")[0]
            print(f"| {TITLES[name]} | {arms(spec)} | {steps if steps.isdigit() else '-'} | {error:.0e} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
