"""What held-out demonstrations say about retrieval, without a roll-out, for the study to compare with measured content.

At states of library demonstrations, with the demonstration itself left out of the search: how far are the cooled and
the retrieve-started sample from what was demonstrated (rms over the sd of each action, executed steps), and does
retrieving move the sample towards it (cosine of retrieve - cooled with demonstration - cooled)?
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import besttake
from besttake import registry
from besttake.config import Plan
from besttake.core.probe import spread_over
from besttake.core.retrieve import RetrievalConfig, Retriever
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.policies.base import Perception
from besttake.takes.jobs import probe_draw
from besttake.types import Array, Observation, Warm

STATES_PER_TASK = 60
CONFIGS = {
    "frame .1": RetrievalConfig(rule="frame", rerank=10, prior=0.1),
    "frame .2": RetrievalConfig(rule="frame", rerank=10, prior=0.2),
    "frame .3": RetrievalConfig(rule="frame", rerank=10, prior=0.3),
    "paper .3": RetrievalConfig(rule="next", noise=0.7, prior=0.3),
}


@dataclass(frozen=True)
class Foretold:
    """Means over states: rms errors of the base, cooled and retrieve-started samples and of the chunk; the cosine."""

    base: float
    cooled: float
    retrieve: float
    chunk: float
    cosine: float

    @property
    def better(self) -> float:
        """How much smaller the error of the retrieve-started sample is than that of the cooled one, relatively."""
        return (self.cooled - self.retrieve) / self.cooled


def foretell_all(directory: Path, uris: Mapping[str, str]) -> dict[str, dict[str, Foretold]]:
    """By configuration and policy; kept in ``directory/foretold.json`` once it was computed."""
    kept = directory / "foretold.json"
    known: dict[str, dict[str, dict[str, float]]] = json.loads(kept.read_text()) if kept.is_file() else {}
    library = open_or_build("testbed")
    for config in CONFIGS:
        row = known.setdefault(config, {})
        row.update({n: asdict(foretell(uri, library, CONFIGS[config])) for n, uri in uris.items() if n not in row})
    kept.write_text(json.dumps(known, indent=1))
    return {config: {name: Foretold(**row[name]) for name in uris} for config, row in known.items()}


def fit_all(directory: Path, uris: Mapping[str, str]) -> dict[str, float]:
    """DFE over floor by policy, probed as `besttake probe` does now. Kept in ``directory/fits.json``."""
    kept = directory / "fits.json"
    known: dict[str, float] = json.loads(kept.read_text()) if kept.is_file() else {}
    for name, uri in uris.items():
        if name not in known:
            cells = besttake.probe(Plan(policy=uri, env="testbed", demos="testbed", check_states=0))
            fit = next(cell.dfe for cell in cells if cell.group == "*" or len(cells) == 1)
            assert fit is not None
            known[name] = fit.ratio.value or np.nan
            kept.write_text(json.dumps(known, indent=1))
    return known


def foretell(uri: str, library: Library, config: RetrievalConfig) -> Foretold:
    """What the held-out demonstrations of ``library`` say about ``config`` for the policy ``uri``."""
    policy = registry.policy(uri)
    rows: list[Array] = []
    for task in library.tasks:
        view = library.view(task)
        candidates = view.candidates(RetrievalConfig(rule="frame"), policy.spec.horizon)
        retriever = Retriever(view.candidates(config, policy.spec.horizon), config)
        assert candidates.states is not None
        at = spread_over(candidates.demo, STATES_PER_TASK)
        seen = [Observation({}, candidates.states[row], "") for row in at]
        draws = [probe_draw(0, task, index, 0) for index in range(len(at))]
        own = policy.sample(seen, draws)
        states = policy.perceive(seen, draws) if isinstance(policy, Perception) else candidates.states[at]
        matches = retriever.query(
            candidates.embeddings[at], own, states, exclude=[int(candidates.demo[row]) for row in at]
        )
        cooled = policy.sample(seen, draws, [Warm(config.noise)] * len(at))
        started = policy.sample(seen, draws, [Warm(config.noise, config.prior, match.chunk) for match in matches])
        chunks = np.stack([match.chunk for match in matches])
        rows += _compared([own, cooled, started, chunks], candidates.chunks[at], policy.spec.replan)
    return Foretold(*np.mean(rows, axis=0).tolist())


def _compared(samples: Sequence[Array], demonstrated: Array, steps: int) -> list[Array]:
    """Per state: the rms error of each of the samples (M, horizon, action), and the cosine of the third's move."""
    spread = demonstrated.std(axis=(0, 1))
    kept = spread > 1e-6
    cut = [(part[:, :steps][..., kept] / spread[kept]) for part in (*samples, demonstrated)]
    *made, target = (part.reshape(len(part), -1) for part in cut)
    errors = [np.sqrt(np.mean((part - target) ** 2, axis=1)) for part in made]
    moved, wanted = made[2] - made[1], target - made[1]
    norms = np.linalg.norm(moved, axis=1) * np.linalg.norm(wanted, axis=1)
    cosine = np.sum(moved * wanted, axis=1) / np.maximum(norms, 1e-9)
    return list(np.stack([*errors, cosine], axis=1))
