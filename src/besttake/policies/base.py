"""The contract of a policy, and `FunctionPolicy`, a policy made of one function.

Check yours with ``besttake.testing.check_policy``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, getsourcefile, signature, unwrap
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from besttake.errors import ComponentError
from besttake.files import short_hash
from besttake.takes.draws import Draw
from besttake.types import F32, Observation, PolicySpec, Warm


class Policy(Protocol):
    """A frozen policy, which turns observations into chunks of actions.

    `besttake.testing.check_policy` checks an implementation. To wrap a function, use `besttake.FunctionPolicy`.
    """

    @property
    def spec(self) -> PolicySpec:
        """The name of the policy, the sizes of its chunks, and what it supports."""
        ...

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """Sample one chunk of actions for each row of a batch.

        Row b may depend only on ``observations[b]``, ``draws[b]`` and ``warm[b]``: not on other rows and not on earlier
        calls. All randomness must come from ``draws[b]``, for example ``draws[b].normal((horizon, action_dim))``.

        Args:
            observations: What the policy sees, one per row (B rows).
            draws: The random generator of each row.
            warm: How each row starts sampling; None means from noise, for one row or for all.

        Returns:
            Actions, float32 (B, horizon, action_dim), in the action space of the environment.
        """
        ...


@runtime_checkable
class Perception(Protocol):
    """A policy that sees the state with an error of its own, which retrieval on its behalf must see as well."""

    def perceive(self, observations: Sequence[Observation], draws: Sequence[Draw]) -> F32:
        """The state that the policy sees when it samples from each draw, float32 (B, state_dim)."""
        ...


def checked_actions(actions: Any, shape: tuple[int, int] | None, whose: str) -> F32 | Exception:
    """Actions as float32, or an error unless they are finite numbers of ``shape`` (None: any number of rows)."""
    try:
        numbers = np.array(actions)
        if numbers.dtype.kind not in "fiu" or numbers.ndim != 2 or (shape is not None and numbers.shape != shape):
            wanted = f"numbers of shape {shape}" if shape else "rows of numbers"
            raise ValueError(
                f"{whose} gave a chunk of shape {numbers.shape} ({numbers.dtype}) where {wanted} are needed"
            )
        if not np.isfinite(numbers).all():
            raise ValueError(f"{whose} gave actions that are not finite")
        return numbers.astype(np.float32, copy=False)
    except Exception as error:  # from an array that is not one
        return error


class FunctionPolicy:
    """A policy made of one function, ``act``, which turns one observation into one chunk of actions.

    The number of parameters of ``act`` without a default decides what the policy supports:

    - ``act(observation)`` is deterministic: every take of a start is the same.
    - ``act(observation, draw)`` samples, and takes all its noise from ``draw``, as ``draw.normal((n,))``.
    - ``act(observation, draw, noise)`` can also be cooled: it multiplies its noise by ``noise``, which is 1, or less
      if the policy is cooled.

    Args:
        act: The function. It returns ``horizon`` actions of ``action_dim`` numbers.
        horizon: Number of actions in a chunk.
        action_dim: Numbers per action.
        replan: How many actions of a chunk are executed before ``act`` is called again (default: all).
        others: Further fields of `PolicySpec`, such as ``cameras=("wrist",)``.

    Examples:
        >>> def act(observation, draw, noise):
        ...     return [observation.state[:2] + 0.1 * noise * draw.normal((2,))] * 8
        >>> FunctionPolicy(act, horizon=8, action_dim=2).spec.cools
        True
    """

    def __init__(
        self, act: Callable[..., Any], *, horizon: int, action_dim: int, replan: int | None = None, **others: Any
    ) -> None:
        self._act, self._arguments = act, _argument_count(act)
        others = {"name": getattr(act, "__name__", "policy"), "fingerprint": _fingerprint(act), **others}
        kind = others.pop("kind", "deterministic" if self._arguments == 1 else "flow")
        self.spec = PolicySpec(
            kind=kind, horizon=horizon, action_dim=action_dim, replan=horizon if replan is None else replan,
            cools=self._arguments > 2, **others,
        )  # fmt: skip

    def sample(
        self, observations: Sequence[Observation], draws: Sequence[Draw], warm: Sequence[Warm | None] | None = None
    ) -> F32:
        """Sample one chunk per row, float32 (B, horizon, action_dim), by calling ``act`` row by row."""
        noises = [each.noise if each else 1.0 for each in warm or [None] * len(draws)]
        return np.stack([self._chunk(row) for row in zip(observations, draws, noises, strict=True)])

    def _chunk(self, arguments: tuple[Observation, Draw, float]) -> F32:
        chunk = np.asarray(self._act(*arguments[: self._arguments]), np.float32)
        shape = (self.spec.horizon, self.spec.action_dim)
        if chunk.shape != shape:
            raise ComponentError(f"{self.spec.name} gave a chunk of shape {chunk.shape}, not {shape}")
        return chunk


def _argument_count(act: Callable[..., Any]) -> int:
    """How many of observation, draw and noise ``act`` takes."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = list(signature(act).parameters.values())
    except (TypeError, ValueError):  # C functions need not have a signature
        parameters = []
    # Parameters with a default, as in act(observation, model=MODEL), are left alone.
    count = len([each for each in parameters if each.kind in kinds and each.default is Parameter.empty])
    if not 1 <= count <= 3:
        raise ComponentError(
            f"{getattr(act, '__name__', act)} takes {count} arguments; a policy is act(observation),"
            " act(observation, draw) or act(observation, draw, noise)"
        )
    return count


def _fingerprint(act: Callable[..., Any]) -> str:
    """A hash of the file that defines ``act``, so that an edited policy does not continue old takes."""
    while isinstance(act, partial):
        act = act.func
    try:
        file = getsourcefile(unwrap(act))
    except TypeError:  # a callable object or a C function
        file = getsourcefile(type(act)) if type(act).__module__ != "builtins" else None
    if file and Path(file).is_file():
        return short_hash(Path(file).read_bytes())
    code = getattr(act, "__code__", None)  # defined in a notebook
    if code is None:
        return ""
    plain = str | bytes | int | float | complex | None  # repr of a nested function has an address
    return short_hash(code.co_code, *(repr(value) for value in code.co_consts if isinstance(value, plain)))
