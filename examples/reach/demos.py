"""Demonstrations of your own: episodes in which somebody did the task, with pictures, states and actions."""

import numpy as np
from reach import Reach

from besttake.types import Demo


class Straight:
    """Twenty episodes that go straight to the dot, from seeds that no take is played from."""

    name, fingerprint, camera, fps = "straight", "straight, version 1", "render", 10.0
    gripper_dim, gripper_open, eef_dims = None, None, (0, 1)

    def __iter__(self):
        for seed in range(2000, 2020):
            env, frames, states, actions, done = Reach(), [], [], [], False
            state, _ = env.reset(seed=seed)
            while not done:
                way = 10 * (state[2:] - state[:2])
                action = (way / max(1, np.abs(way).max())).astype(np.float32)
                frames.append(env.render()), states.append(state), actions.append(action)
                state, _, done, _, _ = env.step(action)
            steps = np.arange(len(frames))
            yield Demo(str(seed), "reach", np.stack(frames), steps, np.stack(states), np.stack(actions))


def make():
    """Called for `--demos python:demos:make`."""
    return Straight()
