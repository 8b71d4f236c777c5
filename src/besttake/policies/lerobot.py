"""``lerobot:ORG/NAME`` or ``lerobot:DIRECTORY``: any LeRobot policy, with the processors saved with it.

The checkpoint's own preprocessor converts a chunk from environment space to the policy's space, as it does actions in
training (relative to the state if the checkpoint needs that, then normalised), and its postprocessor converts samples
back. Rows are sampled ``width`` at a time, the last group filled up, so that a row has the same bits in any batch.
`lerobot_checkpoint` loads a checkpoint from disk or hub; `lerobot_families` has the noise of each family (pi0, ACT, …).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from besttake.conventions import COMMANDS, Gripper
from besttake.core.retrieve import warm_start
from besttake.errors import ComponentError, one_clear_error, one_line
from besttake.options import Reader
from besttake.policies.lerobot_checkpoint import DTYPES, Checkpoint, LoadOptions, load, steps_key, trained_on
from besttake.policies.lerobot_families import (
    STATE,
    LiberoSteps,
    PolicyFamily,
    SeededFamily,
    family_of,
    images_in,
    resizes,
    sizes_of,
    turned_gripper,
    unfed,
)
from besttake.policies.look_cache import LookCache, Precomputed
from besttake.policies.remote import blank
from besttake.takes.draws import Draw
from besttake.types import F32, U8, Observation, PolicyKind, PolicySpec, Warm, Warms

CAMERA_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("image", "base_0_rgb"), "agentview"),
    **dict.fromkeys(("image2", "wrist_image", "left_wrist_0_rgb"), "wrist"),
}
NO_CAMERA = "none"
RAW = "raw"
INPUT_VERSION = 1
"""Part of the fingerprint. Raise it when pictures, states or instructions reach checkpoints in another way."""
_SERVE_IT = "serve it yourself and name it vla-eval:ws://host:port"

T = TypeVar("T")
Row = tuple[Precomputed, Draw, Warm | None]


def make(
    rest: str, *, map: str = "", state: str = "", gripper: str = RAW, width: str | int = 8,
    replan: str | int | None = None, steps: str | int | None = None, trust_remote_code: bool = False, **more: str,
) -> LerobotPolicy:  # fmt: skip
    """Load a checkpoint; docs/policies.md lists the options."""
    if not rest:
        raise ComponentError("lerobot: names no checkpoint; write lerobot:ORG/NAME or lerobot:DIRECTORY")
    read = Reader(f"lerobot:{rest}")
    named = ("map", "state", "gripper", "width", "replan", "steps")
    read.only((*named, *more), (*named, "device", "revision", "temperature", "dtype"))
    cameras, dims = read.mapping("map", map), read.indexes("state", state)
    rows, executed = read.whole("width", width), read.optional_whole("replan", replan)
    command = COMMANDS.get(read.choice("gripper", gripper, (RAW, *COMMANDS)))
    settings = LoadOptions(
        revision=more.get("revision"),
        device=more.get("device"),
        steps=read.optional_whole("steps", steps),
        temperature=read.number("temperature", more["temperature"], least=0) if "temperature" in more else None,
        dtype=read.choice("dtype", more["dtype"], DTYPES) if "dtype" in more else None,
    )
    checkpoint = load(rest, settings, trust_remote_code=trust_remote_code is True)
    return LerobotPolicy(checkpoint, cameras, dims, rows, executed, command)


class LerobotPolicy:
    """A LeRobot checkpoint as a policy.

    ``cameras`` maps image features to env cameras; ``dims`` are the indexes of the env's state that it reads
    (empty: all). With ``gripper`` the last number of its actions, 0 closed to 1 open, becomes such a command.
    """

    def __init__(
        self, checkpoint: Checkpoint, cameras: Mapping[str, str], dims: Sequence[int], width: int, replan: int | None,
        gripper: Gripper | None = None,
    ) -> None:  # fmt: skip
        name, config = f"lerobot:{checkpoint.name}", checkpoint.config
        if missing := ", ".join(unfed(config)):
            raise ComponentError(f"{name}: reads {missing}, which no env here gives; {_SERVE_IT}")
        self._checkpoint, self._state_dims, self._gripper = checkpoint, list(dims), gripper
        self._cameras, self._sizes = _camera_map(checkpoint, cameras)
        sizes = dict.fromkeys(f"{width} x {height}" for height, width in self._sizes.values())
        poses = config.type == "xvla" and config.action_mode == "ee6d"
        self._libero = LiberoSteps(checkpoint.before) if poses else None
        convention = trained_on(checkpoint) if self._libero is None else self._libero.convention
        trained = replace(convention, size=", ".join(sizes))
        if gripper is not None and trained.gripper is not None and trained.gripper.low != 0:
            raise ComponentError(f"{name}: ?gripper= turns 0 to 1, but this checkpoint's gripper is {trained.gripper}")
        self._turned_gripper = ([-1], gripper) if gripper is not None else turned_gripper(config)
        self._family: PolicyFamily = family_of(checkpoint.family, config, checkpoint.policy)
        self._resizes = self._family.resizes or resizes(config)
        self._width = 1 if self._family.alone else width
        # No camera if the observations are in the cache.
        self._uncached = {} if self._family.looks else self._cameras
        self._state_dim, action_dim = sizes_of(config) if self._libero is None else self._libero.sizes
        if dims and len(dims) != self._state_dim:
            raise ComponentError(f"{name}: state= names {len(dims)} numbers, the checkpoint reads {self._state_dim}")
        horizon = self._family.horizon
        steps = replan or min(self._family.replan, horizon)
        if steps > horizon:
            raise ComponentError(f"{name}: replan={steps} is more than the {horizon} of a chunk")
        noisy = bool(self._family.latent)
        # Some checkpoints of ALOHA (SmolVLA) and SO-101 (MolmoAct2) transform joints after sampling, which no saved
        # processor reverses.
        turns = any(getattr(config, key, None) for key in ("adapt_to_pi_aloha", "joint_signs"))
        warm_start = noisy and not turns and self._libero is None
        denoising = getattr(config, steps_key(config) or "", None)
        turned = "" if gripper is None else f"/g{gripper}"
        if temperature := getattr(config, "temperature", None):
            turned += f"/t{temperature:g}"
        settings = f"f{INPUT_VERSION}/r{steps}/s{denoising}{turned}{checkpoint.computes}"
        self.spec = PolicySpec(
            name=name, kind=self._family.kind, horizon=horizon, action_dim=action_dim,
            replan=steps, cameras=tuple(dict.fromkeys(self._cameras.values())), width=self._width,
            state_dim=None if dims else self._state_dim, warm_start=warm_start, cools=self._family.cools,
            fingerprint=f"{checkpoint.fingerprint}/w{self._width}/{settings}",
            convention=trained if gripper is None else replace(trained, gripper=gripper),
            turns_gripper=True,
            prompted=self._family.prompted or any(hasattr(step, "tokenizer_name") for step in checkpoint.before.steps),
            notes=(f"{checkpoint.family} policy", f"reads {self._reads()}", *self._family.notes),
        )  # fmt: skip
        self._shape = (horizon, self.spec.action_dim)
        if type(self._family) is SeededFamily:
            self.spec = replace(self.spec, kind=self._try_sampling())

    @property
    def cameras(self) -> dict[str, str]:
        """The env camera for each image feature of the checkpoint."""
        return dict(self._cameras)

    def sample(self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Warms = None) -> F32:
        """Sample one chunk per row, float32 (B, horizon, action_dim); rows of one observation share its `look`."""
        return LookCache(self).sample(observations, draws, warm)

    def look(self, observations: Sequence[Observation]) -> list[Precomputed]:
        """Compute what depends on each observation alone, if the family can do so."""
        if not self._family.looks:
            return [Precomputed(seen) for seen in observations]
        computed = [row for group in self._groups(observations) for row in self._look(group)]
        size_of = self._family.size_of
        return [Precomputed(seen, row, size_of(row)) for seen, row in zip(observations, computed, strict=False)]

    def sample_from(self, looks: Sequence[Precomputed], draws: Sequence[Draw], warm: Warms = None) -> F32:
        """Sample one chunk per row, float32 (B, horizon, action_dim)."""
        starts = warm or [None] * len(looks)
        self._check_warm(starts)
        rows = list(zip(looks, draws, starts, strict=True))
        return np.concatenate([self._sample(group) for group in self._groups(rows)])[: len(rows)]

    def latent(self, observations: Sequence[Observation], chunks: F32) -> Any:
        """Convert chunks (B, horizon, action_dim) of the env to latents (B, *latent) of the policy, a torch tensor."""
        if not self._family.latent:
            raise ComponentError(
                f"{self.spec.name}: a {self._checkpoint.family} policy has no latent; use the arm base"
            )
        if self._turned_gripper is not None:
            indexes, gripper = self._turned_gripper
            chunks = chunks.copy()
            chunks[..., indexes] = gripper.openness(chunks[..., indexes])
        return self._family.place(self._checkpoint.before(self._batch(observations, self._uncached, chunks))["action"])

    def _reads(self) -> str:
        """The sources of the checkpoint's inputs, as `besttake doctor` shows them."""
        sources = [f"{key} <- {camera}" for key, camera in self._cameras.items()]
        if self._state_dim is not None:
            dims = ",".join(map(str, self._state_dims)) or f"all {self._state_dim}"
            sources.append(f"{STATE} <- {dims} of the env's state")
        return ", ".join(sources) or "nothing"

    def _try_sampling(self) -> PolicyKind:
        """Sample an unknown class, to see whether that works and whether the draw makes a difference."""
        observations = [blank(self.spec.cameras, max(self._state_dims, default=(self._state_dim or 0) - 1) + 1)] * 2
        who = f"{self.spec.name}: this {self._checkpoint.family} policy"
        with one_clear_error(f"{who} cannot be sampled here ({{}}); {_SERVE_IT}"):
            first, second = self.sample(observations, [Draw(0, "trial", 0, seed) for seed in range(2)])
        return "deterministic" if np.array_equal(first, second) else "flow"

    def _groups(self, rows: Sequence[T]) -> list[list[T]]:
        """Split rows into groups of ``width``; the last row fills up the last group."""
        groups = [list(rows[first : first + self._width]) for first in range(0, len(rows), self._width)]
        groups[-1] += [rows[-1]] * (self._width - len(groups[-1]))
        return groups

    def _look(self, observations: Sequence[Observation]) -> Any:
        batch = self._checkpoint.before(self._batch(observations, self._cameras))
        return self._call(lambda policy: self._family.look(policy, batch))

    def _sample(self, rows: Sequence[Row]) -> F32:
        """Sample a group of rows: chunks (width, horizon, action_dim)."""
        noise, observations = None, [look.observation for look, _, _ in rows]
        if self._family.latent:
            import torch

            noise = torch.from_numpy(self._noise(rows)).to(self._checkpoint.config.device)
        draws, warms = [draw for _, draw, _ in rows], [warm for _, _, warm in rows]
        # Needed even if a look holds all inputs: processors may remember the state for the actions.
        batch = self._checkpoint.before(self._batch(observations, self._uncached))
        if self._family.looks:
            kept = [look.kept for look, _, _ in rows]
            return self._postprocess(self._call(lambda policy: self._family.sample_from(policy, kept, noise)))
        return self._postprocess(self._call(lambda policy: self._family.predict(policy, batch, noise, draws, warms)))

    def _call(self, call: Callable[[Any], Any]) -> Any:
        """Apply ``call`` to the policy, without gradients and in its precision."""
        import torch

        try:
            with torch.inference_mode(), self._checkpoint.under():
                return call(self._checkpoint.policy)
        except RuntimeError as error:
            if "dtype" not in str(error) and "ScalarType" not in str(error):
                raise
            device = f"on this {str(self._checkpoint.config.device).upper()}"
            why = f"cannot compute in its precision {device} ({one_line(error, 100)}); try ?dtype=float32"
            raise ComponentError(f"{self.spec.name}: {why}") from None

    def _noise(self, rows: Sequence[Row]) -> F32:
        """The noise, or warm start, of each row, float32 (width, *latent)."""
        noise = np.stack([self._family.noise(draw) for _, draw, _ in rows])
        chunks = np.zeros((len(rows), *self._shape), np.float32)
        given = {row: warm.chunk for row, (_, _, warm) in enumerate(rows) if warm and warm.chunk is not None}
        for row, chunk in given.items():
            chunks[row] = chunk
        observations = [look.observation for look, _, _ in rows]
        latents = self.latent(observations, chunks).float().cpu().numpy() if given else chunks
        for row, (_, _, warm) in enumerate(rows):
            if warm is not None:
                noise[row] = warm_start(noise[row], warm.noise, warm.prior, latents[row] if row in given else None)
        return noise

    def _postprocess(self, normalised: Any) -> F32:
        tensor = self._checkpoint.after(normalised[:, : self.spec.horizon])
        actions: F32 = (tensor if self._libero is None else self._libero.after(tensor)).float().cpu().numpy()
        if not np.isfinite(actions).all():
            raise ComponentError(
                f"{self.spec.name}: actions that are not finite (NaN or Inf); are its weights damaged?"
            )
        if actions.shape[1:] != self._shape:
            raise ComponentError(f"{self.spec.name}: chunks of {actions.shape[1:]} where its config says {self._shape}")
        if self._gripper is not None:
            actions[..., -1] = self._gripper.command(actions[..., -1])
        return actions

    def _batch(
        self, observations: Sequence[Observation], cameras: Mapping[str, str], chunks: F32 | None = None
    ) -> dict[str, Any]:
        """LeRobot's input: pictures of ``cameras``, float (B, 3, H, W) in 0..1, states, instructions and actions."""
        import torch

        batch: dict[str, Any] = {"task": [seen.instruction for seen in observations]}
        for key, camera in cameras.items():
            pictures = np.stack([self._picture(seen, key, camera) for seen in observations])
            if pictures.dtype != np.uint8:
                wrong = f"camera {camera} gives {pictures.dtype} pictures; observations hold uint8, 0 to 255"
                raise ComponentError(f"{self.spec.name}: {wrong}")
            if self._libero is not None and self._libero.turns_back(key):
                pictures = np.ascontiguousarray(pictures[:, ::-1, ::-1])
            # The memory layout of LeRobot: with channels last, convolutions round differently.
            batch[key] = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous().float() / 255
        if self._state_dim is not None:
            batch[STATE] = torch.from_numpy(np.stack([self._state(seen) for seen in observations]))
        if chunks is not None:
            batch["action"] = torch.from_numpy(chunks)
        if self._libero is not None:
            batch = self._libero.before(batch)
        if str(self._checkpoint.config.device).startswith("cuda"):
            # LeRobot copies tensors to the GPU asynchronously, which needs pinned memory.
            batch = {key: value.pin_memory() if torch.is_tensor(value) else value for key, value in batch.items()}
        return batch

    def _picture(self, seen: Observation, key: str, camera: str) -> U8:
        if camera not in seen.images:
            needs = ", ".join(f"{feature} <- {name}" for feature, name in self._cameras.items())
            cameras = ", ".join(seen.images) or "none"
            raise ComponentError(f"{self.spec.name}: needs {needs}; the env gave: {cameras}; use ?map=KEY:CAMERA")
        image = seen.images[camera]
        height, width = self._sizes[key]
        sizes = {seen.images[name].shape for name in self._cameras.values() if name in seen.images}
        as_they_are = self._resizes and (len(sizes) == 1 or not self._family.stacks)
        if as_they_are or image.shape[:2] == (height, width):
            return image
        from PIL import Image

        return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))

    def _state(self, seen: Observation) -> F32:
        if self._state_dims and len(seen.state) > max(self._state_dims):
            return seen.state[self._state_dims]
        if self._state_dims or len(seen.state) != self._state_dim:
            raise ComponentError(
                f"{self.spec.name}: trained on {self._state_dim} state numbers, the env gave {len(seen.state)};"
                " say which with ?state=FIRST:END,INDEX"
            )
        return seen.state

    def _check_warm(self, warm: Sequence[Warm | None]) -> None:
        for row in warm:
            if row is None:
                continue
            if not self.spec.cools or (row.chunk is not None and not self.spec.warm_start):
                raise ComponentError(f"{self.spec.name}: a {self._checkpoint.family} policy cannot be warm-started")
            if row.chunk is not None and row.chunk.shape != self._shape:
                raise ComponentError(
                    f"{self.spec.name}: a warm chunk of {row.chunk.shape} where {self._shape} is needed"
                )


def _camera_map(checkpoint: Checkpoint, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """Map each image feature to its env camera (as given, by the usual names, or its own last part), and to its (H, W).

    If the preprocessor renames observations, the keys are the names before renaming.
    """
    features = images_in(checkpoint.config)
    renamed = {new: old for step in checkpoint.before.steps for old, new in getattr(step, "rename_map", {}).items()}
    short = {key.rpartition(".")[2]: key for key in features}
    chosen = {short.get(key, key): camera for key, camera in given.items()}
    unknown = [key for key in chosen if key not in features]
    if unknown:
        have = ", ".join(features) or "none"
        raise ComponentError(f"lerobot:{checkpoint.name}: map names {', '.join(unknown)}; the checkpoint reads: {have}")
    cameras, sizes = {}, {}
    for key, feature in features.items():
        raw = renamed.get(key, key)
        last = raw.rpartition(".")[2]
        camera = chosen.get(key, CAMERA_NAMES.get(last, last))
        if camera != NO_CAMERA:
            cameras[raw] = camera
            sizes[raw] = (int(feature.shape[1]), int(feature.shape[2]))
    return cameras, sizes
