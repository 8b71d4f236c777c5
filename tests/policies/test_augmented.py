from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from besttake import registry
from besttake.core.retrieve import RetrievalConfig
from besttake.demos.build import Options
from besttake.demos.library import Library
from besttake.demos.resolve import open_or_build
from besttake.errors import ComponentError
from besttake.policies.augmented import cooled, retrieving
from besttake.takes.draws import Draw
from besttake.testing import check_policy
from besttake.types import Observation, Start, Warm


@pytest.fixture(scope="module")
def library(cache: Path) -> Library:
    return open_or_build("testbed:pick", "pixels", Options(max_demos=4))


@pytest.fixture(scope="module")
def seen() -> list[Observation]:
    env = registry.env("testbed:pick")
    views = []
    for start in range(3):
        env.reset(Start("pick", start))
        views.append(env.observe(("wrist",)))
    return views


DRAWS = [Draw(0, "t", start, 0) for start in range(3)]


def test_a_cooled_policy_is_the_policy_with_calmer_noise(seen: list[Observation]) -> None:
    policy = registry.policy("testbed:half")
    calmer = cooled(policy, 0.3)
    assert np.array_equal(calmer.sample(seen, DRAWS), policy.sample(seen, DRAWS, [Warm(0.3)] * 3))
    check_policy(calmer, observations=seen)


def test_a_retrieving_policy_starts_from_the_match_of_its_own_prediction(
    library: Library, seen: list[Observation]
) -> None:
    policy = registry.policy("testbed:half")
    config = RetrievalConfig(rule="current")
    augmented = retrieving(policy, library, config)
    assert augmented.spec.cameras == ("wrist",)
    retriever = library.view("pick").retriever(config, policy.spec.horizon)
    predicted = policy.sample(seen, DRAWS)
    embedded = library.encoder().encode(np.stack([o.images["wrist"] for o in seen]))
    matches = retriever.query(embedded, predicted, np.stack([o.state for o in seen]))
    expected = policy.sample(seen, DRAWS, [Warm(0.1, 0.1, match.chunk) for match in matches])
    assert np.array_equal(augmented.sample(seen, DRAWS), expected)
    check_policy(augmented, observations=seen)


def test_all_of_the_noise_and_no_prior_is_the_policy_itself(library: Library, seen: list[Observation]) -> None:
    policy = registry.policy("testbed:half")
    augmented = retrieving(policy, library, RetrievalConfig(noise=1.0, prior=0.0))
    assert np.array_equal(augmented.sample(seen, DRAWS), policy.sample(seen, DRAWS))


def test_what_cannot_be_done_is_said_in_one_line(library: Library, seen: list[Observation], tmp_path: Path) -> None:
    policy = registry.policy("testbed:half")

    class Remote:
        spec = replace(policy.spec, warm_start=False, cools=False)
        sample = policy.sample

    with pytest.raises(ComponentError, match="cannot use retrieval: it cannot begin from a given chunk"):
        retrieving(Remote(), library, RetrievalConfig())
    with pytest.raises(ComponentError, match="cannot be cooled"):
        cooled(Remote(), 0.3)
    with pytest.raises(ComponentError, match="takes no further warm start"):
        cooled(policy, 0.3).sample(seen, DRAWS, [Warm(0.1)] * 3)
