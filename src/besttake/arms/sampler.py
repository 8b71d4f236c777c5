"""The arms: what a policy's sample is started from. All arms of a take use the same noise.

=========  =====================================  ==========================================================
arm        a_init                                 tells
=========  =====================================  ==========================================================
base       eps                                    the frozen policy
cooled     (1 - alpha) eps                        what calmer noise alone does
shuffled   alpha * a random event's chunk + …     what any demonstrated chunk does
retrieve   alpha * a_retr + (1 - alpha) eps       the paper's intervention (Eq. 6)
rerank     eps, several candidates per replan     per-step re-ranking (see `besttake.core.rerank`)
=========  =====================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from besttake import registry
from besttake.core.events import current
from besttake.core.rerank import alike, closeness
from besttake.core.retrieve import RetrievalConfig, Retriever
from besttake.demos.library import Library, View
from besttake.encoders.base import Encoder
from besttake.policies.base import Foresight, Policy
from besttake.takes.draws import Draw
from besttake.takes.sampling import Request
from besttake.types import F32, EnvSpec, Observation, PolicySpec, Warm

_SHOWN = 10


def arms_of(policy: PolicySpec, asked: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Those of the arms ``asked`` for that the policy can run, and a line for each that it cannot."""
    kept, notes = [], []
    for arm in asked:
        if arm == "cooled" and not policy.cools:
            notes.append(f"{policy.name}: no cooled arm, its sampling noise is out of reach ({policy.kind})")
        elif arm in ("retrieve", "shuffled") and not policy.warm_start:
            notes.append(f"{policy.name}: no {arm} arm, a {policy.kind} policy of this kind cannot be warm-started")
        elif arm == "rerank" and policy.kind == "deterministic":
            notes.append(f"{policy.name}: no rerank arm, a deterministic policy has one candidate")
        else:
            kept.append(arm)
    return tuple(kept), notes


def looks(arm: str) -> bool:
    """Whether an arm needs a picture from the score camera at each replan."""
    return arm in ("retrieve", "rerank")


@dataclass(frozen=True)
class SmallActor:
    """A small policy with its arms, to be made in the worker that plays the take."""

    policy: str
    config: RetrievalConfig
    library: str | None = None
    candidates: int = 4

    def sampler(self, env: EnvSpec) -> ArmSampler:
        """The sampler, for takes in ``env``."""
        library = None if self.library is None else Library.open(self.library)
        encoder = None if library is None else library.encoder()
        return ArmSampler(registry.policy(self.policy), env, self.config, library, encoder, self.candidates)


@dataclass
class _Seen:
    """What the take saw at one replan, for queries aligned to the onset of an event."""

    step: int
    embedding: F32
    chunk: F32
    state: F32


