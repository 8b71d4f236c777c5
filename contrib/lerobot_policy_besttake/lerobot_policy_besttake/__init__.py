"""BestTake in LeRobot: the policy type ``besttake`` and the env type ``besttake``.

LeRobot's commands import this package by its name (`register_third_party_plugins`), and importing it registers both.
"""

from lerobot_policy_besttake.configuration_besttake import BesttakeConfig
from lerobot_policy_besttake.env_besttake import BesttakeEnvConfig

__all__ = ["BesttakeConfig", "BesttakeEnvConfig"]
