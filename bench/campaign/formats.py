"""Every format that BestTake reads from files or sockets: good samples, where they stand, and what reads them."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from safetensors.numpy import save

from besttake import registry
from besttake.config import load_plan, parse_dims, parse_starts
from besttake.demos.base import UnreadableDemo
from besttake.demos.build import build
from besttake.demos.hdf5 import SUFFIXES
from besttake.demos.library import Library
from besttake.encoders.cache import CachedEncoder
from besttake.encoders.pixels import Pixels
from besttake.envs.libero.install import load_init_states
from besttake.errors import BestTakeError
from besttake.options import Reader
from besttake.policies import remote_wire
from besttake.policies.lerobot_checkpoint import check_processors
from besttake.recordings.read import read_file
from besttake.result import Cost, Relation, Result
from besttake.takes.key import TakeKey
from besttake.takes.manifest import Manifest
from besttake.takes.take import Film, Take
from besttake.testbed.demos import TestbedDemos
from besttake.types import EncoderSpec

_DATA = Path(__file__).parents[2] / "tests" / "recordings" / "data"
_CORPUS = Path(__file__).with_name("corpus")


@dataclass(frozen=True)
class Format:
    """``samples`` are good files, ``file`` their place below a directory, ``around`` what stands beside them."""

    name: str
    samples: tuple[bytes, ...]
    file: str
    parse: Callable[[Path], Any]
    around: Path | None = None

    def write(self, place: Path, data: bytes) -> Path:
        """The directory with ``data`` as the file; returns the file's path."""
        root = place / "input"
        path = root / self.file
        if not root.exists():
            root.mkdir()
            if self.around is not None:
                shutil.copytree(self.around, root, dirs_exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


def all_formats(scratch: Path) -> list[Format]:
    """All formats; ``scratch`` gets what is made for them."""
    own = [*_texts(), *_runs(), *_libraries(scratch), *_weights(), *_wires()]
    return [*own, *_recordings(), *_data_sets(), *_published(scratch)]


def _texts() -> list[Format]:
    plans = tuple(path.read_bytes() for path in sorted(_CORPUS.glob("*.yaml")))
    lines = tuple((_CORPUS / "uris.txt").read_bytes().splitlines())
    return [
        Format("plan", plans, "plan.yaml", lambda path: load_plan(path, {})),
        Format("uri", lines, "uri.txt", lambda path: _uri(path.read_bytes().decode("utf-8", "replace"))),
    ]


def _uri(text: str) -> None:
    parsed, read = registry.Uri.parse(text), Reader(text[:50])
    readers: tuple[Callable[[str], Any], ...] = (
        lambda value: read.whole("n", value), lambda value: read.number("x", value),
        lambda value: read.flag("f", value), lambda value: read.indexes("i", value),
        lambda value: read.mapping("m", value), parse_starts, parse_dims,
    )  # fmt: skip
    for value in (parsed.rest, *parsed.options.values()):
        for each in readers:
            try:
                each(value)
            except ValueError as error:
                if len(str(error)) > 3000:
                    raise
            except BestTakeError:
                continue
    for group in ("policies", "envs", "encoders", "demos", "arms", "scorers"):
        try:
            registry.check_scheme(group, text)
            registry.check_harmless(group, registry.FromFile(text, Path("plan.yaml")))
        except BestTakeError:
            continue


def _recordings() -> list[Format]:
    def good(pattern: str) -> tuple[bytes, ...]:
        return tuple(path.read_bytes() for path in sorted(_DATA.glob(pattern)))

    def parse(path: Path) -> Any:
        return read_file(path, {})

    tables = (
        b"policy,task,start,seed,success\np,t,0,0,1\np,t,0,1,0\np,t,1,0,true\n",
        b"policy;task;start;seed;success\np;t;0;0;1\np;t;0;1;0\n",
    )  # fmt: skip
    buffer = io.BytesIO()
    pq.write_table(pa.table({"task": ["a", "b"], "success": [True, False], "start": [0, 1]}), buffer)
    logs = (
        b"Task: pick\nStarting episode 1...\nSuccess: True\n# episodes completed so far: 1\n# successes: 1 (100.0%)\n"
    )
    return [
        Format("vla-eval export", good("vla_eval/*.json"), "result.json", parse),
        Format("vla-eval recording", good("vla_eval/*seed0.sqlite"), "recording.sqlite", parse),
        Format("lerobot-eval", good("lerobot_eval/*/*.json"), "eval_info.json", parse),
        Format("maniskill", good("maniskill/*.json"), "trajectory.json", parse),
        Format("table", tables, "table.csv", parse),
        Format("parquet", (buffer.getvalue(),), "table.parquet", parse),
        Format("log", (logs,), "EVAL-libero.txt", parse),
    ]


def _runs() -> list[Format]:
    manifest = Manifest(command="besttake demo", plan={"policy": ["testbed:half"]}, identity={"seed": 0}).to_bytes()
    film = Film.pack(np.zeros((2, 8, 8, 3), np.uint8))
    key = TakeKey("testbed:half", "testbed:pick", "pick", 0, "base", 0)
    zeros, steps = np.zeros((3, 4), np.float32), np.array([0, 2], np.int32)
    take = Take(key, 2, zeros, np.zeros((4, 5), np.float32), film, steps, 1)

    def read_take(path: Path) -> None:
        loaded = Take.from_bytes(path.read_bytes())
        _ = loaded.steps, loaded.success_step

    result = Result(
        besttake="", created="", command="", digest="", plan={}, versions={}, library=None, worth=0.03, cells=[],
        policies=[], relation=Relation(reason="few"),
        cost=Cost(takes=0, errors=0, steps=0, policy_calls=0, frames_scored=0, frames_encoded=0, seconds={}),
    )  # fmt: skip
    return [
        Format("run.json", (manifest,), "run.json", lambda path: Manifest.read(path.parent)),
        Format("take", (take.to_bytes(),), "a.take", read_take),
        Format("result.json", (result.to_json().encode(),), "result.json", Result.load),
    ]


def _libraries(scratch: Path) -> list[Format]:
    made = build(TestbedDemos(("pick",), 1, 16, "std"), Pixels(), scratch / "library")
    head = (made.path / "library.json").read_bytes()

    def use(path: Path) -> None:
        library = Library.open(path.parent)
        library.encoder()
        library.view("pick", "").candidates(_default(), 4)
        library.frame_image(0)

    def cache(path: Path) -> None:
        CachedEncoder(_Means(), path.parent).encode(np.zeros((2, 4, 4, 3), np.uint8))

    cached = CachedEncoder(_Means(), scratch / "cache")
    cached.encode(np.zeros((2, 4, 4, 3), np.uint8))
    return [
        Format("library.json", (head,), "library.json", use, made.path),
        Format("embedding cache", (cached.path.read_bytes(),), cached.path.name, cache),
    ]


def _default() -> Any:
    from besttake.core.retrieve import RetrievalConfig

    return RetrievalConfig()


class _Means:
    """The smallest encoder."""

    spec = EncoderSpec("means", 3, "means-1")

    def encode(self, images: Any) -> Any:
        """The mean colours."""
        return np.ones((len(images), 3), np.float32) / np.sqrt(np.float32(3))


def _data_sets() -> list[Format]:
    picture = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)).save(picture, "PNG")
    jpeg = io.BytesIO()
    Image.new("RGB", (24, 16)).save(jpeg, "JPEG")

    def pictures(path: Path) -> None:
        _read_all(f"video:{path.parents[1]}")

    return [
        Format("picture", (picture.getvalue(), jpeg.getvalue()), "set/demo/0.png", pictures),
    ]


