"""Data sets written by lerobot itself, read back without torch."""

from __future__ import annotations

import numpy as np
import pytest

from besttake import registry

LENGTHS = (20, 21, 22, 23)


def picture(episode, step):
    image = np.full((64, 64, 3), 20 + 8 * step, np.uint8)
    image[:, 8 * episode : 8 * episode + 8] = 240
    return image


@pytest.fixture(scope="module", params=["libsvtav1", "h264", "images"])
def written(request, tmp_path_factory):
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    videos = request.param != "images"
    root = tmp_path_factory.mktemp("datasets") / request.param
    shape = {"dtype": "video" if videos else "image", "shape": (64, 64, 3), "names": ["height", "width", "channels"]}
    dataset = LeRobotDataset.create(
        "test/set", fps=10, root=root, use_videos=videos, video_files_size_in_mb=0.004, data_files_size_in_mb=0.01,
        rgb_encoder=RGBEncoderConfig(vcodec=request.param) if videos else None,
        features={
            "observation.state": {"dtype": "float32", "shape": (4,), "names": ["x", "y", "z", "opening"]},
            "action": {"dtype": "float32", "shape": (3,), "names": ["dx", "dy", "gripper"]},
            "observation.images.wrist": shape, "observation.images.top": shape,
        },
    )  # fmt: skip
    for episode, length in enumerate(LENGTHS):
        rng = np.random.default_rng(episode)
        for step in range(length):
            dataset.add_frame(
                {
                    "observation.state": rng.random(4).astype(np.float32),
                    "action": rng.random(3).astype(np.float32),
                    "observation.images.wrist": picture(episode, step),
                    "observation.images.top": 255 - picture(episode, step),
                    "task": f"task {episode % 2}",
                }
            )
        dataset.save_episode()
    dataset.finalize()
    return root, videos


def test_what_lerobot_wrote_is_read_back(written):
    root, videos = written
    source = registry.demos(f"lerobot:{root}")
    assert (source.gripper_dim, source.eef_dims, source.fps) == (2, (0, 1, 2), 10)
    demos = list(source)
    assert [len(d.frames) for d in demos] == list(LENGTHS)
    assert [d.task for d in demos] == ["task 0", "task 1", "task 0", "task 1"]
    for episode, demo in enumerate(demos):
        rng = np.random.default_rng(episode)
        for step in range(LENGTHS[episode]):
            np.testing.assert_array_equal(demo.states[step], rng.random(4).astype(np.float32))
            np.testing.assert_array_equal(demo.actions[step], rng.random(3).astype(np.float32))
            error = np.abs(demo.frames[step].astype(int) - picture(episode, step)).mean()
            assert error < (3.5 if videos else 1e-9)


@pytest.mark.parametrize("kind", ["videos", "pictures"])
def test_lerobot_s_own_converter_and_we_read_the_same_from_version_2(tmp_path, kind):
    """lerobot 0.6 no longer writes v2.1, but it converts such sets: what it makes of one is what we read from it."""
    import writers
    from lerobot.scripts.convert_dataset_v21_to_v30 import convert_dataset

    episodes = [writers.episode(number, length=12, side=64) for number in range(3)]
    old = tmp_path / "old"
    if kind == "videos":
        writers.ipec_libero(old, episodes, "v2.1")
    else:
        features = {"image": {"dtype": "image", "shape": [64, 64, 3], "names": ["height", "width", "channel"]}}
        features |= {
            name: {"dtype": "float32", "shape": [size], "names": [name]}
            for name, size in (("state", 8), ("actions", 7))
        }
        columns = ("state", "actions")
        writers.v2(old, episodes, {"image": "wrist"}, features, version="v2.1", fps=10, columns=columns)
    before = list(registry.demos(f"lerobot:{old}"))
    convert_dataset("test/set", root=old, push_to_hub=False)
    after = list(registry.demos(f"lerobot:{old}"))
    assert len(before) == len(after) == 3
    for one, other in zip(before, after, strict=True):
        assert (one.task, one.instruction) == (other.task, other.instruction)
        for name in ("states", "actions", "frames"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_lerobot_reads_the_set_that_stands_for_hugging_face_vla(tmp_path):
    import writers
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    episodes = [writers.episode(number, length=10, side=64) for number in range(2)]
    root = writers.hugging_face_libero(tmp_path / "set", episodes)
    theirs, ours = LeRobotDataset("test/set", root=root), list(registry.demos(f"lerobot:{root}"))
    assert (theirs.num_episodes, theirs.num_frames, theirs.fps) == (2, 20, 10)
    for index in (0, 9, 10, 17):
        row, demo, step = theirs[index], ours[index // 10], index % 10
        np.testing.assert_array_equal(row["observation.state"].numpy(), demo.states[step])
        np.testing.assert_array_equal(row["action"].numpy(), demo.actions[step])
        picture = (row["observation.images.image2"].numpy().transpose(1, 2, 0) * 255).round()
        np.testing.assert_array_equal(picture, demo.frames[step])
        assert row["task"] == demo.task
