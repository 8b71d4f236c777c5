"""Whether a policy and an env can work together, checked before anything runs; one line lists both sides."""

from __future__ import annotations

from besttake.errors import ComponentError
from besttake.types import EnvSpec, PolicySpec


def check_compatible(policy: PolicySpec, env: EnvSpec) -> None:
    """ComponentError when cameras, action size or state size of ``policy`` and ``env`` differ."""
    if missing := ", ".join(camera for camera in policy.cameras if camera not in env.cameras):
        hint = "map the names with ?map=… in the policy's URI (besttake doctor shows what it reads)"
        has = ", ".join(env.cameras)
        raise ComponentError(f"{policy.name} needs camera {missing}, but {env.name} has {has}; {hint}")
    if policy.action_dim != env.action_dim:
        problem = f"gives actions of {policy.action_dim} numbers, but {env.name} takes {env.action_dim}"
        raise ComponentError(f"{policy.name} {problem}; this policy was not made for this env")
    if policy.state_dim is not None and policy.state_dim != env.state_dim:
        problem = f"reads a state of {policy.state_dim} numbers, but {env.name} gives {env.state_dim}"
        raise ComponentError(f"{policy.name} {problem}; choose the convention that the policy was trained with")
