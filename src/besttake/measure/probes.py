"""What a policy answered at demonstrated states: the data of the demonstration-fit error (Eq. 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from besttake.types import F32


@dataclass(frozen=True)
class TaskProbe:
    """One task: ``samples`` (M, K, horizon, action_dim), ``demonstrated`` (M, …), ``demo`` (M,), ``floor`` (M,).

    The M states are those where a demonstration has a whole chunk left. ``padded``: every demonstration is shorter
    than a chunk, so the chunks were filled up as the library says.
    """

    samples: F32
    demonstrated: F32
    demo: NDArray[np.int64]
    floor: NDArray[np.float64]
    padded: bool = False


@dataclass(frozen=True)
class Probed:
    """The answers of a policy by (env URI, task); or the ``reason`` why it could not be asked."""

    tasks: Mapping[tuple[str, str], TaskProbe] = field(default_factory=dict)
    reason: str = ""

    def notes(self, name: str) -> list[str]:
        """What the result should mention about the probe of policy ``name``."""
        if self.reason:
            return [f"demonstration fit of {name} was not measured: {self.reason}"]
        short = [task for (_, task), probe in self.tasks.items() if probe.padded]
        ends = {probe.samples.shape[2] - 1 for probe in self.tasks.values() if not probe.padded} - {0}
        single = [task for (_, task), probe in self.tasks.items() if np.isnan(probe.floor).all()]
        return [
            *(
                f"demonstration fit of {name} leaves out the last {end} steps of each demonstration,"
                " which no whole chunk follows"
                for end in ends
            ),
            *(f"demonstrations of {task} are shorter than a chunk of {name}: their ends were padded" for task in short),
            *(f"{task} has no floor for {name}: that needs two demonstrations" for task in single),
        ]
