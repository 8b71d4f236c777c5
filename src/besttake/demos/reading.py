"""Read the JSON, picture and video files of a data set safely: paths stay inside it, and sizes are bounded.

Anyone may have written these files. `besttake.demos.hdf5` does the same inside HDF5 files.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from besttake import files, registry
from besttake.errors import LibraryError
from besttake.types import U8

LARGEST = 320
"""Longest side of a frame that a reader keeps by default, in pixels: more than any encoder here uses."""
FULL_SIZE = 1 << 20
"""A longest side that no picture exceeds: pictures keep their size."""
MOST_PIXELS = 64 << 20
"""Pixels of the largest picture that is read (8192 x 8192). More is a mistake, or meant to exhaust the memory."""
MOST_BYTES = 8 << 30
"""Bytes of the pictures of one demonstration, as read for a library."""
_MOST_FILE = _MOST_TEXT = 256 << 20
_FIELD = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""Pillow recognises formats by content and reads some with other programs: EPS with Ghostscript, which executes it."""
_CONTAINER_OPTIONS = {
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi",
    "protocol_whitelist": "file",
}
"""Only containers are read: ffmpeg recognises formats by content, and a playlist named .mp4 could name other files."""


class Unreadable(Exception):
    """A demonstration that cannot be read; the message completes "demonstration x …"."""


def check_count(count: int, promised: int | None, items: str, where: str) -> None:
    """Raise `Unreadable` unless ``count`` is what the metadata promise; None if they promise nothing.

    A file whose copy or download was interrupted can often be read, with zeros or nothing in place of the missing
    part. Therefore every reader counts what it has read.
    """
    if promised is not None and count != promised:
        raise Unreadable(f"has {count} of the {promised} {items} that are promised in {where}; copy it again")


def inside(root: Path, path: str | Path) -> Path:
    """The file ``path`` of the data set in ``root``; `Unreadable` if it lies outside, directly or through a link.

    Pipes and devices are refused as well, since reading them could block forever.
    """
    try:
        outside = files.leads_out(root, path)
        file = root.resolve() / path
        is_special = file.exists() and not file.is_file()
    except (ValueError, OSError):
        raise Unreadable(f"names a file that cannot exist ({str(path)[:80]!r})") from None
    if outside and root.resolve() not in registry.trusted():
        raise Unreadable(f"names a file outside the data set ({str(path)[:80]}); copy the file into it")
    if is_special:
        raise Unreadable(f"names something that is not a regular file ({str(path)[:80]})")
    return file


def check_links(root: Path, name: str) -> None:
    """Raise LibraryError if a link below ``root`` leads out of it, unless the user trusts the directory (`trust`).

    Every reader calls this before it opens a file. The directory itself may be a link, since the user named it.
    """
    try:
        link = next(files.links_out(root), None)
    except ValueError as error:
        raise LibraryError(f"{name}: has a link that cannot be followed ({str(error)[:120]})") from error
    if link is not None and root.resolve() not in registry.trusted():
        raise LibraryError(
            f"{name}: {link.relative_to(root)} is a link that leads out of the data set; copy the file into it or, if"
            f" you made the link, add `trust` {root}"
        )


def digest(paths: Iterable[Path], *choices: object) -> str:
    """A hash of the names, sizes, first and last 64 kB of files, and of the reader's options ``choices``."""
    sha256 = hashlib.sha256(repr(choices).encode())
    for path in paths:
        with path.open("rb") as file:
            head = file.read(1 << 16)
            file.seek(max(0, path.stat().st_size - (1 << 16)))
            sha256.update(f"{path.name} {path.stat().st_size}\n".encode() + head + file.read())
    return sha256.hexdigest()[:16]


