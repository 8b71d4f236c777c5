"""Data sets that say what is not so: they name files outside themselves, sizes without end, types that are none."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import writers
from PIL import Image

from besttake import registry
from besttake.demos.base import UnreadableDemo
from besttake.demos.reading import Unreadable, filled, inside, picture, video_frames
from besttake.errors import LibraryError

EPISODES = [writers.episode(number, length=6, side=32) for number in range(2)]


def changed(root, **values):
    path = root / "meta" / "info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return f"lerobot:{root}"


def test_a_file_is_inside_or_it_is_not_read(tmp_path):
    root, outside = tmp_path / "set", tmp_path / "secret.txt"
    (root / "videos").mkdir(parents=True)
    outside.write_text("secret")
    (root / "link").symlink_to(outside)
    (root / "fine").symlink_to(root / "videos")
    assert inside(root, "videos/a.mp4") == root / "videos/a.mp4"
    assert inside(root, "fine/a.mp4").parent.resolve() == root / "videos"
    for path in ("../secret.txt", str(outside), "videos/../../secret.txt", "link", "a\0b", "x" * 300):
        with pytest.raises(Unreadable, match="outside the data set|cannot exist"):
            inside(root, path)


def link_out(path, secret):
    """Put a link to a copy of ``path`` outside the data set in its place."""
    secret.mkdir(exist_ok=True)
    target = secret / path.name
    path.rename(target)
    path.symlink_to(target)


def video(root):
    (root / "pour" / "take").mkdir(parents=True)
    for number in range(2):
        Image.new("RGB", (8, 8)).save(root / "pour" / "take" / f"{number}.png")
    (root / "pour" / "take.csv").write_text("action_0\n1\n2\n")
    return root


SETS = {
    "lerobot": lambda root: writers.openpi_libero(root, EPISODES),
    "lerobot 3": lambda root: writers.hugging_face_libero(root, EPISODES),
    "rlds": lambda root: writers.rlds_libero(root, EPISODES),
    "aloha": lambda root: writers.aloha(root, EPISODES),
    "droid": lambda root: writers.droid(root, EPISODES),
    "maniskill": lambda root: writers.maniskill(root / "demos.h5", EPISODES),
    "zarr": lambda root: shutil.copytree(Path(__file__).parent / "fixtures" / "replay.zarr", root / "a.zarr"),
    "hdf5": lambda root: writers.libero_hdf5(root, EPISODES),
    "video": video,
}


@pytest.mark.parametrize("kind", SETS)
def test_no_file_of_a_data_set_may_be_a_link_that_leads_out_of_it(tmp_path, kind, monkeypatch):
    (tmp_path / "set").mkdir()
    root, scheme = SETS[kind](tmp_path / "set"), kind.split()[0]
    if not root.is_dir():
        root = root.parent
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for path in files if len(files) < 20 else [*files[:10], *files[-10:]]:
        link_out(path, tmp_path / "secret")
        with pytest.raises(
            LibraryError, match=f"{re.escape(path.name)} is a link that leads out of the data set; .* `trust`"
        ):
            registry.demos(f"{scheme}:{root}")
        path.unlink()
        (tmp_path / "secret" / path.name).rename(path)
    link_out(files[0], tmp_path / "secret")
    monkeypatch.setattr(registry, "_TRUSTED", {root.resolve()})
    registry.demos(f"{scheme}:{root}")


def test_a_picture_that_is_a_program_is_not_run(tmp_path, monkeypatch):
    """Pillow would give PostScript to Ghostscript, whatever the name of its file."""
    mark, program = tmp_path / "mark", tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # it remembers where it found it
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "frame.png").write_bytes(script)
    for shown in (script, tmp_path / "frame.png"):
        with pytest.raises(Unreadable, match="has a picture that cannot be read"):
            picture(shown)
    assert not mark.exists()


def test_a_data_set_may_be_a_link_and_have_links_inside(tmp_path):
    root = video(tmp_path / "set")
    (root / "pour" / "again").symlink_to("take")
    (tmp_path / "named").symlink_to(root)
    assert len(list(registry.demos(f"video:{tmp_path / 'named'}"))) == 2


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match="not a regular file"):
        inside(tmp_path, "pipe")
    root = writers.openpi_libero(tmp_path / "set", EPISODES[:1])
    (root / "meta" / "episodes.jsonl").unlink()
    os.mkfifo(root / "meta" / "episodes.jsonl")
    with pytest.raises(LibraryError, match=r"episodes.jsonl is damaged \(not a regular file\)"):
        registry.demos(f"lerobot:{root}")


def test_the_blobs_of_the_hub_s_cache_are_inside(tmp_path):
    blobs, root = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    root.mkdir(parents=True)
    (blobs / "1234").write_text("data")
    (root / "file").symlink_to(os.path.relpath(blobs / "1234", root))
    assert inside(root, "file").read_text() == "data"
    (root / "other").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unreadable):
        inside(root, "other")


def test_patterns_are_filled_in_and_ask_for_nothing_else():
    values: dict[str, int | str] = {"chunk_index": 3, "video_key": "top"}
    assert filled("v/{video_key}/chunk-{chunk_index:03d}.mp4", values) == "v/top/chunk-003.mp4"
    assert filled("{chunk_index}", values) == "3"
    for wrong in (
        "{chunk_index:900000000}", "{chunk_index:0900000000d}", "{video_key.__class__}", "{chunk_index!r:>900000}",
        "{secret}", "{", "{0}", "{video_key:03d}", "{video_key}" * 2000,
    ):  # fmt: skip
        with pytest.raises(Unreadable):
            filled(wrong, values)


@pytest.mark.parametrize("kind", [writers.hugging_face_libero, writers.ipec_libero])
@pytest.mark.parametrize("wrong", ["{chunk_index:900000000}", "/etc/passwd", "../../{episode_index}", "{nothing}"])
def test_a_data_set_that_names_files_outside_or_without_end_is_refused_at_once(tmp_path, kind, wrong):
    root = kind(tmp_path / "set", EPISODES)
    before = time.monotonic()
    for item in registry.demos(changed(root, data_path=wrong)):
        assert isinstance(item, UnreadableDemo)
        assert "\n" not in item.reason
    assert time.monotonic() - before < 60


def test_videos_outside_are_not_read(tmp_path):
    root = writers.ipec_libero(tmp_path / "set", EPISODES)
    outside = tmp_path / "outside.mp4"
    writers.write_video(outside, EPISODES[0].pictures["wrist"], 20)
    assert all(isinstance(item, UnreadableDemo) for item in registry.demos(changed(root, video_path=str(outside))))


def test_pictures_outside_are_not_read(tmp_path):
    root = writers.openpi_libero(tmp_path / "set", EPISODES[:1])
    outside = tmp_path / "outside.png"
    outside.write_bytes(writers.png(EPISODES[0].pictures["wrist"][0]))
    path = root / "data" / "chunk-000" / "episode_000000.parquet"
    table = pq.read_table(path)
    rows = [{"bytes": None, "path": str(outside)}] * table.num_rows
    import pyarrow as pa

    column = pa.array(rows, table.schema.field("wrist_image").type)
    pq.write_table(table.set_column(table.column_names.index("wrist_image"), "wrist_image", column), path)
    (bad,) = registry.demos(f"lerobot:{root}")
    assert "outside the data set" in bad.reason


@pytest.mark.parametrize(
    "values",
    [
        {"fps": "ten"}, {"fps": 0}, {"fps": True}, {"features": []}, {"features": {"a": 3}}, {"features": {"a": {}}},
        {"data_path": 7}, {"codebase_version": 3}, {"codebase_version": None}, {"features": None},
    ],
)  # fmt: skip
def test_metadata_of_the_wrong_type_are_one_line(tmp_path, values):
    root = writers.openpi_libero(tmp_path / "set", EPISODES[:1])
    with pytest.raises(LibraryError, match=r"info.json is damaged") as caught:
        registry.demos(changed(root, **values))
    assert "\n" not in str(caught.value)


def hdf5(tmp_path, change):
    root = writers.openvla_hdf5(tmp_path / "hdf5", EPISODES[:1])
    (path,) = root.iterdir()
    with h5py.File(path, "a") as file:
        change(file)
    return f"hdf5:{path}"


def outside_file(tmp_path):
    path = tmp_path / "outside.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros((6, 32, 32, 3), np.uint8)
        file["actions"] = np.zeros((6, 7))
    return path


def test_no_link_and_no_storage_leads_out_of_an_hdf5_file(tmp_path):
    outside, raw = outside_file(tmp_path), tmp_path / "raw.bin"
    raw.write_bytes(bytes(6 * 32 * 32 * 3))
    camera = "data/demo_0/obs/eye_in_hand_rgb"

    def external(file):
        del file[camera]
        file[camera] = h5py.ExternalLink(str(outside), "x")

    def through_a_link(file):
        del file[camera]
        file["out"] = h5py.ExternalLink(str(outside), "/")
        file[camera] = h5py.SoftLink("/out/x")

    def stored_elsewhere(file):
        del file[camera]
        file.create_dataset(camera, (6, 32, 32, 3), np.uint8, external=[(str(raw), 0, h5py.h5f.UNLIMITED)])

    def virtual(file):
        del file[camera]
        layout = h5py.VirtualLayout((6, 32, 32, 3), np.uint8)
        layout[:] = h5py.VirtualSource(str(outside), "x", (6, 32, 32, 3))
        file.create_virtual_dataset(camera, layout)

    def actions(file):
        del file["data/demo_0/actions"]
        file["data/demo_0/actions"] = h5py.ExternalLink(str(outside), "actions")

    for number, change in enumerate((external, through_a_link, stored_elsewhere, virtual, actions)):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(LibraryError, match="in another file, which is not read"):
            next(iter(registry.demos(hdf5(tmp_path / str(number), change))))


def test_the_file_that_a_link_leads_to_is_not_even_opened(tmp_path):
    """It is a pipe, and to open it would be to wait for ever."""
    os.mkfifo(tmp_path / "pipe")

    def change(file):
        file["data/demo_1"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/")

    code = (
        "import sys; from besttake import registry; print([vars(d).get('reason') for d in registry.demos(sys.argv[1])])"
    )
    command = [sys.executable, "-c", code, hdf5(tmp_path, change)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout == (
        "[None, 'has demo_1 in another file, which is not read']\n"
    )


def test_links_in_a_circle_end(tmp_path):
    def change(file):
        file["data/demo_1"] = h5py.SoftLink("/data/demo_2")
        file["data/demo_2"] = h5py.SoftLink("/data/demo_1")

    assert [type(item) for item in registry.demos(hdf5(tmp_path, change))][1:] == [UnreadableDemo, UnreadableDemo]


def test_sizes_of_an_hdf5_file_are_not_believed(tmp_path):
    def huge(file):
        del file["data/demo_0/obs/eye_in_hand_rgb"]
        file.create_dataset(
            "data/demo_0/obs/eye_in_hand_rgb", (6, 100_000, 100_000, 3), np.uint8, chunks=(1, 64, 64, 3)
        )

    (bad,) = registry.demos(hdf5(tmp_path, huge))
    assert "more than the" in bad.reason

    def long(file):
        del file["data/demo_0/actions"]
        file.create_dataset("data/demo_0/actions", (1 << 40, 7), np.float64, chunks=(64, 7))

    (tmp_path / "long").mkdir()
    (bad,) = registry.demos(hdf5(tmp_path / "long", long))
    assert "more than the 268435456" in bad.reason


def png_of(width, height):
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(bytes(1000))) + part(b"IEND", b"")


@pytest.mark.parametrize("size", [(0, 10), (30000, 30000), (9000, 9000), (2**31 - 1, 2**31 - 1)])
def test_pictures_without_a_size_or_without_end_are_refused(size):
    with pytest.raises(Unreadable):
        picture(png_of(*size))


def test_a_playlist_that_is_named_as_a_video_is_not_followed(tmp_path):
    writers.write_video(tmp_path / "secret.ts", EPISODES[0].pictures["wrist"], 10)
    lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:10", "#EXTINF:10,", str(tmp_path / "secret.ts"), "#EXT-X-ENDLIST"]
    (tmp_path / "video.mp4").write_text("\n".join(lines))
    with pytest.raises(Unreadable, match="damaged video"):
        video_frames(tmp_path / "video.mp4")
    concat = f"ffconcat version 1.0\nfile '{tmp_path / 'secret.ts'}'\n"
    (tmp_path / "video.mp4").write_text(concat)
    with pytest.raises(Unreadable, match="damaged video"):
        video_frames(tmp_path / "video.mp4")
