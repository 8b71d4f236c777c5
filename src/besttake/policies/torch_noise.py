"""Control the noise of a model whose class has no argument for it.

Many policies call ``torch.randn`` (or ``torch.normal``, ``torch.rand``) inside a method that takes no noise.
`given_noise` intercepts those calls in this thread, while it is entered; no function of torch or of the policy is
replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from besttake.errors import ComponentError
from besttake.takes.draws import Draw


@contextmanager
def given_noise(who: str, noise: Any, draws: Sequence[Draw], uniform: bool = False) -> Iterator[None]:
    """Return ``noise`` (B, …) from the first normal draw of its shape, cast to the dtype and device of the call.

    With ``uniform`` it is the first call of ``torch.rand``. Later draws of that shape (DDPM's noise at each step) come
    from a generator for each row, seeded by its draw. Any other random call, or none at all, is an error, because the
    class ``who`` then works differently from what we know.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    normal, flat = (torch.randn, torch.normal, torch.randn_like), (torch.rand, torch.rand_like)
    known, again = (flat, torch.rand) if uniform else (normal, torch.randn)
    other = (
        *(normal if uniform else flat),
        *(torch.randint, torch.multinomial, torch.bernoulli, torch.randperm),
        *(torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_),
    )
    generators = [torch.Generator().manual_seed(draw.integer()) for draw in draws]
    calls, drawn = 0, "uniform" if uniform else "normal"

    class GivenNoise(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal calls
            kwargs = kwargs or {}
            if func not in known and func not in other:
                return func(*args, **kwargs)
            copies = func in (torch.randn_like, torch.rand_like)
            shape = _shape(copies, args, kwargs)
            if func in other or shape != tuple(noise.shape):
                raise ComponentError(
                    f"{who}: draws {func.__name__}{list(shape)} where we know of {drawn} {list(noise.shape)}; "
                    "its class has changed, so its takes could not be repeated"
                )
            calls += 1
            like = args[0] if copies else None
            dtype = kwargs.get("dtype") or (noise.dtype if like is None else like.dtype)
            device = kwargs.get("device") or (noise.device if like is None else like.device)
            if calls == 1:
                return noise.to(device=device, dtype=dtype, copy=True)
            rows = [again(shape[1:], generator=generator) for generator in generators]
            return torch.stack(rows).to(device=device, dtype=dtype)

    with GivenNoise():
        yield
    if not calls:
        raise ComponentError(f"{who}: drew no noise of {list(noise.shape)}; its class has changed, so arms do nothing")


def _shape(like: bool, args: Any, kwargs: Any) -> tuple[int, ...]:
    if like:
        return tuple(args[0].shape)
    size = kwargs.get("size", args)
    if len(size) == 1 and not isinstance(size[0], int):
        size = size[0]
    return tuple(size) if all(isinstance(each, int) for each in size) else ()
