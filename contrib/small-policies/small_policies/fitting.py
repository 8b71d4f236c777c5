"""Flow matching for small networks: what the testbed's and LIBERO's training have in common. Needs torch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from besttake.testbed.network import FREQUENCIES, LAYERS
from besttake.types import F32, Array


def fit(
    inputs: F32,
    chunks: F32,
    *,
    width: int,
    steps: int,
    batch: int,
    rate: float,
    decay: float,
    seed: int,
    blur: F32 | None = None,
) -> tuple[dict[str, Array], float]:
    """An MLP that carries noise to ``chunks`` (M, C), normalised, on a straight path, given ``inputs`` (M, F).

    ``blur`` (K, F) adds ``n @ blur``, n standard normal, to the inputs of each row it learns from. Gives the layers
    ``w0, b0, …`` of the moving average, and the last loss.
    """
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    targets, context, frequencies = torch.tensor(chunks), torch.tensor(inputs), torch.tensor(FREQUENCIES)
    unsure = None if blur is None else torch.tensor(blur)
    first = targets.shape[1] + context.shape[1] + 2 * len(FREQUENCIES)
    sizes = [first, *[width] * (LAYERS - 1), targets.shape[1]]
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(sizes)]
    weights = [p for layer in layers for p in layer.parameters()]
    average = [p.detach().clone() for p in weights]
    optimiser = torch.optim.AdamW(weights, rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    smooth = 1.0
    for step in range(steps):
        rows = torch.randint(len(targets), (batch,))
        goal, seen = targets[rows], context[rows]
        if unsure is not None:
            seen = seen + torch.randn(batch, len(unsure)) @ unsure
        noise, when = torch.randn_like(goal), torch.rand(batch, 1)
        angle = when * frequencies
        hidden = torch.cat([(1 - when) * noise + when * goal, seen, angle.sin(), angle.cos()], 1)
        for layer in layers[:-1]:
            hidden = torch.nn.functional.silu(layer(hidden))
        loss = ((layers[-1](hidden) - (goal - noise)) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        smooth = 0.99 * smooth + 0.01 * loss.item()
        keep = min(0.995, step / (step + 10))
        with torch.no_grad():
            for old, new in zip(average, weights, strict=True):
                old.mul_(keep).add_(new, alpha=1 - keep)
    arrays: dict[str, Array] = {}
    for index, (weight, shift) in enumerate(zip(average[::2], average[1::2], strict=True)):
        arrays[f"w{index}"] = np.ascontiguousarray(weight.numpy().T, np.float16)
        arrays[f"b{index}"] = shift.numpy().astype(np.float16)
    return arrays, smooth
