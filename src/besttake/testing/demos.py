"""The contract of a source of demonstrations."""

from __future__ import annotations

from itertools import islice

import numpy as np

from besttake.demos.base import Bad, Shape, Source, fault
from besttake.errors import ContractError
from besttake.types import Array, Demo


def check_demos(source: Source, *, most: int = 20) -> tuple[str, ...]:
    """Check that a source of demonstrations keeps its contract, and return the names of the properties that hold.

    These are: it has a fingerprint; ids are unique; all demonstrations have consistent shapes; ``gripper_dim`` and
    ``eef_dims`` are valid indexes; and reading it again gives the same data.

    Args:
        source: The source to check.
        most: Read at most this many demonstrations (twice).

    Raises:
        ContractError: A property is violated.
    """
    if not source.fingerprint:
        raise ContractError(f"{source.name}: it has no fingerprint, so a library could not tell when it changed")
    read = list(islice(source, most))
    demos = [each for each in read if not isinstance(each, Bad)]
    if not demos:
        raise ContractError(f"{source.name}: none of its first {len(read)} demonstrations can be read")
    names = [each.id for each in read]
    if len(set(names)) < len(names):
        raise ContractError(f"{source.name}: two demonstrations have the same id {max(names, key=names.count)!r}")
    shape = Shape.of(demos[0])
    for demo in demos:
        if wrong := fault(demo, shape):
            raise ContractError(f"{source.name}: demonstration {demo.id} {wrong}")
    _check_dimensions(source, shape)
    for first, again in zip(read, islice(source, most), strict=True):
        if not _same(first, again):
            raise ContractError(f"{source.name}: demonstration {first.id} differs when it is read again")
    return ("fingerprint", "ids", "demonstrations", "dimensions", "repeat")


def _check_dimensions(source: Source, shape: Shape) -> None:
    gripper, eef = source.gripper_dim, source.eef_dims
    if gripper is not None and not 0 <= gripper < (shape.action_dim or 0):
        raise ContractError(f"{source.name}: gripper_dim {gripper} is outside the {shape.action_dim or 0} actions")
    if eef is not None and not all(0 <= dim < (shape.state_dim or 0) for dim in eef):
        raise ContractError(f"{source.name}: eef_dims {eef} are outside the {shape.state_dim or 0} state numbers")


def _same(a: Demo | Bad, b: Demo | Bad) -> bool:
    if isinstance(a, Bad) or isinstance(b, Bad):
        return a == b
    arrays = ((a.frames, b.frames), (a.frame_steps, b.frame_steps), (a.states, b.states), (a.actions, b.actions))
    return (a.id, a.task, a.instruction) == (b.id, b.task, b.instruction) and all(_equal(x, y) for x, y in arrays)


def _equal(a: Array | None, b: Array | None) -> bool:
    return (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b))