def filled(pattern: str, values: Mapping[str, int | str]) -> str:
    """Fill in the fields of a path pattern such as ``data/chunk-{chunk_index:03d}/file.parquet``.

    Only plain fields and zero-padded integers are supported. The pattern comes with the data, and Python's own format
    language could request any amount of memory or read attributes of its arguments.
    """

    def fill(match: re.Match[str]) -> str:
        name, width = match.group(1), match.group(2)
        if name not in values or (width and not isinstance(values[name], int)):
            raise Unreadable(f"names its files by {pattern[:80]!r}, which has an unknown field ({name[:20]})")
        return f"{values[name]:0{int(width)}d}" if width else str(values[name])

    text = _FIELD.sub(fill, pattern)
    if "{" in _FIELD.sub("", pattern) or len(text) > 4096:
        raise Unreadable(f"names its files by {pattern[:80]!r}, which cannot be filled in")
    return text


def read_json(path: Path, name: str) -> dict[str, Any]:
    """Read the JSON object in ``path``; LibraryError, which begins with ``name``, if it is not one or too large."""
    with _damage(path, name):
        return _object(files.read_json(path, _MOST_TEXT))


def read_json_lines(path: Path, name: str) -> list[dict[str, Any]]:
    """Read the JSON objects in ``path``, one per line; LibraryError as in `read_json`."""
    with _damage(path, name):
        # Split only at \n: texts may contain other line ends, such as U+2028.
        lines = files.read_regular(path, _MOST_TEXT).decode("utf-8").split("\n")
        return [_object(files.read_json(line)) for line in lines if line.strip()]


@contextmanager
def _damage(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LibraryError(f"{name}: {path.name} is damaged ({reason[:120]})") from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__}, not an object")
    return value


def check_size(width: int, height: int, count: int = 1, largest: int = LARGEST) -> None:
    """Raise `Unreadable` if a picture of this size is too large, or ``count`` of them once shrunk to ``largest``."""
    if width < 1 or height < 1 or count < 0:
        raise Unreadable(f"has pictures of {width} x {height} pixels")
    if width * height > MOST_PIXELS:
        raise Unreadable(f"has pictures of {width} x {height} pixels, more than the {MOST_PIXELS} that are read")
    scale = min(1.0, largest / max(width, height))
    if count * width * height * 3 * scale**2 > MOST_BYTES:
        raise Unreadable(f"has {count} pictures of {width} x {height} pixels, more than {MOST_BYTES >> 30} GB")


def picture(data: bytes | Path, largest: int = LARGEST) -> U8:
    """One picture, from its bytes or its file: uint8 (h, w, 3)."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # `check_size` has its own limit
            content = data if isinstance(data, bytes) else files.read_regular(data, _MOST_FILE)
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                check_size(*image.size)
                return fitted(image, largest)
    except Unreadable:
        raise
    except Exception as error:  # Pillow's decoders raise all kinds of errors at damaged pictures
        name = "a stored picture" if isinstance(data, bytes) else data.name
        raise Unreadable(f"has a picture that cannot be read ({name})") from error


def stacked(frames: Sequence[U8], where: str) -> U8:
    """Stack frames of one size into uint8 (F, h, w, 3); ``where`` names their file in the error message."""
    if len({frame.shape for frame in frames}) > 1:
        raise Unreadable(f"has pictures of different size in {where}")
    return np.stack(frames) if frames else np.zeros((0, 1, 1, 3), np.uint8)


def fitted(image: Any, largest: int) -> U8:
    """A Pillow image as uint8 (h, w, 3), its longest side at most ``largest``."""
    from PIL import Image

    image = image.convert("RGB")
    longest = max(image.size)
    if longest > largest:
        width, height = (max(1, round(side * largest / longest)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BOX)
    return np.asarray(image)


def fitted_array(frames: U8, largest: int) -> U8:
    """Downscale frames (F, H, W, 3) so that the longest side is at most ``largest``."""
    from PIL import Image

    if max(frames.shape[1:3], default=0) <= largest:
        return frames
    return np.stack([fitted(Image.fromarray(frame), largest) for frame in frames])


def jpeg(frame: U8, largest: int) -> bytes:
    """Encode a frame (h, w, 3) as a small JPEG for display."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(fitted(Image.fromarray(frame), largest)).save(buffer, format="JPEG", quality=80)
    return buffer.getvalue()


