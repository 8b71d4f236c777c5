"""Every LeRobot family under BestTake against lerobot-eval, on tiny random models of the real classes.

    python -m bench.families [NAME ...]          # in the environment of tests/integration/lerobot

It prints the table of docs/policies.md.

LeRobot's side is what lerobot-eval does on LIBERO: its loader, the env's and the checkpoint's processors, autocast
where the config says so, and `select_action`, called once per step of one replan with what is seen at that step.
torch's first normal draw is answered by the row's noise; torch is seeded where a family takes none. BestTake's side is
`registry.policy("lerobot:…").sample`. The number is the largest difference of an action that would be played.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
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
    "fastwam": "FastWAM",
    "molmoact2": "MolmoAct2, continuous",
    "evo1": "EVO-1",
    "pi0_fast": "pi0-FAST, `temperature=1`",
    "act": "ACT",
    "vqbet": "VQ-BeT",
    "tdmpc": "TD-MPC",
    "gaussian_actor": "Gaussian actor (SAC)",
}
OPTIONS = {"pi0_fast": "temperature=1"}


def observations(count: int, size: int = 64) -> list[Observation]:
    rng = np.random.default_rng(3)
    return [
        Observation(
            {camera: rng.integers(0, 256, (size, size, 3), np.uint8) for camera in ("agentview", "wrist")},
            rng.normal(0, 0.3, 8).astype(np.float32),
            ("pick up the cube", "open the drawer and stack it")[row % 2],
        )
        for row in range(count)
    ]


def compare(directory: Path, options: str = "", size: int = 64) -> tuple[PolicySpec, float]:
    """The spec of a checkpoint, and how far its actions are from those that lerobot-eval plays.

    ``size`` is the edge of the env's pictures. What is seen after the first step may not reach actions that are already
    waiting, so it is something else; but not for relative actions, to which LeRobot 0.6.1 adds the state of the step at
    which each is played, though they were predicted from the state at which the chunk began (docs/policies.md).
    """
    ours: Any = registry.policy(f"lerobot:{directory}?width=1&{options}", trust_remote_code=True)
    theirs = lerobots(directory, options)
    worst = 0.0
    relative = getattr(theirs[0].config, "use_relative_actions", False)
    for row, seen in enumerate(observations(2, size)):
        draw = Draw(5, "task", start=row, seed=0)
        chunk = ours.sample([seen], [draw])[0]
        later = [seen if relative else moved(seen)] * (ours.spec.replan - 1)
        actions = played(theirs, [seen, *later], draw, ours._family.latent)
        worst = max(worst, float(np.abs(chunk[: len(actions)] - actions).max()))
    return ours.spec, worst


def lerobots(directory: Path, options: str = "", renamed: dict[str, str] | None = None) -> tuple[Any, Any, Any]:
    """Policy, preprocessor and postprocessor as lerobot-eval makes them for LIBERO; ``renamed`` is its rename_map."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.envs.configs import LiberoEnv
    from lerobot.policies.factory import make_policy, make_pre_post_processors

    config = PreTrainedConfig.from_pretrained(directory)
    config.pretrained_path = directory
    for key, value in (option.split("=") for option in options.split("&") if option):
        setattr(config, key, float(value))
    if config.type == "molmoact2":  # what a user of LeRobot must say, and BestTake settles by itself
        config.inference_action_mode = "continuous"
    policy = make_policy(config, env_cfg=LiberoEnv(), rename_map=renamed).eval()
    overrides = {
        "device_processor": {"device": str(config.device)},
        "rename_observations_processor": {"rename_map": renamed or {}},
    }
    return policy, *make_pre_post_processors(config, pretrained_path=str(directory), preprocessor_overrides=overrides)


def played(theirs: tuple[Any, Any, Any], seen: Sequence[Observation], draw: Draw, latent: tuple[int, ...]) -> Any:
    """(len(seen), action_dim): what lerobot-eval executes at each step of one replan, with the noise of ``draw``."""
    import torch
    from lerobot.envs.configs import LiberoEnv
    from lerobot.envs.utils import preprocess_observation

    own, before, after = theirs
    env_before, env_after = LiberoEnv().get_env_processors()

    def act(at: Observation) -> Any:
        pictures = {"image": at.images["agentview"], "image2": at.images["wrist"]}
        # Its env gives pictures upside down, and its env processor turns them.
        raised = {name: picture[None, ::-1, ::-1].copy() for name, picture in pictures.items()}
        raw = preprocess_observation({"pixels": raised, "agent_pos": at.state[None]})
        batch = before(env_before({**raw, "task": [at.instruction]}))
        with torch.inference_mode():
            action = own.select_action(batch)
        return env_after({"action": after(action)})["action"].float().numpy()

    own.reset()
    amp = torch.autocast(own.config.device) if own.config.use_amp else contextlib.nullcontext()
    with torch.no_grad(), amp, torch.random.fork_rng(), answered(draw, latent):
        torch.manual_seed(draw.integer())
        return np.concatenate([act(at) for at in seen])


def moved(seen: Observation) -> Observation:
    """Other pictures and another state."""
    images = {camera: 255 - picture for camera, picture in seen.images.items()}
    return Observation(images, seen.state + np.float32(0.1), seen.instruction)


@contextlib.contextmanager
def answered(draw: Draw, latent: tuple[int, ...]) -> Iterator[None]:
    """torch's draws by hand: the row's noise, then those of a generator seeded by it; `rand` is EVO-1's."""
    import torch

    plain, generator = torch.randn, torch.Generator().manual_seed(draw.integer())
    ready = [torch.from_numpy(draw.normal(latent))[None]]

    def answer(*_: Any, **__: Any) -> Any:
        return ready.pop() if ready else plain(latent, generator=generator)[None]

    def from_0_to_1(*_: Any, **__: Any) -> Any:
        return (torch.from_numpy(draw.uniform(latent)).reshape(1, -1) + 1) / 2

    by_hand: dict[str, Any] = {"randn": answer, "normal": answer, "rand": from_0_to_1} if latent else {}
    with contextlib.ExitStack() as stack:
        for name, call in by_hand.items():
            stack.enter_context(mock.patch.object(torch, name, call))
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
    with tempfile.TemporaryDirectory() as where:
        for name in names or TITLES:
            directory = Path(where) / name
            directory.mkdir()
            with contextlib.redirect_stdout(sys.stderr):  # LeRobot prints while it loads
                tiny.MAKERS[name](directory)
                spec, error = compare(directory, OPTIONS.get(name, ""))
            steps = spec.fingerprint.rpartition("/s")[2].partition("/")[0]
            denoises = spec.kind == "flow" and steps.isdigit()
            print(f"| {TITLES[name]} | {arms(spec)} | {steps if denoises else '-'} | {error:.0e} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
