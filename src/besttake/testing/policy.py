"""The contract of a policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from besttake.policies.base import Policy
from besttake.takes.draws import Draw
from besttake.testing.compare import check, check_close
from besttake.types import F32, Observation, PolicySpec, Warm


def check_policy(
    policy: Policy, *, observations: Sequence[Observation] | None = None, image_size: int = 64, atol: float = 0.0
) -> tuple[str, ...]:
    """Check that ``policy`` keeps the contract of `Policy`, and return the names of the properties that hold.

    These are: chunks are finite and have the right shape; the same draws give the same chunks; a row does not depend on
    its batch; the draw matters (unless the policy is deterministic); and warm starts do what they should, if the policy
    accepts them. A policy that is not ``seeded`` is checked for shape only.

    Args:
        policy: The policy to check.
        observations: What to show it (default: five random observations that fit its spec).
        image_size: Height and width of the random images, in pixels.
        atol: Largest difference that the batch may make to an action; 0 asks for the same bits.

    Raises:
        ContractError: A property is violated.
    """
    spec = policy.spec
    seen = list(observations or _observations(spec, 5, image_size))
    draws = [Draw(11, "check", start=row, seed=row % 2, chunk=row) for row in range(len(seen))]
    held = ["shape"]

    batch = policy.sample(seen, draws)
    expected = (len(seen), spec.horizon, spec.action_dim)
    fits = batch.shape == expected and batch.dtype == np.float32
    check(fits, f"{spec.name}: sample gave {batch.dtype} {batch.shape}, its spec says float32 {expected}")
    check(np.isfinite(batch).all(), f"{spec.name}: sample gave actions that are not finite")
    check(1 <= spec.replan <= spec.horizon, f"{spec.name}: replan is {spec.replan}, outside 1..{spec.horizon}")
    if not spec.seeded:
        return tuple(held)

    check_close(batch, policy.sample(seen, draws), 0.0, f"{spec.name}: same draws, another result")
    held.append("repeat")
    singles = np.concatenate([policy.sample([o], [d]) for o, d in zip(seen, draws, strict=True)])
    check_close(batch, singles, atol, f"{spec.name}: a row alone differs from the row in a batch")
    turned = policy.sample(seen[::-1], draws[::-1])[::-1]
    check_close(batch, turned, atol, f"{spec.name}: a row depends on its place in the batch")
    held.append("batch")

    again = policy.sample(seen[:1] * 2, [draws[0], draws[1]])
    same = bool(np.array_equal(again[0], again[1]))
    fault = "ignores the draw" if same else "depends on the draw but calls itself deterministic"
    check(same == (spec.kind == "deterministic"), f"{spec.name}: {fault}")
    held.append("draw")

    if spec.cools:
        held.append(_check_warm(policy, seen, draws, batch, atol))
    return tuple(held)


def _observations(spec: PolicySpec, count: int, size: int) -> list[Observation]:
    rng = np.random.default_rng(7)
    return [
        Observation(
            images={c: rng.integers(0, 256, (size, size, 3), np.uint8) for c in spec.cameras},
            state=rng.normal(0, 0.5, spec.state_dim or 8).astype(np.float32),
            instruction="pick up the cube",
        )
        for _ in range(count)
    ]


def _check_warm(policy: Policy, seen: list[Observation], draws: list[Draw], base: F32, atol: float) -> str:
    spec = policy.spec
    rng = np.random.default_rng(9)
    chunk = rng.uniform(-0.5, 0.5, (spec.horizon, spec.action_dim)).astype(np.float32) if spec.warm_start else None
    zero = policy.sample(seen, draws, [Warm(1.0, 0.0, chunk)] * len(seen))
    check_close(base, zero, 0.0, f"{spec.name}: noise 1 and prior 0 are not the base arm")
    cooled = policy.sample(seen, draws, [Warm(0.5)] * len(seen))
    zero = policy.sample(seen, draws, [Warm(0.5, 0.0, chunk)] * len(seen))
    check_close(cooled, zero, 0.0, f"{spec.name}: a chunk with prior 0 is not the arm cooled")
    mixed = policy.sample(seen, draws, [Warm(0.5, 0.3, chunk) if row % 2 else None for row in range(len(seen))])
    check_close(base[::2], mixed[::2], atol, f"{spec.name}: a warm row changes its neighbours")
    check(not np.array_equal(base[1::2], mixed[1::2]), f"{spec.name}: a warm start changes nothing")
    return "warm"
