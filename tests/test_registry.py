from __future__ import annotations

import pickle
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from besttake import registry
from besttake.errors import ComponentError
from besttake.registry import Uri
from besttake.scorers.base import ScorerSpec
from besttake.scorers.score_run import make_scorers

MEMBER = """\
from types import SimpleNamespace

class Member(SimpleNamespace):
    __iter__ = None

def member(made):
    spec = SimpleNamespace(name="toy")
    return Member(made=made, spec=spec, sample=0, encode=0, name="toy", camera="", fps=1, fingerprint="")

"""
"""A module whose ``member`` has what a policy, an encoder and a source of demonstrations have."""


def test_a_uri_has_a_scheme_a_rest_and_options() -> None:
    assert Uri.parse("libero:spatial?images=openpi&x=") == Uri("libero", "spatial", {"images": "openpi", "x": ""})
    assert Uri.parse("pixels") == Uri("pixels", "", {})
    assert Uri.parse("flow:x?ckpt=/data/a+b%20c.pt").options == {"ckpt": "/data/a+b c.pt"}
    assert Uri.parse("openpi:ws://host:8000").rest == "ws://host:8000"


def test_a_misspelt_scheme_is_answered_with_the_nearest() -> None:
    with pytest.raises(ComponentError, match="did you mean testbed"):
        registry.policy("testbet:half")
    with pytest.raises(ComponentError, match="hog:x: hog takes no name after its colon"):
        registry.encoder("hog:x")


def test_a_plug_in_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", lambda group: ())
    with pytest.raises(ComponentError, match="install besttake-model-scorers, from contrib/model-scorers"):
        registry.scorer("judge:http://127.0.0.1:8000?model=m")
    with pytest.raises(ComponentError, match="install besttake-formats, from contrib/formats"):
        registry.demos("rlds:bridge")


@pytest.mark.parametrize("family", ["policy", "env", "encoder", "demos", "arm", "scorer"])
@pytest.mark.parametrize("made", ["None", "type('Half', (), {'spec': 3})()"])
def test_a_factory_that_makes_no_member_of_its_family_is_one_line(family: str, made: str, module) -> None:
    module("odd_factory", f"def make(): return {made}\n")
    with pytest.raises(ComponentError, match="odd_factory:make: this made a .*, which every .* has"):
        getattr(registry, family)("python:odd_factory:make")


def test_what_a_file_names_is_no_text_and_loses_its_origin_nowhere() -> None:
    named = registry.FromFile("python:os:system?command=true", Path("library.json"))
    for rebuilt in (str(named), f"{named}", f"{named}&more=1", "python:" + str(named)):
        with pytest.raises(ComponentError):
            registry.encoder(rebuilt)
    with pytest.raises(ComponentError, match="names code to run"):
        registry.encoder(named)
    with pytest.raises(ComponentError, match="names code to run"):
        registry.encoder(pickle.loads(pickle.dumps(named)))
    with pytest.raises(ComponentError, match="names a list"):
        registry.FromFile(["python:os:system"], Path("library.json"))  # type: ignore[arg-type]


def test_third_parties_add_schemes_by_entry_points(monkeypatch: pytest.MonkeyPatch, module) -> None:
    module("their_package", MEMBER + "def make(rest, **options): return member((rest, options))\n")
    entry = EntryPoint("theirs", "their_package:make", "besttake.encoders")
    monkeypatch.setattr(registry, "_plugins", lambda group: (entry,) if group == "encoders" else ())
    made: Any = registry.encoder("theirs:a/b?k=v", more=1)
    assert made.made == ("a/b", {"k": "v", "more": 1})
    assert "theirs" in registry.schemes("encoders")


def test_a_component_that_is_not_packaged_is_named_by_its_place(module) -> None:
    module("my_module", MEMBER + "def make(size='1'): return member(int(size))\n")
    assert registry.demos("python:my_module:make?size=3").made == 3
    with pytest.raises(ComponentError, match="my_module has no .nothing_here"):
        registry.demos("python:my_module:nothing_here")
    with pytest.raises(ComponentError, match="no option colour; known: size"):
        registry.demos("python:my_module:make?colour=red")


def test_trust_goes_to_factories_that_ask_for_it_and_to_no_other(module) -> None:
    asks = "def asks(trust_remote_code=False): return member(trust_remote_code)\n"
    module("trusting", MEMBER + asks + "def takes_any(**options): return member(options)\n")
    made: list[Any] = [
        registry.policy("python:trusting:asks", trust_remote_code=True),
        registry.policy("python:trusting:asks"),
        registry.policy("python:trusting:takes_any", trust_remote_code=True),
    ]
    assert [each.made for each in made] == [True, False, {}]


def test_what_a_notebook_defines_and_other_processes_must_make_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(small: bool) -> Any:
        return lambda: SimpleNamespace(spec=SimpleNamespace(name="mine", small=small), sample=None)

    monkeypatch.setattr(sys.modules["__main__"], "make_mine", made(small=True), raising=False)
    with pytest.raises(ComponentError, match=r"^python:__main__:make_mine: .* %%writefile my_policy.py"):
        registry.policy("python:__main__:make_mine")
    monkeypatch.setattr(sys.modules["__main__"], "make_mine", made(small=False))
    assert registry.policy("python:__main__:make_mine").spec.name == "mine"
    scorer = SimpleNamespace(spec=ScorerSpec("mine", reads=(), fingerprint="1"), score=None)
    monkeypatch.setattr(sys.modules["__main__"], "make_mine", lambda: scorer)
    assert [*make_scorers(["coverage", "python:__main__:make_mine"])] == ["coverage", "python:__main__:make_mine"]


def test_a_policy_of_ones_own_without_a_fingerprint_has_that_of_its_file(module) -> None:
    text = """
from besttake.types import PolicySpec

class Own:
    def __init__(self, fingerprint):
        self.spec = PolicySpec("own", "flow", 1, 1, 1, fingerprint=fingerprint)

    def sample(self, observations, draws, warm=None):
        ...

def make(fingerprint=""):
    return Own(fingerprint)
"""
    module("own_first", text)
    module("own_second", text + "# changed")
    first, again, second = (registry.policy(f"python:{name}:make") for name in ("own_first", "own_first", "own_second"))
    assert first.spec.fingerprint == again.spec.fingerprint != second.spec.fingerprint
    assert registry.policy("python:own_first:make?fingerprint=v1").spec.fingerprint == "v1"
