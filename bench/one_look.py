"""What it saves that a policy looks once at an observation, with LeRobot's real pi0, pi0.5 and SmolVLA on a CPU.

    python -m bench.one_look [NAME ...]          # in the environment of tests/integration/lerobot

Random weights of some 100 million parameters, of which nearly all are in the part that sees. Printed are the time of a
chunk of the arm `retrieve` over that of `base`, and how much faster a whole diagnosis of four arms and three seeds on
the testbed is than one whose policy forgets what it saw after each call. Both sides in one run, which take turns.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["HF_HUB_OFFLINE"], os.environ["HF_HOME"] = "1", tempfile.mkdtemp(prefix="besttake-hf-")
TINY = Path(__file__).resolve().parents[1] / "tests/integration/lerobot"
sys.path.insert(0, str(TINY))

import tiny  # noqa: E402
import torch  # noqa: E402
from lerobot.policies.pi_gemma import PaliGemmaForConditionalGenerationWithPiGemma  # noqa: E402

from bench.timing import in_turn, machine, times_faster  # noqa: E402
from besttake import registry  # noqa: E402
from besttake.arms.base import TakeState  # noqa: E402
from besttake.arms.sampler import ArmSampler, arm_sampler  # noqa: E402
from besttake.config import Plan  # noqa: E402
from besttake.core.retrieve import RetrievalConfig  # noqa: E402
from besttake.demos.build import Options, build  # noqa: E402
from besttake.policies.look_cache import LookCache  # noqa: E402
from besttake.takes.draws import Draw  # noqa: E402
from besttake.types import Start  # noqa: E402
from besttake.verbs.diagnose.diagnosis import diagnose  # noqa: E402
from besttake.verbs.runs import summarise  # noqa: E402

ROBOT = tiny.Robot(state_dim=20, action_dim=4, cameras=("wrist",))
CHUNK, PLAYED, DENOISING, WIDTH = 20, 20, 10, 4
VISION = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
ENV, ARMS = "testbed:push", ("base", "cooled", "shuffled", "retrieve")
SETTINGS = {"chunk_size": CHUNK, "n_action_steps": PLAYED, "robot": ROBOT}
REMEMBERING = LookCache.sample


def checkpoint(name: str, directory: Path) -> None:
    """Save a policy of the class whose size is in the part that sees."""
    if name == "smolvla":
        layers = {"num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64}
        text = {"hidden_size": 768, "intermediate_size": 3072, **layers}
        vlm = tiny.smolvlm(directory.parent / f"{directory.name}-vlm", text=text, vision={**VISION, "image_size": 128})
        sizes = {"num_vlm_layers": 12, "expert_width_multiplier": 0.25, "resize_imgs_with_padding": (128, 128)}
        own = {"vlm_model_name": str(vlm), "load_vlm_weights": False, "num_steps": DENOISING}
        tiny.save(directory, name, **sizes, **own, **SETTINGS)
    else:
        tiny.paligemma_tokenizer()
        own = {"num_inference_steps": DENOISING, "image_resolution": (112, 112), "tokenizer_max_length": 64}
        tiny.save(directory, name, dtype="float32", **own, **SETTINGS)


def enlarge_paligemma() -> None:
    """From now on, pi0 and pi0.5 are made with some 100 million parameters that see, and few that act."""
    for module in (tiny.modeling_pi0, tiny.modeling_pi05):
        sizes = {"num_heads": 8, "num_kv_heads": 1, "head_dim": 64, "depth": 12}
        seeing = module.GemmaConfig(width=768, mlp_dim=3072, **sizes)
        acting = module.GemmaConfig(width=128, mlp_dim=256, **sizes)
        module.get_gemma_config = lambda variant, two=(acting, seeing): two["2b" in variant]
        module.PaliGemmaForConditionalGenerationWithPiGemma = sized


def sized(config: Any) -> Any:
    """PaliGemma with a small vision tower and the tokenizer's vocabulary."""
    config.text_config.vocab_size = len(tiny.tokenizer())
    for key, value in {**VISION, "patch_size": 14, "projection_dim": config.text_config.hidden_size}.items():
        setattr(config.vision_config, key, value)
    return PaliGemmaForConditionalGenerationWithPiGemma(config=config)


def sample(arms: ArmSampler, arm: str) -> None:
    """One chunk for each of a group of takes that are under way."""
    env, requests = registry.env(ENV), []
    for start in range(WIDTH):
        env.reset(Start("push", start))
        seen = env.observe(("wrist",))
        requests.append(TakeState("push", arm, Draw(0, "push", start, 0), seen, 1, [seen.state] * 2, [seen.state[:4]]))
    for chunk in arms.chunks(requests):
        if isinstance(chunk, Exception):
            raise chunk


def forgetful(self: LookCache, *rows: Any) -> Any:
    """What `LookCache.sample` does where nothing outlives a call."""
    return REMEMBERING(LookCache(self._policy), *rows)


def play(uri: str, library: Path, scratch: Path, digests: set[str]) -> None:
    """A diagnosis from nothing; ``digests`` gets that of its takes."""
    plan = Plan(
        policy=[uri], env=[ENV], demos=str(library), starts="2", seeds=3, arms=list(ARMS), workers=1, probe_states=4,
        check_states=8,
    )  # fmt: skip
    out = Path(tempfile.mkdtemp(dir=scratch))
    os.environ["BESTTAKE_CACHE"] = str(out / "cache")
    diagnose(plan, out / "run")
    digests.add(summarise(out / "run").takes_digest)


def play_forgetful(*given: Any) -> None:
    with mock.patch.object(LookCache, "sample", forgetful):
        play(*given)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    enlarge_paligemma()
    scratch = Path(tempfile.mkdtemp(prefix="besttake-bench-"))
    library = build(registry.demos(ENV), registry.encoder("pixels"), scratch / "library", Options(max_demos=2))
    print(machine())
    for name in names or ["pi0", "pi05", "smolvla"]:
        directory = scratch / name
        directory.mkdir()
        checkpoint(name, directory)
        uri, env = f"lerobot:{directory}?width={WIDTH}", registry.env(ENV)
        policy: Any = registry.policy(uri)
        env.reset(Start("push", 0))
        (look,) = policy.look([env.observe(("wrist",))])
        size = sum(each.numel() for each in policy._checkpoint.policy.parameters()) / 1e6
        config = RetrievalConfig(rule="frame", prior=0.2)
        arms = arm_sampler(policy, env.spec.world, config, library, library.encoder())
        calls = in_turn({arm: partial(sample, arms, arm) for arm in ("base", "retrieve")}, rounds=3)
        digests: set[str] = set()
        given = (uri, library.path, scratch, digests)
        runs = in_turn({"forgets": partial(play_forgetful, *given), "looks once": partial(play, *given)}, rounds=1)
        print(
            f"{name}, {size:.0f} M parameters, {look.nbytes / 1e6:.1f} MB per observation: retrieve costs"
            f" {times_faster(calls['retrieve'], calls['base'])} of base (wall, processor time); a diagnosis is"
            f" {times_faster(runs['forgets'], runs['looks once'])} times as fast as one that forgets,"
            f" {'same' if len(digests) == 1 else 'OTHER'} takes"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
