"""What used to be a traceback is one line: odd columns, odd names, a full disk, encoders that fail."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import writers

from besttake import registry
from besttake.demos.build import build
from besttake.demos.library import Library
from besttake.encoders.hog import Hog
from besttake.errors import ComponentError, LibraryError, RunError
from besttake.files import write_text
from besttake.takes.manifest import Manifest
from besttake.takes.store import Store
from besttake.testbed.demos import TestbedDemos
from besttake.types import EncoderSpec

EPISODES = [writers.episode(number, length=8, side=16) for number in range(2)]
COLUMNS = {
    "list": pa.array([[1, 2]] * 8), "struct": pa.array([{"a": 1}] * 8), "text": pa.array(["x"] * 8),
    "map": pa.array([[("a", 1)]] * 8, pa.map_(pa.string(), pa.int64())), "nested": pa.array([[[1.0]]] * 8),
    "ragged": pa.array([[0.0] * 6, [0.0] * 8] * 4), "null": pa.nulls(8),
}  # fmt: skip


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("name", ["frame_index", "actions", "wrist_image"])
def test_a_column_of_another_type_is_one_line(tmp_path: Path, name: str, kind: str) -> None:
    root = writers.openpi_libero(tmp_path / "set", EPISODES)
    path = root / "data" / "chunk-000" / "episode_000001.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index(name), name, COLUMNS[kind]), path)
    with pytest.raises(LibraryError, match="demonstration episode 1 has ") as error:
        build(registry.demos(f"lerobot:{root}"), Hog(), tmp_path / "library")
    assert "\n" not in str(error.value)


def test_directories_whose_names_are_not_utf_8_are_read_and_built_in(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    for kind, write in (("lerobot", writers.hugging_face_libero), ("lerobot", writers.ipec_libero)):
        root = shutil.copytree(write(tmp_path / write.__name__, EPISODES), odd / write.__name__)
        made = build(registry.demos(f"{kind}:{root}"), Hog(), odd / "library")
        assert len(Library.open(made.path).demos) == 2
    with pytest.raises(RunError, match="its name is not UTF-8"):
        Store.write(odd / "run", Manifest())
    assert write_text(tmp_path / "page.html", f"<p>{odd.name}</p>").read_text() == r"<p>caf\udce9</p>"


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.path.insert(0, sys.argv[1])
import writers
from besttake import registry
from besttake.demos.build import build
from besttake.errors import LibraryError
source = registry.demos(f"lerobot:{sys.argv[2]}")
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
try:
    build(source, registry.encoder("pixels"), sys.argv[4])
except LibraryError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit of file sizes")
@pytest.mark.parametrize("most", [100, 5_000, 12_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, most: int) -> None:
    root, out = writers.openpi_libero(tmp_path / "set", EPISODES), tmp_path / "out" / "library"
    command = [sys.executable, "-c", FULL, str(Path(__file__).parent), str(root), str(most), str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(f"no space left on the disk of {out}")
    assert ran.stderr == ""
    assert not list(out.parent.iterdir())


class Odd:
    """An encoder of three numbers that does what ``way`` says."""

    spec = EncoderSpec("odd", 3, "1")

    def __init__(self, way: str) -> None:
        self.way = way

    def encode(self, images):
        if self.way == "raises":
            raise RuntimeError("CUDA\nout of memory")
        if self.way == "leaves":
            sys.exit(3)
        return np.zeros((1, 3), np.float32)


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("raises", r"the encoder odd failed: RuntimeError: CUDA out of memory \(test_one_line.py"),
        ("leaves", "the encoder odd failed: .*3"),
        ("gives few", r"gave float32 of shape \(1, 3\), not float32 \(8, 3\)"),
    ],
)
def test_an_encoder_that_fails_or_gives_something_else_is_one_line(tmp_path: Path, way: str, says: str) -> None:
    root = writers.openpi_libero(tmp_path / "set", EPISODES)
    with pytest.raises(ComponentError, match=says) as error:
        build(registry.demos(f"lerobot:{root}"), Odd(way), tmp_path / "library")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("end", [RuntimeError, OSError, SystemExit, GeneratorExit, StopIteration])
def test_a_source_that_fails_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    whole = TestbedDemos.of_tasks

    def failing(self, wanted):
        yield from whole(self, wanted)
        raise end("gone")

    monkeypatch.setattr(TestbedDemos, "of_tasks", failing)
    with pytest.raises(ComponentError, match=rf"reading the demonstrations failed: .*{end.__name__}"):
        build(registry.demos("testbed:pick?demos_per_task=1"), Hog(), tmp_path / "library")
