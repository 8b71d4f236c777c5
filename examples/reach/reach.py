"""A Gymnasium environment: a white point has to come to rest on a red dot."""

import gymnasium
import numpy as np


class Reach(gymnasium.Env):
    """The state is where the point and the dot are (four numbers), an action is how the point moves (two)."""

    observation_space = gymnasium.spaces.Box(-2, 2, (4,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random: the same seed places point and dot alike
        places = self.np_random.uniform(-0.9, 0.9, (2, 2)).astype(np.float32)
        self.point, self.dot = places * [0.3, 1] + [[-0.6, 0], [0.6, 0]]  # the point on the left, the dot on the right
        return self.seen(), {}

    def step(self, action):
        self.point = np.clip(self.point + 0.1 * np.clip(action, -1, 1), -1, 1).astype(np.float32)
        success = bool(np.linalg.norm(self.point - self.dot) < 0.06)
        return self.seen(), float(success), success, False, {"success": success}

    def seen(self):
        return np.concatenate([self.point, self.dot]).astype(np.float32)

    def render(self):
        picture = np.full((48, 48, 3), 40, np.uint8)
        for place, colour in ((self.dot, (230, 60, 60)), (self.point, (255, 255, 255))):
            column, row = (24 + 20 * place).astype(int)
            picture[row - 3 : row + 4, column - 3 : column + 4] = colour
        return picture


gymnasium.register("Reach-v0", Reach, max_episode_steps=24)
