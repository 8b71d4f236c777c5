"""Proofs that an adapter keeps its contract: ours are tested with these, and so should yours be.

Examples:
    >>> from besttake import registry, testing
    >>> testing.check_env(registry.env("testbed:pick"))
    ('spec', 'observe', 'reset', 'lazy', 'starts', 'restore')

Each check raises `ContractError` with one line that says which promise was broken and where.
"""

from besttake.testing.arm import check_arm
from besttake.testing.demos import check_demos
from besttake.testing.encoder import check_encoder
from besttake.testing.env import check_env
from besttake.testing.policy import check_policy
from besttake.testing.scorer import check_scorer

__all__ = ["check_arm", "check_demos", "check_encoder", "check_env", "check_policy", "check_scorer"]
