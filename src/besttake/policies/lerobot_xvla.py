"""X-VLA on LIBERO: what lerobot-eval puts between the env and an X-VLA that commands poses (``action_mode=ee6d``).

LeRobot gives every X-VLA the env processors of `make_xvla_libero_pre_post_processors`, and wants the env told to take
absolute poses. Its state is `libero:…?state=ee6d`; its wrist picture is not turned, where every other policy's is; its
pictures are normalised before the checkpoint's own processors see them; and its answer, twenty numbers with a rotation
of six, becomes a pose of seven.
"""

from __future__ import annotations

from typing import Any

from besttake.conventions import EE6D_STATE, POSE, Convention, Gripper

_TURNED = "observation.images.image"
_NORMALISES = "XVLAImageNetNormalizeProcessorStep"


class LiberoSteps:
    """LeRobot's own steps for X-VLA and LIBERO, around a checkpoint whose preprocessor is ``before``."""

    sizes = 20, 7
    """Of the state and of an action."""
    convention = Convention(Gripper(-1, 1), EE6D_STATE, POSE)

    def __init__(self, before: Any) -> None:
        from lerobot.policies.xvla.processor_xvla import LiberoProcessorStep, make_xvla_libero_pre_post_processors
        from lerobot.processor import PolicyProcessorPipeline

        first, self._last = make_xvla_libero_pre_post_processors()
        # `libero:` gives the state as it is. A checkpoint that normalises pictures itself cannot be run by
        # lerobot-eval, which would normalise them twice and refuse; here that step is left out.
        own = {type(step).__name__ for step in before.steps}
        steps = [step for step in first.steps if not isinstance(step, LiberoProcessorStep)]
        kept = [step for step in steps if type(step).__name__ != _NORMALISES or _NORMALISES not in own]
        self._first: Any = PolicyProcessorPipeline(steps=kept)

    def turns_back(self, feature: str) -> bool:
        """Whether it wants a picture as robosuite renders it, where `libero:` turns it by 180 degrees."""
        return feature != _TURNED

    def before(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch as the checkpoint's own preprocessor then takes it."""
        return dict(self._first(batch))

    def after(self, actions: Any) -> Any:
        """Poses (B, horizon, 7) from what the checkpoint's postprocessor gives (B, horizon, 20)."""
        rows, horizon, dim = actions.shape
        return self._last({"action": actions.reshape(-1, dim)})["action"].reshape(rows, horizon, -1)


def libero_steps(config: Any, before: Any) -> LiberoSteps | None:
    """Those of an X-VLA that commands poses; None for every other policy."""
    poses = config.type == "xvla" and config.action_mode == "ee6d"
    return LiberoSteps(before) if poses else None
