"""Components by URI: ``scheme:rest?key=value``, e.g. ``testbed:half``, ``libero:spatial``, ``lerobot:org/name``.

There are six families: policies, envs, encoders, demos, arms and scorers. Third parties add schemes through entry
points in the groups ``besttake.policies``, ``besttake.envs`` and so on: the entry point's name is the scheme, and its
object is called as ``factory(rest, **options)``, with options from the URI's query and from the caller. A component
that is not packaged is named by its module: ``python:my_module:make?key=value`` calls ``my_module.make(key="value")``.
The module may also be in the current directory or beside the running script.

Data never names code. A URI from a file is a `FromFile`, not a string, so that its origin cannot be lost. It may name
built-in components and installed entry points, but neither ``python:`` nor ``trust_remote_code``, unless the user or
the program has named the same URI, or trusts the file (`trust`). Only `make` enforces this, and
tests/test_no_code_from_data.py lists every call of it, with the origin of its URI.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass, replace
from difflib import get_close_matches
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from besttake.errors import ComponentError, blaming, failure, one_clear_error, one_line, suggestion
from besttake.files import short_hash
from besttake.options import check_known

if TYPE_CHECKING:
    from besttake.arms.base import Arm
    from besttake.encoders.base import Encoder
    from besttake.envs.base import Env
    from besttake.policies.base import Policy
    from besttake.scorers.base import Scorer

_BUILTIN: dict[str, dict[str, str]] = {
    "policies": {
        "testbed": "besttake.testbed.policy:make",
        "lerobot": "besttake.policies.lerobot:make",
        "openpi": "besttake.policies.remote:make_openpi",
        "vla-eval": "besttake.policies.remote:make_vla_eval",
    },
    "envs": {
        "testbed": "besttake.testbed.env:make",
        "libero": "besttake.envs.libero.env:make",
        "libero-occ": "besttake.envs.libero.env:make_occluded",
        "maniskill": "besttake.envs.maniskill:make",
        "vla-eval": "besttake.envs.vla_eval:make",
        "gym": "besttake.envs.gym:make",
        "robot": "besttake.envs.robot:make",
    },
    "encoders": {
        "pixels": "besttake.encoders.pixels:make",
        "hog": "besttake.encoders.hog:make",
        "dinov2+siglip": "besttake.encoders.pretrained:make",
        "dinov2": "besttake.encoders.pretrained:make_dinov2",
        "siglip": "besttake.encoders.pretrained:make_siglip",
    },
    "demos": {
        "testbed": "besttake.testbed.demos:make",
        "lerobot": "besttake.demos.lerobot:make",
        "hdf5": "besttake.demos.hdf5:make",
        "video": "besttake.demos.video:make",
        "run": "besttake.demos.run:make",
    },
    "arms": {
        "base": "besttake.arms.cooled:Base",
        "cooled": "besttake.arms.cooled:make",
        "shuffled": "besttake.arms.retrieve:make_shuffled",
        "retrieve": "besttake.arms.retrieve:make",
        "rerank": "besttake.arms.rerank:Rerank",
    },
    "scorers": {
        "manifold": "besttake.scorers.frames:Manifold",
        "coverage": "besttake.scorers.frames:Coverage",
        "smoothness": "besttake.scorers.smoothness:Smoothness",
    },
}

_PLUGINS = {
    "libero-scripted": "scripted-libero", "openvla": "openvla", "flow": "small-policies",
    **dict.fromkeys(("judge", "classifier", "lerobot-reward"), "model-scorers"),
    **dict.fromkeys(("rlds", "zarr", "aloha", "maniskill", "droid"), "formats"), "hub": "lerobot_policy_besttake",
}  # fmt: skip
"""The plug-in in ``contrib/`` that has a scheme which is not part of this package."""
_SINGULAR = {
    "policies": "policy", "envs": "env", "encoders": "encoder", "demos": "source of demonstrations", "arms": "arm",
    "scorers": "scorer",
}  # fmt: skip
_MEMBERS = {
    "policies": ("spec", "sample"), "envs": ("spec", "reset", "step", "observe", "close"),
    "encoders": ("spec", "encode"), "demos": ("name", "camera", "fps", "fingerprint", "__iter__"),
    "arms": ("spec", "act"), "scorers": ("spec", "score"),
}  # fmt: skip
"""The attributes of every member of a family, from the protocol in its ``base.py``."""


@dataclass(frozen=True)
class Uri:
    """A parsed component name."""

    scheme: str
    rest: str
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str | FromFile) -> Uri:
        """``"libero:spatial?images=openpi"`` -> ``Uri("libero", "spatial", {"images": "openpi"})``.

        A plus stays a plus, as in the name of a file; a space may be written as %20.
        """
        text = text.text if isinstance(text, FromFile) else text
        head, _, query = text.partition("?")
        scheme, _, rest = head.partition(":")
        return cls(scheme, rest, dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)))


@dataclass(frozen=True)
class FromFile:
    """A URI from ``file``, chosen by data and not by a user.

    It is not a string, and ``str`` of it is not a URI, so that only this registry can use it.
    """

    text: str
    file: Path

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise ComponentError(f"{self.file} names a {type(self.text).__name__} where a component's URI should be")

    def __str__(self) -> str:
        return f"<{self.file.name}: {self.text}>"


_TRUSTED: set[str | Path] = set()
"""URIs named by the user or the program, and absolute paths of files that may name code."""


def trust(*names: str | Path) -> None:
    """Allow files to name code that is neither part of BestTake nor installed.

    A file that you did not write must not make your machine run code. Therefore a run, a library or a plan that names
    code of your own (``python:…``, or an environment in a module of yours) is refused until you say that you trust it.
    URIs that you write yourself in this program are trusted already.

    Args:
        names: A `Path` trusts a file, or all files in a directory. Text is a URI that any file may then name.

    Examples:
        >>> from pathlib import Path
        >>> trust(Path("runs/mine"))                    # all files of this run  # doctest: +SKIP
        >>> trust("python:my_policy:make")              # this component, in any file  # doctest: +SKIP
    """
    _TRUSTED.update(name.resolve() if isinstance(name, Path) else str(name) for name in names)


def trusted() -> frozenset[str | Path]:
    """All that `trust` has allowed, for other processes."""
    return frozenset(_TRUSTED)


def check_harmless(group: str, uri: FromFile) -> None:
    """ComponentError if a URI from a file would run code that is neither built in nor installed."""
    parsed = Uri.parse(uri)
    if parsed.scheme == "python" or "trust_remote_code" in parsed.options or _imports_by_name(group, parsed):
        check_trusted(uri.file, uri.text)


def check_trusted(file: Path, code: str) -> None:
    """ComponentError unless ``file`` may name ``code``."""
    place = file.resolve()
    if code not in _TRUSTED and not {place, place.parent} & _TRUSTED:
        run = (file.parent / "run.json").is_file()
        place, author = (file.parent, "made this run") if run else (file, "wrote the file")
        raise ComponentError(
            f"{file} names code to run ({code[:200]}), and a file may not: name it yourself on the command line or in"
            f" Python, or, if you trust whoever {author}, add `trust` {place}"
        )


def _imports_by_name(group: str, uri: Uri) -> bool:
    """Whether an env would run code from the hub, or a module that is neither installed nor one of vla-eval's."""
    module, colon, _ = uri.rest.partition(":")
    if group == "envs" and uri.scheme == "hub":
        return True
    if group != "envs" or not colon:
        return False
    if uri.scheme == "gym":
        return not _installed(module.partition(".")[0])
    if uri.scheme == "vla-eval":
        package = importlib.util.find_spec("vla_eval")
        places = (package.submodule_search_locations or ()) if package else ()
        return not (module.isidentifier() and any((Path(p) / "benchmarks" / module).is_dir() for p in places))
    return False


