"""LeRobot's own robot client plays takes of a session through the bridge of `lerobot_policy_besttake`.

The bridge is a process of its own. The robot is the testbed behind LeRobot's interface.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("lerobot") is None:
    pytest.skip("runs in the environment of tests/integration/lerobot", allow_module_level=True)
import torch
from lerobot.robots import Robot, RobotConfig

import besttake
from besttake import registry
from besttake.errors import ComponentError
from besttake.serving import serve
from besttake.serving.served import ServedPolicy
from besttake.types import Start

pytest.importorskip("grpc", reason="needs lerobot[async]")
ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "contrib" / "lerobot_policy_besttake"
sys.path[:0] = [str(PLUGIN), str(ROOT / "tests" / "serving")]
from test_robot_session import PLAN, Session  # type: ignore[import-not-found]  # noqa: E402

from lerobot_policy_besttake.bridge import picture  # noqa: E402

STEPS, REPLAN = 80, 9


@RobotConfig.register_subclass("testbed_pick")
class PickConfig(RobotConfig):
    """A robot that is the testbed."""


class PickRobot(Robot):
    config_class, name, robot_type = PickConfig, "testbed_pick", "testbed_pick"
    is_connected = is_calibrated = True
    observation_features = {**{f"joint{i}.pos": float for i in range(20)}, "front": (48, 48, 3)}  # noqa: RUF012
    action_features = {f"joint{i}.pos": float for i in range(4)}  # noqa: RUF012

    def __init__(self, config):
        self.config, self.env, self.over = config, registry.env("testbed:pick"), threading.Event()
        self.steps, self.success, self.shown = 0, False, {}

    def connect(self, calibrate=True): ...
    def calibrate(self): ...
    def configure(self): ...
    def disconnect(self): ...

    def get_observation(self):
        seen = self.env.observe(("wrist",))
        self.shown[self.steps] = seen.state
        return {f"joint{i}.pos": float(value) for i, value in enumerate(seen.state)} | {"front": seen.images["wrist"]}

    def send_action(self, action):
        if not self.over.is_set():
            self.success = self.env.step(np.array([*action.values()], np.float32)).success
            self.steps += 1
            if self.success or self.steps == STEPS:
                self.over.set()
        return action


@pytest.fixture
def robot_client(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # LeRobot's client writes its logs here as it is imported
    from lerobot.async_inference import robot_client

    monkeypatch.setattr(robot_client, "make_robot_from_config", PickRobot)
    return robot_client


@pytest.fixture
def bridge(tmp_path):
    """``bridge(server)`` starts one; it returns the port for robot clients and the file of what it says."""
    started = []

    def start(server, *names):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        words = ["--server", server, "--port", str(port), "--map", *names]
        path = os.pathsep.join([str(PLUGIN), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        said = tmp_path / f"bridge{port}.txt"
        with said.open("w") as log:
            command = [sys.executable, "-m", "lerobot_policy_besttake.bridge", *words]
            started.append(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log))
        while "robot clients connect" not in said.read_text():
            assert started[-1].poll() is None, said.read_text()
            time.sleep(0.1)
        return port, said

    yield start
    for process in started:
        process.kill()
        process.wait()


def client_of(robot_client, port, **keys):
    settings = {"actions_per_chunk": 50, "chunk_size_threshold": 0.0, "fps": 100, "aggregate_fn_name": "latest_only"}
    asked = {"policy_type": "act", "pretrained_name_or_path": "some/model", "robot": PickConfig()}
    config = robot_client.RobotClientConfig(**{**asked, **settings, **keys}, server_address=f"127.0.0.1:{port}")
    return robot_client.RobotClient(config)


@contextmanager
def playing(client, start):
    """LeRobot's client as its command runs it, from a start of the testbed."""
    client.robot.env.reset(start)
    assert client.start()
    calls = [(client.receive_actions, ()), (client.control_loop, ("",))]
    threads = [threading.Thread(target=call, args=args, daemon=True) for call, args in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        client.stop()
    for thread in threads:
        thread.join(30)


def played(client, session):
    """A take of the session, until the robot has nothing more to do; whether it was a success, and the calls."""
    now = session.until("waiting")
    assert session.ask("ready") == "the robot may begin"
    with playing(client, Start(now["task"], now["start"])):
        assert client.robot.over.wait(60), f"{client.robot.steps} steps"
        calls = session.now()["calls"]
    session.until("left")  # the page says so, and the take is judged as it is
    return client.robot.success, calls


def test_a_session_played_by_lerobots_client_has_the_takes_of_a_diagnosis(tmp_path, robot_client, bridge):
    session = Session(tmp_path / "run")
    port, said = bridge(session.client, "observation.images.front=wrist")
    while session.until("waiting", "over")["phase"] != "over":
        session.judge("success" if played(client_of(robot_client, port), session)[0] else "failure")
    session.end()
    besttake.diagnose(out=tmp_path / "sim", window="common", **PLAN)
    robot, sim = (besttake.Run.open(tmp_path / name).takes for name in ("run", "sim"))
    assert {key: take.success for key, take in robot.items()} == {key: take.success for key, take in sim.items()}
    assert {take.success for take in robot.values()} == {True, False}
    for key, take in robot.items():  # what the client sees after a last block that is not whole, it does not show
        known = min(take.steps, sim[key].steps) // REPLAN * REPLAN
        np.testing.assert_array_equal(take.actions[:known], sim[key].actions[:known])
        seen = len(take.frame_steps)
        assert seen >= sum(sim[key].frame_steps < sim[key].steps)
        np.testing.assert_array_equal(take.frame_steps, sim[key].frame_steps[:seen])
        np.testing.assert_array_equal(take.frames(), sim[key].frames()[:seen])
    assert "asks for act some/model on cpu, which is ignored" in said.read_text()


def test_a_client_that_asks_all_the_time_misses_no_action_and_all_is_recorded(
    tmp_path, robot_client, bridge, monkeypatch
):
    sample = ServedPolicy.sample  # slow enough that the client plays some actions meanwhile
    monkeypatch.setattr(
        ServedPolicy, "sample", lambda served, rows: threading.Event().wait(0.03) or sample(served, rows)
    )
    session = Session(tmp_path / "run")
    port, _ = bridge(session.client, "front=wrist")
    client, sent = client_of(robot_client, port, chunk_size_threshold=1.0, aggregate_fn_name="weighted_average"), []
    perform = client.control_loop_action

    def control_loop_action(verbose=False):
        perform(verbose)
        sent.append(client.latest_action)

    client.control_loop_action = control_loop_action
    success, calls = played(client, session)
    steps = client.robot.steps
    # LeRobot's client may play one again that it played while a chunk came in; it does not count it.
    assert sent == sorted(sent)
    assert {*sent} == {*range(1, sent[-1] + 1)}
    assert calls > steps / REPLAN + 1
    # What was played after the last call was not told; on a busy machine that is some steps.
    assert steps - 3 * REPLAN < session.now()["steps"] <= sent[-1] + REPLAN
    session.judge("success" if success else "failure")
    session.ask("end")
    session._thread.join(60)
    (take,) = besttake.Run.open(tmp_path / "run").takes.values()
    asked = min(max(take.frame_steps), sent[steps - 1])  # what was seen later was not told
    assert asked > steps - 3 * REPLAN
    shown = [client.robot.shown[sent.index(step) + 1 if step else 0] for step in range(asked)]
    np.testing.assert_array_equal(take.states[:asked], shown)


def test_whoever_comes_too_early_or_errs_is_told_in_one_line_and_late_clients_take_over(
    tmp_path, robot_client, bridge, caplog
):
    session = Session(tmp_path / "run")
    port, said = bridge(session.client, "front=side")
    assert not client_of(robot_client, port).start()
    assert "the policy needs images wrist; the robot has observation.images.front" in caplog.text
    assert "Traceback" not in said.read_text()
    port, said = bridge("ws://127.0.0.1:9", "front=wrist")
    assert not client_of(robot_client, port).start()
    assert "is the server running?" in said.read_text()
    port, said = bridge(session.client, "front=wrist")
    success, _ = played(client_of(robot_client, port), session)
    waits, now = client_of(robot_client, port), session.now()  # nobody has judged yet
    waits.robot.env.reset(Start(now["task"], now["start"]))
    assert waits.start()
    waits.control_loop_observation("")
    receiving = threading.Thread(target=waits.receive_actions, daemon=True)
    receiving.start()
    waits.start_barrier.wait()
    while "the last take has no outcome yet" not in said.read_text():
        time.sleep(0.05)
    waits.stop()
    receiving.join(30)
    session.judge("success" if success else "failure")
    played(client_of(robot_client, port), session)
    assert "Traceback" not in said.read_text()
    assert session.now()["done"] == 1
    session.ask("end")


def test_a_plain_server_is_played_too_and_one_that_goes_away_ends_the_take(robot_client, bridge):
    server = serve(registry.policy("testbed:half?replan=9"), "openpi")
    port, said = bridge(server.url, "front=wrist")
    client = client_of(robot_client, port, fps=20)
    with playing(client, Start("pick", 0)):
        while client.robot.steps <= REPLAN:
            time.sleep(0.05)
        server.close()
        while "the take cannot go on, start the robot client again" not in said.read_text():
            time.sleep(0.05)
    assert not client.robot.over.is_set()
    assert "Traceback" not in said.read_text()


def test_pictures_of_either_layout_are_the_same_and_fractions_are_not_guessed():
    seen = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    floats = torch.from_numpy(seen).permute(2, 0, 1) / 255
    for same in (seen, seen.transpose(2, 0, 1), floats, floats.permute(1, 2, 0)):
        np.testing.assert_array_equal(picture(same), seen)
    with pytest.raises(ComponentError, match="from 0 to 1"):
        picture(floats * 255)
