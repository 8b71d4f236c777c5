"""Processors around the policy: they only rename and move tensors. The wrapped checkpoint has its own processors."""

from __future__ import annotations

from typing import Any

from lerobot.processor import (
    AddBatchDimensionProcessorStep,
    DeviceProcessorStep,
    PolicyProcessorPipeline,
    RenameObservationsProcessorStep,
    policy_action_to_transition,
    transition_to_policy_action,
)
from lerobot.utils.constants import POLICY_POSTPROCESSOR_DEFAULT_NAME, POLICY_PREPROCESSOR_DEFAULT_NAME

from lerobot_policy_besttake.configuration_besttake import BesttakeConfig


def make_besttake_pre_post_processors(config: BesttakeConfig, dataset_stats: Any = None) -> tuple[Any, Any]:
    """The pipelines before and after the policy; statistics are those of the wrapped checkpoint."""
    steps = [
        RenameObservationsProcessorStep(rename_map={}),
        AddBatchDimensionProcessorStep(),
        DeviceProcessorStep(device=config.device),
    ]
    before = PolicyProcessorPipeline(steps=steps, name=POLICY_PREPROCESSOR_DEFAULT_NAME)
    after = PolicyProcessorPipeline(
        steps=[DeviceProcessorStep(device="cpu")],
        name=POLICY_POSTPROCESSOR_DEFAULT_NAME,
        to_transition=policy_action_to_transition,
        to_output=transition_to_policy_action,
    )
    return before, after
