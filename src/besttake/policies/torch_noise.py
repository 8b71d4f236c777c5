"""Give a model the noise that it would draw itself, where its class has no argument for it.

Many policies begin with ``torch.randn`` (or ``torch.normal``, ``torch.rand``) of a chunk's shape inside a method that
takes no noise. `given_noise` answers those calls, in this thread and for as long as it is entered; nothing of torch or
of the policy's module is replaced. This is the one place that does so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from besttake.errors import ComponentError
from besttake.takes.draws import Draw


@contextmanager
def given_noise(who: str, noise: Any, draws: Sequence[Draw], uniform: bool = False) -> Iterator[None]:
    """Within it, the first normal draw of the shape of ``noise`` (B, …) is ``noise``, cast to what was asked for.

    With ``uniform`` it is the first of ``torch.rand``. Later draws of that shape (what DDPM adds on its way) come from
    a generator for each row, seeded by its draw. Any other random call, and no call at all, is an error: the class
    ``who`` then works otherwise than we know.
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
    asked, drawn = 0, "uniform" if uniform else "normal"

    class Given(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal asked
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
            asked += 1
            like = args[0] if copies else None
            dtype = kwargs.get("dtype") or (noise.dtype if like is None else like.dtype)
            device = kwargs.get("device") or (noise.device if like is None else like.device)
            if asked == 1:
                return noise.to(device=device, dtype=dtype, copy=True)
            rows = [again(shape[1:], generator=generator) for generator in generators]
            return torch.stack(rows).to(device=device, dtype=dtype)

    with Given():
        yield
    if not asked:
        changed = "its class has changed, so arms would do nothing"
        raise ComponentError(f"{who}: drew no noise of {list(noise.shape)}; {changed}")


def _shape(like: bool, args: Any, kwargs: Any) -> tuple[int, ...]:
    if like:
        return tuple(args[0].shape)
    size = kwargs.get("size", args)
    if len(size) == 1 and not isinstance(size[0], int):
        size = size[0]
    return tuple(size) if all(isinstance(each, int) for each in size) else ()
