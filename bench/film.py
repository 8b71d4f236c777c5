"""How large are a take's frames, and what does it cost to pack them? ``python -m bench.film``"""

from __future__ import annotations

import io
import time

import av
import numpy as np
from PIL import Image

from besttake import registry
from besttake.takes.film import Film
from besttake.testbed.tasks import TASKS
from besttake.types import U8, Start


def frames_of(task: str, count: int = 17) -> U8:
    env = registry.env("testbed")
    env.reset(Start(task, 0))
    rng, seen = np.random.default_rng(0), []
    for step in range(5 * count):
        if step % 5 == 0:
            seen.append(env.observe(("wrist",)).images["wrist"])
        env.step(rng.uniform(-1, 1, 4).astype(np.float32))
    return np.stack(seen)


def as_png(frames: U8) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate(list(frames), axis=1)).save(buffer, format="PNG")
    return buffer.getvalue()


def as_video(frames: U8, crf: int) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10, options={"crf": str(crf), "preset": "fast"})
        stream.width, stream.height, stream.pix_fmt = frames.shape[2], frames.shape[1], "yuv444p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return buffer.getvalue()


def main() -> None:
    makers = {
        "lossless WebP (ours)": lambda f: Film.pack(f).data,
        "PNG": as_png,
        "H.264 crf 0 (yuv444)": lambda f: as_video(f, 0),
        "H.264 crf 18 (lossy)": lambda f: as_video(f, 18),
    }
    films = [frames_of(task) for task in TASKS]
    base = 0
    for name, make in makers.items():
        make(films[0])
        began = time.process_time()
        size = sum(len(make(f)) for f in films * 5) / len(films) / 5
        spent = (time.process_time() - began) / len(films) / 5
        base = base or size
        print(f"{name:24s} {size / 1000:6.1f} kB a take, {size / base:5.2f}x ours, {1000 * spent:5.1f} ms CPU to pack")


if __name__ == "__main__":
    main()
