"""Read the files of a data set, which anyone may have written: paths stay inside it, and sizes are bounded.

Texts (JSON), pictures and videos; `besttake.demos.hdf5` does the same inside HDF5 files.
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
"""Longest side of a frame that a reader keeps, unless it is told another: more than any encoder here looks at."""
FULL_SIZE = 1 << 20
"""A longest side that no picture exceeds."""
MOST_PIXELS = 64 << 20
"""Pixels of the largest picture that is read: 8192 x 8192. More is a mistake, or made to exhaust the memory."""
MOST_BYTES = 8 << 30
"""Bytes of the pictures of one demonstration, as read for a library."""
_MOST_FILE = _MOST_TEXT = 256 << 20
_FIELD = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""Pillow tells a format by content, and has others read by programs of their own: EPS by Ghostscript, which runs it."""
_OPENING = {
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi",
    "protocol_whitelist": "file",
}
"""ffmpeg goes by content, and a playlist named .mp4 could have it read other files: only containers are read."""


class Unreadable(Exception):
    """A demonstration that cannot be read; the message completes "demonstration x …"."""


def check_count(found: int, promised: int | None, what: str, where: str) -> None:
    """Raise `Unreadable` unless there are as many as the metadata promise; None where they promise nothing.

    An interrupted copy or download often still reads: what is missing is zeros, or simply not there. So every reader
    counts what it read.
    """
    if promised is not None and found != promised:
        raise Unreadable(f"has {found} of the {promised} {what} that are promised in {where}; copy it again")


def inside(root: Path, path: str | Path) -> Path:
    """The file ``path`` of the data set in ``root``; `Unreadable` if it lies outside, directly or through a link.

    Pipes and devices are refused as well, since reading them could block forever.
    """
    try:
        outside = files.leads_out(root, path)
        place = root.resolve() / path
        odd = place.exists() and not place.is_file()
    except (ValueError, OSError):
        raise Unreadable(f"names a file that cannot be ({str(path)[:80]!r})") from None
    if outside and root.resolve() not in registry.trusted():
        raise Unreadable(f"names a file outside the data set ({str(path)[:80]}); copy the file into it")
    if odd:
        raise Unreadable(f"names what is not a file ({str(path)[:80]})")
    return place


def check_links(root: Path, name: str) -> None:
    """Raise LibraryError if a link below ``root`` leads out of it, unless the user trusts the directory (`trust`).

    Every reader calls it before it opens a file. The directory itself may be a link: the user named it.
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
    """A hash of the names, sizes, first and last 64 kB of files, and of the reader's options."""
    total = hashlib.sha256(repr(choices).encode())
    for path in paths:
        with path.open("rb") as file:
            head = file.read(1 << 16)
            file.seek(max(0, path.stat().st_size - (1 << 16)))
            total.update(f"{path.name} {path.stat().st_size}\n".encode() + head + file.read())
    return total.hexdigest()[:16]


def filled(pattern: str, values: Mapping[str, int | str]) -> str:
    """Fill in the fields of a path pattern such as ``data/chunk-{chunk_index:03d}/file.parquet``.

    Only plain fields and zero-padded integers are supported. The pattern comes with the data, and Python's own format
    language could request any amount of memory or read attributes of its arguments.
    """

    def fill(match: re.Match[str]) -> str:
        name, width = match.group(1), match.group(2)
        if name not in values or (width and not isinstance(values[name], int)):
            raise Unreadable(f"names its files by {pattern[:80]!r}, which has a field that is not known ({name[:20]})")
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
        # Only at \n: texts may hold other line ends, such as U+2028.
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
    """Raise `Unreadable` if a picture of this size, or ``count`` of them once shrunk, is too large to be genuine."""
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
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is below
            content = data if isinstance(data, bytes) else files.read_regular(data, _MOST_FILE)
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                check_size(*image.size)
                return fitted(image, largest)
    except Unreadable:
        raise
    except Exception as error:  # Pillow's decoders raise whatever a damaged picture leads them to
        name = "a stored picture" if isinstance(data, bytes) else data.name
        raise Unreadable(f"has a picture that cannot be read ({name})") from error


def stacked(frames: Sequence[U8], where: str) -> U8:
    """Frames of one size as one array uint8 (F, h, w, 3); ``where`` they come from is named in the error."""
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
    """All frames of a video, uint8 (F, h, w, 3), and the second (F,) at which each is shown, from 0 on."""
    frames: list[U8] = []
    seconds: list[float] = []
    for second, image in decoded(path):
        check_size(image.width, image.height, len(frames) + 1, largest)
        frames.append(fitted(image, largest))
        seconds.append(second)
    if not frames:
        raise Unreadable(f"has no frames in {path.name}")
    times = np.array(seconds)
    if len(times) > 1 and np.diff(times).min() <= 0:  # a stream without times of its own
        times = np.arange(len(frames)) / (video_rate(path) or 30)
    return stacked(frames, path.name), times - times[0]


def video_slice(path: Path, start: float, count: int, fps: float, largest: int = LARGEST) -> U8:
    """``count`` frames of a video from ``start`` seconds on, at ``fps``: uint8 (count, h, w, 3)."""
    frames: list[U8] = []
    for seconds, image in decoded(path, start):
        check_size(image.width, image.height, count, largest)
        place = round((seconds - start) * fps)
        if place >= count:
            break
        if place == len(frames):
            frames.append(fitted(image, largest))
    check_count(len(frames), count, "frames", path.name)
    return stacked(frames, path.name)


def video_rate(path: Path) -> float:
    """Frames per second of a video; 0 if unknown."""
    try:
        with _opened(path) as container:
            return float(container.streams.video[0].average_rate or 0)
    except Exception:  # who reads the frames says what is wrong
        return 0.0


def decoded(path: Path, start: float = 0.0) -> Iterator[tuple[float, Any]]:
    """(seconds, Pillow image) from ``start`` on, in order; `Unreadable` where the file has fewer than it says."""
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
                        # Phones store the raw picture and how they were held.
                        turned = getattr(frame, "rotation", 0) % 360
                        image = frame.to_image()
                        yield seconds, image.rotate(turned, expand=True) if turned in (90, 180, 270) else image
            if start <= 0:  # mp4 and mov say how many frames there are; ffmpeg's mkv and webm, how long they last
                missing = (_seconds_said(stream) - end) / (4 * slack)
                promised = stream.frames or (packets + round(missing) if missing > 2 else None)
                check_count(packets, promised, "frames", path.name)
    except Unreadable:
        raise
    except Exception as error:  # the library raises more than its own errors at damaged files
        reason = " ".join(str(error).split()).split(": ")[0][:120] or type(error).__name__
        raise Unreadable(f"has a damaged video {path.name} ({reason})") from error


def _seconds_said(stream: Any) -> float:
    """How long a stream lasts by its own tag; 0 if it does not say."""
    said = re.fullmatch(r"(\d{2,4}):(\d\d):(\d\d\.\d+)", stream.metadata.get("DURATION", ""))
    return float(np.dot([3600, 60, 1], [float(part) for part in said.groups()])) if said else 0.0


def _opened(path: Path) -> Any:
    import av

    av.logging.set_level(av.logging.PANIC)
    return av.open(str(path.resolve()), container_options=_OPENING, metadata_errors="replace")
