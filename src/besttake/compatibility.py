"""Do the parts fit each other? Checked before anything runs, each misfit told in one line that lists both sides."""

from __future__ import annotations

from besttake.errors import ComponentError
from besttake.types import EnvSpec, PolicySpec


def check_fit(policy: PolicySpec, env: EnvSpec) -> None:
    """A policy and an env: cameras, action and state dimensions."""
    missing = [camera for camera in policy.cameras if camera not in env.cameras]
    if missing:
        raise ComponentError(
            f"{policy.name} needs camera {', '.join(missing)}, but {env.name} has {', '.join(env.cameras)};"
            " map the names with ?map=… in the policy's URI (besttake doctor --policy … shows them)"
        )
    if policy.action_dim != env.action_dim:
        raise ComponentError(
            f"{policy.name} gives actions of {policy.action_dim} numbers, but {env.name} takes {env.action_dim};"
            " this policy was not made for this env"
        )
    if policy.state_dim is not None and policy.state_dim != env.state_dim:
        raise ComponentError(
            f"{policy.name} reads a state of {policy.state_dim} numbers, but {env.name} gives {env.state_dim};"
            " choose the convention that the policy was trained with"
        )
