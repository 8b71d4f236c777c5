"""Changes to bytes: what a bad disk does, and what a fuzzer does to get past a parser's first look."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Change = Callable[[random.Random, bytes], bytes]


def damaged(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """``data`` with one change that is a change, and its name."""
    while True:
        name = rng.choice(sorted(_CHANGES))
        changed = _CHANGES[name](rng, data)
        if changed != data:
            return changed, name


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """``data`` with a few changes, parts of ``others`` and dangerous ``words`` among them."""
    if data[:1] in b"{[" and rng.random() < 0.5:
        try:
            return json.dumps(_json(rng, json.loads(data))).encode()
        except (ValueError, RecursionError):
            pass
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        kind = rng.random()
        if kind < 0.25:
            place = rng.randrange(len(data) + 1)
            data = data[:place] + rng.choice(words) + data[place + rng.choice((0, 0, 1, 4, 8)) :]
        elif kind < 0.35:
            other = rng.choice(others)
            cut, paste = rng.randrange(len(data) + 1), rng.randrange(len(other) + 1)
            data = data[:cut] + other[paste:]
        else:
            data = rng.choice(list(_CHANGES.values()))(rng, data)
    return data[: 4 << 20]


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _number(rng: random.Random, data: bytes) -> bytes:
    """A size field of another size."""
    width = rng.choice((1, 2, 4, 8))
    value = rng.choice((0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)) % (1 << 8 * width)
    place = rng.randrange(max(1, len(data) - width + 1))
    return data[:place] + value.to_bytes(width, rng.choice(("little", "big"))) + data[place + width :]


def _digit(rng: random.Random, data: bytes) -> bytes:
    digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return _set(rng, data)
    place = rng.choice(digits)
    return data[:place] + rng.choice((b"0", b"9", b"-1", b"1e308", b"99999999999999999999")) + data[place + 1 :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _remove(rng: random.Random, data: bytes) -> bytes:
    first = rng.randrange(len(data) + 1)
    return data[:first] + data[first + rng.choice((1, 2, 16, 200)) :]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    first = rng.randrange(len(data) + 1)
    part = data[first : first + rng.choice((1, 4, 64, 1000))]
    return data[:first] + part * rng.choice((2, 3, 50)) + data[first:]


def _zero(rng: random.Random, data: bytes) -> bytes:
    first, width = rng.randrange(len(data) + 1), rng.choice((1, 8, 512, 4096))
    return data[:first] + bytes(min(width, len(data) - first)) + data[first + width :]


def _extend(rng: random.Random, data: bytes) -> bytes:
    return data + rng.randbytes(rng.choice((1, 7, 512)))


_CHANGES: dict[str, Change] = {
    "a flipped bit": _flip, "a changed byte": _set, "a changed number": _number, "a changed digit": _digit,
    "a cut": _cut, "a removed part": _remove, "a repeated part": _repeat, "zeros": _zero, "an extension": _extend,
}  # fmt: skip

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1e308, float("nan"), 10**30, "", "python:planted:make", "../secret", "a\x1b[2J\n", [], {},
    [[]], {"a": 1}, [0] * 50, "x" * 3000, "{chunk_index:900000000}", "2001-99-99",
)  # fmt: skip


def _json(rng: random.Random, value: Any) -> Any:
    """One value somewhere inside replaced, removed or nested deeper."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        return [*value[:place], _json(rng, value[place]), *value[place + 1 :]]
    if rng.random() < 0.05:
        for _ in range(300):
            value = [value]
        return value
    return rng.choice(_VALUES)
