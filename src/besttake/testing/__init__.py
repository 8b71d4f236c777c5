"""Checks for your own components. Each is called with a component and checks that it keeps its contract.

A check returns the names of the properties that hold, and raises `ContractError` with one line that says which property
is violated and where. BestTake's own components are tested with the same checks.

Examples:
    >>> from besttake import registry, testing
    >>> testing.check_env(registry.env("testbed:pick"))
    ('spec', 'observe', 'reset', 'lazy', 'starts', 'restore')
"""

from besttake.testing.components import check_demos, check_encoder, check_env, check_policy
from besttake.testing.methods import check_arm, check_scorer

__all__ = ["check_arm", "check_demos", "check_encoder", "check_env", "check_policy", "check_scorer"]
