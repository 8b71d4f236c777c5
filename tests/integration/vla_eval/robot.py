"""A robot in a process of its own: the testbed, driven by openpi's real client against a session.

    python robot.py PORT PAGE

Plays one take after the other as the page tells which start to set up, and says what came of each on a line.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request

from openpi_client.websocket_client_policy import WebsocketClientPolicy

from besttake import registry
from besttake.types import Start

REPLAN = 9


def main(port: int, page: str) -> None:
    env = registry.env("testbed:pick")
    while True:
        with urllib.request.urlopen(f"{page}now", timeout=60) as answer:
            now = json.load(answer)
        if now["phase"] == "over":
            return
        if now["phase"] != "ready":
            time.sleep(0.05)
            continue
        env.reset(Start(now["task"], now["start"]))
        success = played(env, WebsocketClientPolicy("127.0.0.1", port))
        with urllib.request.urlopen(f"{page}now", timeout=60) as answer:
            print(json.dumps([json.load(answer)["number"], success]), flush=True)


def played(env, client) -> bool:
    left = env.spec.tasks[0].horizon
    while left:
        seen = env.observe(("wrist",))
        chunk = client.infer({"observation/wrist": seen.images["wrist"], "observation/state": seen.state})["actions"]
        for action in chunk[: min(REPLAN, left)]:
            left -= 1
            if env.step(action).success:
                return True
    return False


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
