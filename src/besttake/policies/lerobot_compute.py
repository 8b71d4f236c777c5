"""How a LeRobot policy computes: in which precision, compiled or not, and how many rows at a time.

All three change the bits of actions, so all three are part of a policy's fingerprint.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any

from besttake.errors import ComponentError, one_clear_error
from besttake.files import cache_dir, read_json, short_hash, write_text

AUTO = "auto"
DTYPES = ("float32", "bfloat16", "float16")
_OWN_SETTINGS = ("dtype", "torch_dtype", "model_dtype", "vlm_dtype", "use_bf16")
"""What configs call the precision of their model. A class that has none is run under torch's autocast; GR00T would end
it, and is told whether to compute in bfloat16."""

_FIXED = {"wall_x": "bfloat16"}
"""Classes whose own code turns parts of what they compute into one precision."""

_COMPILED = {"smolvla": "model.vlm_with_expert.forward", "act": "model"}
"""The part of each class that does nearly all the work, whose shapes are always the same; only what was tried."""

_WIDEST = 64
_ENOUGH = 0.9
"""A narrower call is chosen if it samples so many of the rows per second of the fastest."""
_NO_GAIN = 1.02
"""Twice the rows are tried only while doubling gives at least so many times the rows per second."""


def settle_dtype(config: Any, dtype: str | None, name: str) -> Callable[[], AbstractContextManager[Any]]:
    """Let a config ask for ``dtype``; what to sample under where its class cannot be asked.

    Without one, a checkpoint that was saved with ``use_amp`` is sampled under autocast, as lerobot-eval does.
    """
    if dtype is None:
        return _autocast(config.device) if config.use_amp else nullcontext
    if config.type in _FIXED:
        fixed = _FIXED[config.type]
        if dtype != fixed:
            raise ComponentError(f"lerobot:{name}: dtype={dtype}: a {config.type} policy computes in {fixed} alone")
        return nullcontext
    key = next((key for key in _OWN_SETTINGS if hasattr(config, key)), None)
    if key is not None:
        if key in ("dtype", "use_bf16") and dtype == "float16":
            raise ComponentError(
                f"lerobot:{name}: dtype=float16: a {config.type} policy computes in float32 or bfloat16"
            )
        setattr(config, key, dtype == "bfloat16" if key == "use_bf16" else dtype)
        if key == "vlm_dtype":
            config.use_amp = dtype == "bfloat16"  # EVO-1 computes so on CUDA, whatever its weights are
        return nullcontext
    if dtype == "float32":
        return nullcontext
    return _autocast(config.device, dtype)


def _autocast(device: Any, dtype: str | None = None) -> Callable[[], AbstractContextManager[Any]]:
    import torch

    kind = str(device).partition(":")[0]
    return lambda: torch.autocast(kind, dtype=None if dtype is None else getattr(torch, dtype))


def compile_parts(policy: Any, family: str, name: str) -> None:
    """Compile the part of a policy that does the work, for the one shape that it will see."""
    if family not in _COMPILED:
        raise ComponentError(
            f"lerobot:{name}: compile=1 is known for {', '.join(_COMPILED)}, not for {family} policies"
        )
    import torch

    *way, last = _COMPILED[family].split(".")
    owner = attrgetter(".".join(way))(policy) if way else policy
    with one_clear_error(f"lerobot:{name}: compile=1: {{}}"):
        setattr(owner, last, torch.compile(getattr(owner, last), dynamic=False))


def best_width(sample: Callable[[int], object], clock: Callable[[], float] = time.perf_counter) -> int:
    """How many rows to sample at a time: the fewest that come near the most rows per second, by trying.

    ``sample`` samples that many rows in one call; what it raises (memory that runs out) ends the search.
    """
    rates: dict[int, float] = {}
    width = 1
    while width <= _WIDEST:
        try:
            sample(width)  # the first call of a shape also sets things up
            began = clock()
            sample(width)
            rates[width] = width / max(clock() - began, 1e-9)
        except (RuntimeError, MemoryError):
            if not rates:
                raise
            break
        if width > 1 and rates[width] < _NO_GAIN * rates[width // 2]:
            break
        width *= 2
    return min(width for width, rate in rates.items() if rate >= _ENOUGH * max(rates.values()))


def kept_width(names: Sequence[str], measure: Callable[[], int]) -> int:
    """The width that was measured before for what ``names`` say, else ``measure`` it now and keep it."""
    known_by = short_hash("\n".join(names))
    kept = cache_dir() / "widths" / f"{known_by}.json"
    try:
        width = int(read_json(kept)["width"])
        if 1 <= width <= _WIDEST:
            return width
    except (OSError, ValueError, KeyError, TypeError):
        pass
    width = measure()
    write_text(kept, f'{{"width": {width}}}\n', parents=True)
    return width


def machine(device: Any) -> list[str]:
    """What the speed of a policy depends on here."""
    import torch

    if str(device).startswith("cuda"):
        return [torch.cuda.get_device_name(device)]
    return [platform.machine(), platform.processor(), str(os.cpu_count()), str(torch.get_num_threads())]
