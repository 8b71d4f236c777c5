"""The arm `rerank`: at each replan the best of several candidates, by the rule of `besttake.core.retrieve`."""

from __future__ import annotations

import numpy as np

from besttake.arms.base import Acting, ArmSpec, Embed, Sample, TakeState, Tools
from besttake.core.retrieve import alike, closeness

_NEIGHBOURS = 10


class Rerank:
    """The arm ``rerank``: execute the best of the plan's ``candidates`` samples. Candidate 0 is that of `base`."""

    spec = ArmSpec("rerank", needs=("candidates",), library=True, score_camera=True, settings=("candidates",))

    def act(self, take: TakeState, tools: Tools) -> Acting:
        """Sample all candidates, and execute the one closest to what was demonstrated at the most similar frames."""
        samples = [Sample(take.observation, take.draw.candidate(c)) for c in range(tools.candidates)]
        *chunks, embedding = yield [*samples, Embed(tools.picture(take))]
        view, library, horizon = tools.view(take), tools.demonstrations, tools.policy.horizon
        frames = alike(embedding, view.embeddings, _NEIGHBOURS)
        shown = np.stack([library.chunk(int(view.frame_demo[f]), int(view.frame_step[f]), horizon) for f in frames])
        scores = closeness(np.stack(chunks), shown, view.action_spread).astype(np.float32)
        return chunks[int(np.argmax(scores))]