@dataclass
class ArmSampler:
    """Samples a policy in whichever arm each take is; one row never depends on another."""

    policy: Policy
    env: EnvSpec
    config: RetrievalConfig
    library: Library | None = None
    encoder: Encoder | None = None
    candidates: int = 4
    _retrievers: dict[str, Retriever] = field(default_factory=dict)

    def sample(self, requests: Sequence[Request]) -> list[F32]:
        """The actions to execute, (replan, action_dim), of each take."""
        chunks: dict[int, F32] = {}
        warm: dict[int, Warm] = {}
        rows: dict[str, list[int]] = {}
        for row, request in enumerate(requests):
            rows.setdefault(request.job.key.arm, []).append(row)
        for row in rows.get("cooled", ()):
            warm[row] = Warm(self.config.alpha)
        for row in rows.get("shuffled", ()):
            warm[row] = Warm(self.config.alpha, self._shuffled(requests[row]))
        reranked, retrieved = rows.get("rerank", []), rows.get("retrieve", [])
        if reranked:
            chunks.update(zip(reranked, self._reranked([requests[row] for row in reranked]), strict=True))
        # The first pass of `retrieve` is the base arm's own sample, so it is asked together with everyone else's.
        self._fill(chunks, requests, [row for row in range(len(requests)) if row not in chunks], warm)
        if retrieved:
            matched = self._retrieved([requests[row] for row in retrieved], [chunks[row] for row in retrieved])
            warm = {row: Warm(self.config.alpha, chunk) for row, chunk in zip(retrieved, matched, strict=True)}
            self._fill(chunks, requests, retrieved, warm)
        return [chunks[row][: self.policy.spec.replan] for row in range(len(requests))]

    def _fill(
        self, chunks: dict[int, F32], requests: Sequence[Request], rows: list[int], warm: Mapping[int, Warm]
    ) -> None:
        """Sample the chunks of ``rows``."""
        if rows:
            asked = [requests[row] for row in rows]
            sampled = self.policy.sample(
                [r.observation for r in asked], [r.draw for r in asked], [warm.get(row) for row in rows]
            )
            chunks.update(zip(rows, sampled, strict=True))

    def _shuffled(self, request: Request) -> F32:
        return self._retriever(request).random(request.draw.generator("shuffle")).chunk

    def _retrieved(self, requests: list[Request], predicted: Sequence[F32]) -> list[F32]:
        """The chunk of each take's best match; the prediction it is matched by is the base arm's own sample."""
        embedded = self._embed([r.observation for r in requests])
        found = []
        for request, chunk, embedding in zip(requests, predicted, embedded, strict=True):
            seen = _Seen(request.step, embedding, chunk, request.observation.state)
            phase = None
            if self.config.onset_alignment or self.config.gripper_gating:
                position, gripper = self._motion(request)
                now = current(position, gripper, self._library.events, step=request.step)
                phase = now.open
                if self.config.onset_alignment:
                    seen = self._at_onset(request, seen, now.onset)
            match = self._retriever(request).query(
                seen.embedding[None], seen.chunk[None], seen.state[None], phases=[phase]
            )[0]
            found.append(match.chunk)
        return found

    def _at_onset(self, request: Request, seen: _Seen, onset: int) -> _Seen:
        """The first replan at or after the onset of the take's current event."""
        request.memory.append(seen)
        past: list[_Seen] = request.memory
        return next(one for one in past if one.step >= min(onset, seen.step))

    def _reranked(self, requests: list[Request]) -> list[F32]:
        """The best of several candidates per take. Candidate 0 is what base would do."""
        count = self.candidates
        observations = [r.observation for r in requests for _ in range(count)]
        draws: list[Draw] = [r.draw.candidate(c) for r in requests for c in range(count)]
        sampled = self.policy.sample(observations, draws)
        if isinstance(self.policy, Foresight):
            ahead = self._encoder.encode(self.policy.foresee(observations, sampled))
            views = [self._view(r) for r in requests for _ in range(count)]
            scores = np.array([v.index.nearest(e[None]).best[0] for v, e in zip(views, ahead, strict=True)])
        else:
            embedded = self._embed([r.observation for r in requests])
            blocks = sampled.reshape(len(requests), count, *sampled.shape[1:])
            scores = np.concatenate([self._close(*row) for row in zip(requests, embedded, blocks, strict=True)])
        best = np.argmax(scores.reshape(len(requests), count), axis=1)
        return [sampled[row * count + int(choice)] for row, choice in enumerate(best)]

    def _close(self, request: Request, embedding: F32, chunks: F32) -> F32:
        view = self._view(request)
        near = alike(embedding, view.embeddings, _SHOWN)
        horizon = self.policy.spec.horizon
        shown = np.stack([self._library.chunk(int(view.frame_demo[f]), int(view.frame_step[f]), horizon) for f in near])
        return closeness(chunks, shown, view.action_spread).astype(np.float32)

    def _embed(self, observations: Sequence[Observation]) -> F32:
        embedded = self._encoder.encode(np.stack([o.images[self.env.score_camera] for o in observations]))
        if not np.isfinite(embedded).all():
            raise ValueError(f"{self._encoder.spec.name} gave an embedding that is not finite: nothing can be matched")
        return embedded

    def _motion(self, request: Request) -> tuple[F32 | None, F32 | None]:
        """End-effector positions (step + 1, .) and gripper commands (step,) so far, as far as the env says."""
        env = self.env
        position = None if env.eef_dims is None else np.stack(request.states)[:, list(env.eef_dims)]
        gripper = (
            None if env.gripper_dim is None else np.array([a[env.gripper_dim] for a in request.actions], np.float32)
        )
        return position, gripper

    def _view(self, request: Request) -> View:
        return self._library.view(request.job.key.task, request.observation.instruction)

    def _retriever(self, request: Request) -> Retriever:
        task = request.job.key.task
        if task not in self._retrievers:
            self._retrievers[task] = self._view(request).retriever(self.config, self.policy.spec.horizon)
        return self._retrievers[task]

    @property
    def _library(self) -> Library:
        assert self.library is not None, "arms that retrieve are only planned with a library"
        return self.library

    @property
    def _encoder(self) -> Encoder:
        assert self.encoder is not None, "arms that look are only planned with an encoder"
        return self.encoder