def _installed(package: str) -> bool:
    """Whether a package is fully installed; parts of a namespace package can be in the current directory."""
    spec = importlib.util.find_spec(package) if package in packages_distributions() else None
    return spec is not None and spec.origin is not None


def schemes(group: str) -> tuple[str, ...]:
    """All known schemes of ``group`` ("policies", "envs", …), ours and those of third parties."""
    return tuple(sorted({*_BUILTIN[group], *(entry.name for entry in _plugins(group))}))


@cache
def _plugins(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a family, read once, because that reads a file of every installed package."""
    return tuple(entry_points(group=f"besttake.{group}"))


def policy(uri: str | FromFile, *, trust_remote_code: bool = False, **options: Any) -> Policy:
    """Make the policy that ``uri`` names.

    With ``trust_remote_code`` a factory that has a parameter of that name may run code that comes with a checkpoint.
    """
    return cast("Policy", make("policies", uri, **_consent("policies", uri, trust_remote_code), **options))


def env(uri: str | FromFile, *, trust_remote_code: bool = False, **options: Any) -> Env:
    """Make the environment that ``uri`` names; ``trust_remote_code`` as for a policy.

    Envs from the hub are also allowed in a trusted file, and to the program once it was allowed that env.
    """
    allowed = uri in _TRUSTED or isinstance(uri, FromFile)  # other files are refused below
    consent = trust_remote_code or (allowed and Uri.parse(uri).scheme == "hub")
    return cast("Env", make("envs", uri, **_consent("envs", uri, consent), **options))


def _consent(group: str, uri: str | FromFile, given: bool) -> dict[str, bool]:
    """The option ``trust_remote_code`` if it is ``given`` and the factory has a parameter of that name."""
    text = _harmless(group, uri)
    asks = given and "trust_remote_code" in signature(_factory(group, text)).parameters
    return {"trust_remote_code": True} if asks else {}


@contextmanager
def opened_env(uri: str | FromFile, *, trust_remote_code: bool = False) -> Iterator[Env]:
    """Make the environment that ``uri`` names, and close it at the end; its errors become one line."""
    with blaming(uri.text if isinstance(uri, FromFile) else uri):
        opened = env(uri, trust_remote_code=trust_remote_code)
        try:
            yield opened
        finally:
            opened.close()


def encoder(uri: str | FromFile, **options: Any) -> Encoder:
    """Make the encoder that ``uri`` names."""
    return cast("Encoder", make("encoders", uri, **options))


def demos(uri: str | FromFile, **options: Any) -> Any:
    """Make the source of demonstrations that ``uri`` names (see `besttake.demos.base.Source`)."""
    return make("demos", uri, **options)


def arm(uri: str | FromFile, **options: Any) -> Arm:
    """Make the arm that ``uri`` names."""
    return cast("Arm", make("arms", uri, **options))


def scorer(uri: str | FromFile, **options: Any) -> Scorer:
    """Make the scorer that ``uri`` names. It must not have the name of one of ours, by which scores are stored."""
    scorer = cast("Scorer", make("scorers", uri, **options))
    if scorer.spec.name in _BUILTIN["scorers"] and Uri.parse(uri).scheme != scorer.spec.name:
        raise ComponentError(f"{uri}: {scorer.spec.name!r} is the name of a scorer of BestTake; give yours another")
    return scorer


def make(group: str, named: str | FromFile, **options: Any) -> Any:
    """Make the component of family ``group`` that a URI names; ComponentError if that fails."""
    text = _harmless(group, named)
    uri = Uri.parse(text)
    foreign, by_program = uri.scheme == "python" or _imports_by_name(group, uri), not isinstance(named, FromFile)
    if by_program and foreign and (uri.scheme != "hub" or options.get("trust_remote_code") is True):
        trust(text)  # the program names it, so its files may as well
    if uri.scheme == "gym" and (by_program or foreign):
        _see_user_modules()  # gym:MODULE:ID imports the module that registers the env
    factory = _factory(group, text)
    if uri.scheme != "python" and _takes_name(factory):
        factory = partial(factory, uri.rest)
    elif uri.scheme != "python" and uri.rest:
        raise ComponentError(f"{text}: {uri.scheme} takes no name after its colon")
    options = {**uri.options, **options}
    check_known(text, factory, options)
    with one_clear_error(f"{text}: {{}}"):
        component = factory(**options)
        _check_member(group, text, component)
        if uri.scheme in ("python", "gym") and group in ("policies", "envs"):
            _add_fingerprint(uri, component)
        if uri.scheme == "python" and uri.rest.startswith("__main__:"):
            _check_importable(group, text, component)
    return component


def _takes_name(factory: Callable[..., Any]) -> bool:
    """Whether a factory has a parameter for the part of a URI after the colon."""
    named = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return any(parameter.kind in named for parameter in signature(factory).parameters.values())


def _harmless(group: str, named: str | FromFile) -> str:
    """The text of a URI; ComponentError if it comes from a file that may not name it."""
    if isinstance(named, FromFile):
        check_harmless(group, named)
        return named.text
    return named


def _check_member(group: str, text: str, component: Any) -> None:
    """ComponentError if the component is not a member of its family."""
    kind, missing = type(component).__name__, [name for name in _MEMBERS[group] if not hasattr(component, name)]
    if not missing and "spec" in _MEMBERS[group] and not hasattr(component.spec, "name"):
        missing = ["a name in its spec"]
    if missing:
        raise ComponentError(f"{text}: this made a {kind} without {missing[0]}, which every {_SINGULAR[group]} has")


def _add_fingerprint(uri: Uri, component: Any) -> None:
    """Make the fingerprint of a user's own policy or env depend on its file, so that an edited one is another one.

    This is done for a policy or env without a fingerprint, and for any Gymnasium env that is not installed.
    """
    spec, module = getattr(component, "spec", None), type(component).__module__
    fingerprint = getattr(spec, "fingerprint", None)
    if uri.scheme == "gym":
        module, colon, _ = uri.rest.partition(":")
        if not colon or _installed(module.partition(".")[0]):  # an installed package has a version
            return
    elif fingerprint != "":
        return
    code = "" if module.partition(".")[0] == __package__ else hash_of_code(module)
    if is_dataclass(spec) and code:
        with suppress(AttributeError):  # a spec that is a property is left alone
            component.spec = replace(cast(Any, spec), fingerprint=f"{fingerprint}{code}")


def hash_of_code(module: str) -> str:
    """A hash of the file of a module, or of all files of a package; empty if there is none, as in a notebook."""
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    return short_hash(*(each.read_bytes() for each in files)) if file.is_file() else ""


def _check_importable(group: str, text: str, component: Any) -> None:
    """ComponentError if other processes have to make a component that a script or a notebook defines."""
    if group == "envs" or (group == "policies" and getattr(component.spec, "small", False)):
        file = f"my_{_SINGULAR[group]}"
        raise ComponentError(
            f"{text}: the processes that play takes cannot import what a script or a notebook defines; write"
            f" it to a file (in a notebook: %%writefile {file}.py) and name that, python:{file}:…"
        )


def takes_option(group: str, text: str, option: str) -> bool:
    """Whether the factory of this URI has a parameter ``option``; nothing is made."""
    try:
        check_known(text, _factory(group, text), [option])
    except ComponentError:
        return False
    return True


def check_scheme(group: str, text: str) -> None:
    """ComponentError if ``group`` does not have the scheme of this URI; nothing is imported."""
    scheme, known = Uri.parse(text).scheme, schemes(group)
    if scheme not in (*known, "python"):
        near = get_close_matches(scheme, known, n=1)
        hint = f"did you mean {near[0]}:… ?" if near else f"known: {', '.join(known)}; your own: python:MODULE:NAME"
        if meant := _meant(group, text):
            hint = f"did you mean {meant}?"
        if scheme in _PLUGINS:
            name = _PLUGINS[scheme]
            package = name if name.startswith("lerobot_") else f"besttake-{name}"
            hint = f"install {package}, from contrib/{name} in BestTake's repository"
        raise ComponentError(f"{text}: no {_SINGULAR[group]} of kind {scheme!r}; {hint}")


def _meant(group: str, text: str) -> str:
    """The URI that was probably meant by the name of a file, a Gymnasium env or a checkpoint; empty if unknown."""
    file, _, name = text.partition("?")[0].partition(":")
    module = Path(file).name.removesuffix(".py")
    if file.endswith(".py") or f"{module}.py" in [each.name for each in Path.cwd().glob("*.py")]:
        where = "" if name else f", where NAME in {module}.py is what makes the {_SINGULAR[group]}"
        return f"python:{module}:{name or 'NAME'}{where}"
    if group == "envs" and re.search(r"-v\d+$", text):
        return f"gym:{text}" + ("" if ":" in text else f", or gym:MODULE:{text} for an env that MODULE registers")
    return f"lerobot:{text}" if group in ("policies", "demos") and re.fullmatch(r"[\w.-]+/[\w.-]+", text) else ""


def _factory(group: str, text: str) -> Callable[..., Any]:
    """The function that makes a component, from this package, an entry point or the user's own module."""
    uri = Uri.parse(text)
    if uri.scheme == "python":
        _see_user_modules()
        return _load(uri.rest, text)
    for entry in _plugins(group):
        if entry.name == uri.scheme:
            with one_clear_error(f"{text}: the plug-in {entry.value} cannot be loaded: {{}}"):
                return cast(Callable[..., Any], entry.load())
    check_scheme(group, text)
    return _load(_BUILTIN[group][uri.scheme], text)


def _see_user_modules() -> None:
    """Make modules in the current directory and beside the running script importable, after installed ones."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    for place in (Path.cwd(), *([Path(script).resolve().parent] if script else [])):
        if str(place) not in sys.path:
            sys.path.append(str(place))


def _load(place: str, text: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    try:
        loaded = importlib.import_module(module)
    except BaseException as error:  # the user's own module can fail in any way
        if module and isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            near = get_close_matches(module, [file.stem for file in Path.cwd().glob("*.py")], n=1)
            hint = f"did you mean python:{near[0]}:{name}?" if near else "name a module of your own or an installed one"
            absent = f"{text}: there is no {module}.py in {Path.cwd()}, and no such package"
            raise ComponentError(f"{absent}; {hint}") from error
        what = f"{name or 'a factory'} from {module or 'nowhere'}"
        raise ComponentError(f"{text}: cannot import {what} ({one_line(failure(error))})") from error
    if not name:
        raise ComponentError(f"{text}: say what in {module} makes it, python:{module}:NAME; it has {_public(loaded)}")
    if not hasattr(loaded, name):
        raise ComponentError(f"{text}: {module} has no {name!r}; {suggestion(name, _public(loaded))}")
    return cast(Callable[..., Any], getattr(loaded, name))


def _public(module: Any) -> list[str]:
    """The public functions and classes that a module defines."""
    names = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return [name for name in names if not name.startswith("_")]
