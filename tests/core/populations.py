"""Populations of starts with known truth, matched to the paper's (pass@1, pass@3) pairs.

The chance of success of a start is Beta(a, b), solved so that pass@1 and pass@3 are the paper's.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln, ndtr

PAIRS = {
    "pi0": (0.642, 0.878),
    "smolvla": (0.656, 0.870),
    "pi05": (0.887, 0.983),
    "pi0 libero-10": (0.357, 0.644),
    "bridge carrot": (0.347, 0.500),
    "bridge spoon": (0.458, 0.625),
    "bridge stack": (0.319, 0.542),
    "openvla": (0.400, 0.720),
}


def beta_pass(a: float, b: float, k: int) -> float:
    return float(1 - np.exp(betaln(a, b + k) - betaln(a, b)))


@cache
def matched(pass1: float, pass3: float) -> tuple[float, float]:
    def miss(log_size: float) -> float:
        return beta_pass(pass1 * np.exp(log_size), (1 - pass1) * np.exp(log_size), 3) - pass3

    size = np.exp(brentq(miss, -8, 8))
    return pass1 * size, (1 - pass1) * size


@dataclass(frozen=True)
class Sample:
    """Base, cooled and retrieve outcomes (S, N) with common random numbers, and scores of the base takes (S, N)."""

    base: np.ndarray
    scores: np.ndarray
    cooled: np.ndarray
    retrieve: np.ndarray


def draw(rng, pair, starts, *, seeds=3, ranking=2.0, cooling=0.0, content=0.0, jitter=0.5) -> Sample:
    """``ranking``: how far, in sd of its noise, the score lifts a success; ``cooling``, ``content``: logits gained."""
    a, b = matched(*pair)
    p = np.clip(rng.beta(a, b, starts), 1e-9, 1 - 1e-9)
    logit = np.log(p / (1 - p))
    shared = rng.normal(size=(starts, seeds))

    def arm(shift, own):
        chance = 1 / (1 + np.exp(-(logit + shift + own * jitter * rng.normal(size=starts))))
        noise = 0.6 * shared + 0.8 * rng.normal(size=(starts, seeds))
        return (ndtr(noise) < chance[:, None]).astype(float)

    base = arm(0.0, 0.0)
    scores = ranking * base + rng.normal(size=base.shape)
    cooled = arm(cooling, 1.0 if cooling else 0.0)
    return Sample(base, scores, cooled, arm(cooling + content, 1.0))
