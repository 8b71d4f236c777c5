"""Components by URI: ``kind:rest?key=value``, e.g. ``testbed:half``, ``libero:spatial``, ``lerobot:org/name``.

Third parties add schemes through entry points in the groups ``besttake.policies``, ``besttake.envs``,
``besttake.encoders`` and ``besttake.demos``; the entry point's name is the scheme and its object is called as
``factory(rest, **options)``, where options come from the URI's query and from the caller. A component that is not
packaged is named by its place: ``python:my_module:make?key=value`` calls ``my_module.make(key="value")``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.metadata import entry_points
from typing import Any, cast
from urllib.parse import parse_qsl

from besttake.encoders.base import Encoder
from besttake.envs.base import Env
from besttake.errors import ComponentError
from besttake.options import check_known
from besttake.policies.base import Policy

_BUILTIN: dict[str, dict[str, str]] = {
    "policies": {
        "testbed": "besttake.testbed.policy:make",
        "lerobot": "besttake.policies.lerobot:make",
        "openvla": "besttake.policies.openvla:make",
        "openpi": "besttake.policies.openpi:make",
        "vla-eval": "besttake.policies.vla_eval:make",
        "flow": "besttake.policies.flow:make",
    },
    "envs": {
        "testbed": "besttake.testbed.env:make",
        "libero": "besttake.envs.libero:make",
        "libero-occ": "besttake.envs.libero:make_occluded",
        "maniskill": "besttake.envs.maniskill:make",
        "vla-eval": "besttake.envs.vla_eval:make",
        "gym": "besttake.envs.gym:make",
    },
    "encoders": {
        "pixels": "besttake.encoders.pixels:make",
        "hog": "besttake.encoders.hog:make",
        "dinov2+siglip": "besttake.encoders.dinov2_siglip:make",
        "dinov2": "besttake.encoders.dinov2_siglip:make_dinov2",
        "siglip": "besttake.encoders.dinov2_siglip:make_siglip",
        "hf": "besttake.encoders.hub:make_hf",
        "timm": "besttake.encoders.hub:make_timm",
        "efficientnet-lite0": "besttake.encoders.efficientnet:make",
    },
    "demos": {
        "testbed": "besttake.testbed.demos:make",
        "lerobot": "besttake.demos.lerobot:make",
        "hdf5": "besttake.demos.hdf5:make",
        "video": "besttake.demos.video:make",
        "run": "besttake.demos.run:make",
        "libero-scripted": "besttake.contrib.scripted_libero:make",
    },
}

_ONE = {"policies": "policy", "envs": "env", "encoders": "encoder", "demos": "source of demonstrations"}


@dataclass(frozen=True)
class Uri:
    """A parsed component name."""

    scheme: str
    rest: str
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Uri:
        """``"libero:spatial?images=openpi"`` -> ``Uri("libero", "spatial", {"images": "openpi"})``."""
        head, _, query = text.partition("?")
        scheme, _, rest = head.partition(":")
        return cls(scheme, rest, dict(parse_qsl(query, keep_blank_values=True)))


def schemes(group: str) -> tuple[str, ...]:
    """All schemes known in ``group`` ("policies", "envs", "encoders", "demos"), ours and third parties'."""
    return tuple(sorted({*_BUILTIN[group], *(e.name for e in entry_points(group=f"besttake.{group}"))}))


def policy(uri: str, **options: Any) -> Policy:
    """The policy that ``uri`` names."""
    return cast(Policy, _make("policies", uri, options))


def env(uri: str, **options: Any) -> Env:
    """The environment that ``uri`` names."""
    return cast(Env, _make("envs", uri, options))


def encoder(uri: str, **options: Any) -> Encoder:
    """The encoder that ``uri`` names."""
    return cast(Encoder, _make("encoders", uri, options))


def demos(uri: str, **options: Any) -> Any:
    """The source of demonstrations that ``uri`` names (see `besttake.demos.library.Source`)."""
    return _make("demos", uri, options)


def _make(group: str, text: str, options: dict[str, Any]) -> Any:
    uri = Uri.parse(text)
    merged = {**uri.options, **options}
    own = uri.scheme == "python"
    make = _load(uri.rest, text) if own else partial(_factory(group, uri, text), uri.rest)
    check_known(text, make, merged)
    return make(**merged)


def _factory(group: str, uri: Uri, text: str) -> Callable[..., Any]:
    for entry in entry_points(group=f"besttake.{group}"):
        if entry.name == uri.scheme:
            return cast(Callable[..., Any], entry.load())
    if uri.scheme not in _BUILTIN[group]:
        known = schemes(group)
        near = get_close_matches(uri.scheme, known, n=1)
        hint = f"did you mean {near[0]}:… ?" if near else f"known: {', '.join(known)}"
        raise ComponentError(f"{text}: no {_ONE[group]} of kind {uri.scheme!r}; {hint}")
    return _load(_BUILTIN[group][uri.scheme], text)


def _load(place: str, text: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    try:
        return cast(Callable[..., Any], getattr(importlib.import_module(module), name))
    except (ModuleNotFoundError, AttributeError, ValueError) as error:
        raise ComponentError(
            f"{text}: cannot import {name or 'a factory'} from {module or 'nowhere'} ({error})"
        ) from error
