"""What is drawn of a LIBERO scene, what of it shows, and what a picture costs.

    python -m bench.libero_faces [--rounds 10] [TASK ...]        # needs hf-libero and its assets

Along one take per task and for both cameras, drawn in turns: the whole scene, as robosuite draws it; without what is
out of view, as BestTake draws it; and without the geoms of many faces that turn out not to matter when they are left
out one by one. The last is an oracle: the most that leaving out what stands behind other things could save.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from typing import Any
from unittest.mock import patch

import mujoco
import numpy as np

from bench.libero_bits import TASKS, drifts
from besttake import registry
from besttake.envs.libero import renderer as libero_render
from besttake.envs.libero.env import LiberoEnv
from besttake.types import Start

CAMERAS = {"agentview": "agentview", "wrist": "robot0_eye_in_hand"}
SIZE = 256
# Geoms with fewer faces cost too little to try one by one.
MANY = 1000


def faces(model: Any) -> Any:
    """(ngeom,): faces of each geom that is shown; a primitive counts as 12."""
    is_mesh = model.geom_type == mujoco.mjtGeom.mjGEOM_MESH
    shown = np.isin(model.geom_group, libero_render._SHOWN)
    return np.where(is_mesh, model.mesh_facenum[model.geom_dataid], 12) * shown


def showing(renderer: Any, model: Any, data: Any, camera: int, out_of_view: Any) -> Any:
    """(ngeom,): what is left without the geoms of many faces that change nothing when they go, one by one and all."""

    def without(left_out: Any) -> bytes:
        with patch.object(libero_render, "unseen", lambda *_: left_out):
            return bytes(renderer.picture(data, camera, SIZE).tobytes())

    expected, geoms, count = without(out_of_view), np.arange(model.ngeom), faces(model)
    heavy = np.flatnonzero(~out_of_view & (count > MANY))
    hidden = [geom for geom in heavy if without(out_of_view | (geoms == geom)) == expected]
    while without(out_of_view | np.isin(geoms, hidden)) != expected:
        hidden.pop()
    return ~out_of_view & ~np.isin(geoms, hidden)


def measure(uri: str, rounds: int) -> dict[str, dict[str, float]]:
    """Means per picture, by camera."""
    env = registry.env(f"{uri}&size={SIZE}&convention=vla-eval")
    assert isinstance(env, LiberoEnv)
    env.reset(Start(env.spec.tasks[0].name, 3))
    env.observe(tuple(CAMERAS))
    sim = env.simulator()
    model, data, renderer = sim.robosuite.sim.model._model, sim.robosuite.sim.data._data, sim._renderer
    assert renderer is not None
    count, parts, unseen = faces(model), libero_render.mesh_parts(model), libero_render.unseen
    sums: dict[str, dict[str, float]] = {camera: defaultdict(float) for camera in CAMERAS}
    for step, action in enumerate(drifts(6 * rounds)):
        env.step(action)
        if step % 6:
            continue
        for name, mujocos in CAMERAS.items():
            camera = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, mujocos)
            out_of_view = unseen(model, data, camera, parts)
            nothing = np.zeros(model.ngeom, bool)
            hidden = ~showing(renderer, model, data, camera, out_of_view)
            ways = {"all": lambda *_, out=nothing: out, "in view": unseen, "oracle": lambda *_, out=hidden: out}
            pictures = set()
            for way, leaves_out in ways.items():
                with patch.object(libero_render, "unseen", leaves_out):
                    began = time.process_time()
                    pictures.add(renderer.picture(data, camera, SIZE).tobytes())
                sums[name][f"{way} ms"] += 1000 * (time.process_time() - began)
                sums[name][way] += count[~leaves_out(model, data, camera, parts)].sum()
            assert len(pictures) == 1, "what was left out shows"
    env.close()
    return {camera: {what: value / rounds for what, value in each.items()} for camera, each in sums.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="URIs with one task each (default: 15 of all suites)")
    parser.add_argument("--rounds", type=int, default=10, help="pictures per task and camera")
    asked = parser.parse_args()
    ways = ("all", "in view", "oracle")
    heads = " ".join(f"{way:>8}" for way in ways)
    print(f"{'':36} faces: {heads}   ms: {heads}")
    for uri in asked.tasks or TASKS:
        for camera, mean in measure(uri, asked.rounds).items():
            counts = " ".join(f"{mean[way]:8.0f}" for way in ways)
            times = " ".join(f"{mean[f'{way} ms']:8.1f}" for way in ways)
            print(f"{uri:26} {camera:16} {counts}       {times}", flush=True)


if __name__ == "__main__":
    main()