def video_frames(path: Path, largest: int = LARGEST) -> U8:
    """All frames of a video, uint8 (F, h, w, 3)."""
    return timed_frames(path, largest)[0]


def timed_frames(path: Path, largest: int = LARGEST) -> tuple[U8, NDArray[np.float64]]:
    """All frames of a video, uint8 (F, h, w, 3), and their times (F,) in seconds, from 0 on."""
    frames: list[U8] = []
    seconds: list[float] = []
    for second, image in decoded(path):
        check_size(image.width, image.height, len(frames) + 1, largest)
        frames.append(fitted(image, largest))
        seconds.append(second)
    if not frames:
        raise Unreadable(f"has no frames in {path.name}")
    times = np.array(seconds)
    if len(times) > 1 and np.diff(times).min() <= 0:  # the stream has no timestamps
        times = np.arange(len(frames)) / (video_rate(path) or 30)
    return stacked(frames, path.name), times - times[0]


def video_slice(path: Path, start: float, count: int, fps: float, largest: int = LARGEST) -> U8:
    """``count`` frames of a video from ``start`` seconds on, at ``fps``: uint8 (count, h, w, 3)."""
    frames: list[U8] = []
    for seconds, image in decoded(path, start):
        check_size(image.width, image.height, count, largest)
        index = round((seconds - start) * fps)
        if index >= count:
            break
        if index == len(frames):
            frames.append(fitted(image, largest))
    check_count(len(frames), count, "frames", path.name)
    return stacked(frames, path.name)


def video_rate(path: Path) -> float:
    """Frames per second of a video; 0 if unknown."""
    try:
        with _opened(path) as container:
            return float(container.streams.video[0].average_rate or 0)
    except Exception:  # reading the frames will say what is wrong
        return 0.0


def decoded(path: Path, start: float = 0.0) -> Iterator[tuple[float, Any]]:
    """Yield (seconds, Pillow image) from ``start`` on; `Unreadable` if the file has fewer frames than it promises."""
    if not path.is_file():
        raise Unreadable(f"has no video file {path.name}")
    try:
        with _opened(path) as container:
            stream = container.streams.video[0]
            check_size(stream.width, stream.height)
            slack = 0.25 / float(stream.average_rate or 30)
            if start > 0:
                container.seek(int(start / stream.time_base), stream=stream, backward=True, any_frame=False)
            packets, end = 0, 0.0
            for packet in container.demux(stream):
                packets += packet.size > 0
                end = max(end, float(((packet.pts or 0) + (packet.duration or 0)) * stream.time_base))
                for frame in packet.decode():
                    seconds = float(frame.pts * stream.time_base) if frame.pts is not None else 0.0
                    if seconds >= start - slack:
                        # Phones store the picture as the sensor saw it, and how the phone was held.
                        angle = getattr(frame, "rotation", 0) % 360
                        image = frame.to_image()
                        yield seconds, image.rotate(angle, expand=True) if angle in (90, 180, 270) else image
            if start <= 0:  # mp4 and mov state their number of frames; mkv and webm by ffmpeg state their duration
                missing = (_tagged_duration(stream) - end) / (4 * slack)
                promised = stream.frames or (packets + round(missing) if missing > 2 else None)
                check_count(packets, promised, "frames", path.name)
    except Unreadable:
        raise
    except Exception as error:  # av raises all kinds of errors at damaged files
        reason = " ".join(str(error).split()).split(": ")[0][:120] or type(error).__name__
        raise Unreadable(f"has a damaged video {path.name} ({reason})") from error


def _tagged_duration(stream: Any) -> float:
    """The duration of a stream in seconds, from its DURATION tag; 0 if it has none."""
    match = re.fullmatch(r"(\d{2,4}):(\d\d):(\d\d\.\d+)", stream.metadata.get("DURATION", ""))
    return float(np.dot([3600, 60, 1], [float(part) for part in match.groups()])) if match else 0.0


def _opened(path: Path) -> Any:
    import av

    av.logging.set_level(av.logging.PANIC)
    return av.open(str(path.resolve()), container_options=_CONTAINER_OPTIONS, metadata_errors="replace")