def _published(scratch: Path) -> list[Format]:
    """Each kind of file of each data set that other projects publish, in sets as the tests write them.

    Not HDF5: libhdf5 crashes on some damaged files, which is accepted (SECURITY.md).
    """
    writers: Any = import_module("tests.demos.writers")
    episodes = [writers.episode(number, length=8, side=32) for number in range(2)]
    formats = []
    for scheme, write in (
        ("lerobot", writers.hugging_face_libero), ("lerobot", writers.ipec_libero), ("rlds", writers.rlds_libero),
        ("droid", writers.droid),
    ):  # fmt: skip
        root = scratch / write.__name__
        root.mkdir()
        where = write(root, episodes).relative_to(root)
        kinds = {
            path.suffix: path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix not in SUFFIXES
        }
        for path in kinds.values():
            file, name = path.relative_to(root), f"{write.__name__} {path.name}"
            read = _set_reader(scheme, file, where)
            formats.append(Format(name, (path.read_bytes(),), str(file), read, root))
    return formats


def _set_reader(scheme: str, file: Path, where: Path) -> Callable[[Path], None]:
    return lambda path: _read_all(f"{scheme}:{path.parents[len(file.parts) - 1] / where}")


def _read_all(uri: str) -> None:
    for demo in registry.demos(uri):
        if isinstance(demo, UnreadableDemo) and "\n" in demo.reason:
            raise ValueError(f"told in several lines: {demo.reason[:100]}")


def _weights() -> list[Format]:
    rng = np.random.default_rng(0)
    arrays = {
        "state_map": np.eye(4, dtype=np.float32), "state_shift": np.zeros(4, np.float32),
        "state_blur": np.zeros((1, 4), np.float32), "action_mean": np.zeros(2, np.float32),
        "action_std": np.ones(2, np.float32), "w0": rng.normal(size=(6 + 4 + 1 + 16, 8)).astype(np.float32),
        "b0": np.zeros(8, np.float32), "w1": rng.normal(size=(8, 6)).astype(np.float32), "b1": np.zeros(6, np.float32),
    }  # fmt: skip
    flow = save(arrays, {"horizon": "3", "replan": "2", "instructions": '["go"]'})
    steps = [{"registry_name": "rename"}, {"class": "lerobot.processor.device_processor.DeviceProcessorStep"}]
    processor = json.dumps({"name": "policy", "steps": steps}).encode()
    states = io.BytesIO()
    with zipfile.ZipFile(states, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(np.zeros((3, 5)), protocol=2))

    def check(path: Path) -> None:
        (path.parent / "policy_postprocessor.json").write_bytes(path.read_bytes())
        check_processors(path.parent)

    return [
        Format("flow policy", (flow,), "policy.safetensors", lambda path: registry.policy(f"flow:{path}")),
        Format("processors", (processor,), "policy_preprocessor.json", check),
        Format("initial states", (states.getvalue(),), "task.pruned_init", load_init_states),
    ]


def _wires() -> list[Format]:
    image = {"__ndarray__": True, "data": bytes(48), "dtype": "|u1", "shape": [4, 4, 3]}
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    png = {"__image__": True, "format": "png", "data": picture.getvalue()}
    message = {"type": "observation", "seq": 1, "payload": {"images": {"a": image, "b": png}, "states": [1.0]}}
    openpi = {"observation/image": {key.encode(): value for key, value in image.items()}, "prompt": "go"}

    def bare(path: Path) -> None:
        remote_wire.unpack_openpi(path.read_bytes())

    return [
        Format("vla-eval wire", (msgpack.packb(message),), "m", lambda p: remote_wire.unpack_message(p.read_bytes())),
        Format("openpi wire", (msgpack.packb(openpi),), "m", bare),
    ]
