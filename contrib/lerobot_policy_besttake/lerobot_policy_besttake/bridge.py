"""LeRobot's robot client plays what `besttake serve` serves.

    python -m lerobot_policy_besttake.bridge --server ws://127.0.0.1:8000 --map observation.images.front=wrist

LeRobot's asynchronous inference (`lerobot.async_inference`) exchanges pickles over gRPC. This process speaks it by
LeRobot's own code, beside the robot, and passes observations on to the server as plain numbers, by openpi's protocol.
Whoever can connect to this process can run code in it, as with LeRobot's own policy server.

An episode begins when a client says that it is ready, and has a connection to the server of its own.
"""

from __future__ import annotations

import argparse
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from typing import Any

import numpy as np

try:
    import grpc  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError:
    raise SystemExit("LeRobot's asynchronous inference is not installed: pip install 'lerobot[async]'") from None
import torch
from lerobot.async_inference.constants import DEFAULT_FPS
from lerobot.async_inference.helpers import RemotePolicyConfig, TimedAction, TimedObservation
from lerobot.transport import services_pb2, services_pb2_grpc
from lerobot.transport.utils import bytes_to_python_object, python_object_to_bytes, receive_bytes_in_chunks
from lerobot.utils.constants import OBS_IMAGES, OBS_STATE, OBS_STR
from lerobot.utils.feature_utils import build_dataset_frame

from besttake.auth import is_loopback
from besttake.errors import ComponentError, one_line
from besttake.policies.remote import Connection, Greeting
from besttake.policies.remote_wire import last_line, pack_openpi, unpack_openpi
from besttake.types import F32, U8, Array

_OPENING, _PATIENCE = 10.0, 86_400.0
"""Seconds to wait for a connection, and for an answer: in a session, the operator judges the take before first."""
_TURN = 2.0
"""Seconds that a client's request for actions waits for an observation, as in LeRobot's own server."""
_PAUSE = 1.0
"""Seconds between two errors that a client is told: it asks again at once."""
_GONE = 10.0
"""Seconds after which a client that asks for nothing has left: a client that plays asks for actions all the time."""
_log = logging.getLogger("besttake.bridge")


def picture(image: Any) -> U8:
    """A camera's picture as uint8 (H, W, 3), from that or (3, H, W), whole numbers or fractions from 0 to 1."""
    pixels: Array = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] != 3 and pixels.shape[0] == 3:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.dtype.kind == "f":
        if not ((pixels >= 0) & (pixels <= 1)).all():
            raise ComponentError("a picture of fractions must hold numbers from 0 to 1")
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return pixels


class Episode:
    """One episode of a robot client, on a connection of its own.

    LeRobot's client numbers an observation by the last action that it played, and the first one by 0. Its actions count
    from 1 here, so that this number is how many actions were played, and none is dropped. (LeRobot's own server gives
    the first action of a chunk the number of the observation; the client has played that one already, and drops it.)
    """

    def __init__(self, connection: Connection, client: str) -> None:
        self.client, self.failure = client, ""
        self._connection = connection
        self._served = self._open()
        self._features: Mapping[str, Any] = {}
        self._cameras: dict[str, str] = {}
        self._most = self._served.replan
        self._absence = threading.Timer(_GONE, self._left)
        self._forget()

    def _open(self) -> Greeting:
        self._connection.timeout = _OPENING
        served = Greeting.read(self._connection.call(lambda connection: connection.greeting))
        if served is None:
            raise ComponentError(f"{self._connection.url}: not a `besttake serve --protocol openpi`")
        self._connection.timeout = _PATIENCE
        return served

    def _forget(self) -> None:
        """Forget the episode so far: the next observation is its first."""
        self._first, self._newest, self._played = 0, -1, 0
        self._states: dict[int, F32] = {}
        self._waiting: Queue[tuple[TimedObservation, dict[str, Any]]] = Queue(1)

    def set_up(self, asked: RemotePolicyConfig, names: Mapping[str, str]) -> None:
        """Learn what the client's observations hold; ``names`` are the server's, by LeRobot's names of pictures."""
        pictures = [key for key in asked.lerobot_features if key.startswith(f"{OBS_IMAGES}.")]
        cameras = {names.get(key, key.removeprefix(f"{OBS_IMAGES}.")): key for key in pictures}
        unknown = [key for key in names if key not in pictures]
        if unknown or (missing := [name for name in self._served.cameras if name not in cameras]):
            what = f"--map names {', '.join(unknown)}" if unknown else f"the policy needs images {', '.join(missing)}"
            raise ComponentError(f"{what}; the robot has {', '.join(pictures) or 'none'} (--map KEY=NAME renames them)")
        self._features, self._cameras = asked.lerobot_features, {name: cameras[name] for name in self._served.cameras}
        self._most = min(asked.actions_per_chunk, self._served.replan)

    def offer(self, observation: TimedObservation) -> None:
        """Keep an observation for `chunk`, in place of an older one; only the first observation of a step counts."""
        frame = build_dataset_frame(self._features, observation.get_observation(), OBS_STR)
        number = observation.get_timestep()
        if number <= self._newest:
            return
        if self._newest < 0:
            self._first = number
        self._newest = number
        self._states[number - self._first] = frame.get(OBS_STATE, np.zeros(0, np.float32))
        with suppress(Empty):
            self._waiting.get_nowait()
        self._waiting.put((observation, frame))

    def chunk(self) -> list[TimedAction]:
        """Return the actions for the observation that waits; none if no observation comes in a while."""
        try:
            observation, frame = self._waiting.get(timeout=_TURN)
        except Empty:
            return []
        step = observation.get_timestep() - self._first
        try:
            if not step:
                self._open()
            actions = self._ask(self._request(step, frame, observation.get_observation().get("task")))
        except Exception as error:
            self._connection.close()
            if self.failure:
                raise ComponentError(self.failure) from None
            if step:
                self.close(f"{one_line(error)}; the take cannot go on, start the robot client again")
                raise ComponentError(self.failure) from None
            self._forget()
            raise
        self._played = step
        for seen in [*self._states]:
            if seen <= step:
                del self._states[seen]
        return [
            TimedAction(
                timestamp=observation.get_timestamp() + i / DEFAULT_FPS,
                timestep=observation.get_timestep() + 1 + i,
                action=torch.tensor(action),
            )
            for i, action in enumerate(actions[: self._most])
        ]

    def _request(self, step: int, frame: Mapping[str, Any], task: Any) -> dict[str, Any]:
        """Return the request to the server. A state that the client did not show is that of the next observation."""
        states, state = [], self._states[step]
        for played in range(step, self._played - (step == 0), -1):
            state = self._states.get(played, state)
            states.append(state)
        request: dict[str, Any] = {f"observation/{name}": picture(frame[key]) for name, key in self._cameras.items()}
        request["besttake"] = {"step": step, "states": np.stack(states[::-1])}
        if OBS_STATE in frame:
            request["observation/state"] = self._states[step]
        return request | ({"prompt": str(task)} if task else {})

    def _ask(self, request: Mapping[str, Any]) -> F32:
        slow = threading.Timer(3 * _PAUSE, _log.info, ("waiting for the server; is the take before not judged yet?",))
        slow.start()
        try:
            self._connection.send(pack_openpi(request))
            answer = self._connection.receive()
        finally:
            slow.cancel()
        if isinstance(answer, str):
            raise ComponentError(last_line(answer))
        actions: F32 = np.asarray(unpack_openpi(answer)["actions"], np.float32)
        return actions

    @contextmanager
    def asked(self, context: Any) -> Iterator[Episode]:
        """Answer a client's request for actions. The episode ends if the client leaves, or does not ask again soon."""
        answered = threading.Event()
        self._absence.cancel()
        context.add_callback(lambda: None if answered.is_set() else self._left())
        try:
            yield self
        finally:
            answered.set()
            self._absence = threading.Timer(_GONE, self._left)
            self._absence.daemon = True
            self._absence.start()

    def _left(self) -> None:
        if not self.failure:
            _log.info("the robot client has left")
            self.close("the robot client has left")

    def close(self, why: str) -> None:
        """End the episode: the server learns that its client has gone."""
        self.failure = self.failure or why
        self._connection.close()


class Bridge:
    """LeRobot's service AsyncInference: its calls, by the names that LeRobot gives them; one client at a time."""

    def __init__(self, server: str, names: Mapping[str, str], token: str | None = None) -> None:
        self._server, self._names, self._token = server, names, token
        self._episode: Episode | None = None
        self._told = ""

    def Ready(self, request: Any, context: Any) -> Any:
        """Begin the episode of a client that has connected, and end that of another client."""
        with self._telling(context):
            if self._episode is not None:
                self._episode.close("another robot client has taken over")
            connection = Connection(self._server, _greeting, _OPENING, self._token)
            self._episode, self._told = Episode(connection, context.peer()), ""
            _log.info("a robot client is ready, its episode begins")
        return services_pb2.Empty()

    def SendPolicyInstructions(self, request: Any, context: Any) -> Any:
        """Learn what the client's observations hold. The policy that it asks for is ignored: the server has one."""
        with self._telling(context):
            asked = bytes_to_python_object(request.data)
            if not isinstance(asked, RemotePolicyConfig):
                raise ComponentError(f"a RemotePolicyConfig is needed, not a {type(asked).__name__}")
            _log.info(
                "the client asks for %s %s on %s, which is ignored: the server has the policy",
                asked.policy_type, asked.pretrained_name_or_path, asked.device,
            )  # fmt: skip
            self._episode_of(context).set_up(asked, self._names)
        return services_pb2.Empty()

    def SendObservations(self, request_iterator: Any, context: Any) -> Any:
        """Receive an observation, in pieces."""
        with self._telling(context):
            sent = receive_bytes_in_chunks(request_iterator, None, threading.Event(), "bridge")
            with suppress(ComponentError):  # `GetActions` tells the client
                episode = self._episode_of(context)
                observation = bytes_to_python_object(sent)
                if not isinstance(observation, TimedObservation):
                    raise TypeError(f"a TimedObservation is needed, not a {type(observation).__name__}")
                episode.offer(observation)
        return services_pb2.Empty()

    def GetActions(self, request: Any, context: Any) -> Any:
        """Return the next chunk, or nothing if there is none yet."""
        with self._telling(context, _PAUSE), self._episode_of(context).asked(context) as episode:
            actions = episode.chunk()
        return services_pb2.Actions(data=python_object_to_bytes(actions)) if actions else services_pb2.Empty()

    def _episode_of(self, context: Any) -> Episode:
        episode = self._episode
        if episode is None or episode.client != context.peer():
            raise ComponentError("another robot client has taken over, or the bridge was started again")
        if episode.failure:
            raise ComponentError(episode.failure)
        return episode

    @contextmanager
    def _telling(self, context: Any, pause: float = 0.0) -> Iterator[None]:
        """Report an error to the client in one line, and log it once."""
        try:
            yield
        except Exception as error:
            line = one_line(error)
            if line != self._told and context.is_active():
                _log.error("%s", line)
            self._told = line
            time.sleep(pause)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, line)


def _greeting(connection: Connection) -> dict[str, Any]:
    return unpack_openpi(connection.receive())


def start(bridge: Bridge, host: str = "127.0.0.1", port: int = 8080) -> Any:
    """Listen for robot clients; returns gRPC's server."""
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    services_pb2_grpc.add_AsyncInferenceServicer_to_server(bridge, server)
    try:
        server.add_insecure_port(f"{host}:{port}")
    except RuntimeError:
        raise ComponentError(f"cannot listen on {host}:{port}; is something else there?") from None
    server.start()
    return server


def _names(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the pairs of ``--map``: ``observation.images.front=wrist``, or ``front=wrist``."""
    split = [pair.partition("=") for pair in pairs]
    if wrong := [pair for pair, (key, _, name) in zip(pairs, split, strict=True) if not key or not name]:
        raise ComponentError(f"--map {wrong[0]}: write KEY=NAME")
    return {f"{OBS_IMAGES}.{key.removeprefix(f'{OBS_IMAGES}.')}": name for key, _, name in split}


def main() -> None:
    """Run the bridge from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lerobot_policy_besttake.bridge", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--server", default="ws://127.0.0.1:8000", help="where `besttake serve --protocol openpi` is")
    parser.add_argument("--host", default="127.0.0.1", help="where robot clients connect (default: this machine only)")
    parser.add_argument("--port", type=int, default=8080, help="the port for robot clients (default: 8080)")
    parser.add_argument("--map", nargs="+", action="extend", default=[], metavar="KEY=NAME", help="rename pictures")
    parser.add_argument("--token", help="of the server (default: $BESTTAKE_TOKEN)")
    flags = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", force=True)
    _log.setLevel(logging.INFO)
    try:
        server = start(Bridge(flags.server, _names(flags.map), flags.token), flags.host, flags.port)
    except ComponentError as error:
        raise SystemExit(one_line(error)) from None
    if not is_loopback(flags.host):
        _log.warning("whoever can connect to %s can run code here: LeRobot's messages are pickles", flags.host)
    _log.info("robot clients connect to %s:%d, their observations go to %s", flags.host, flags.port, flags.server)
    with suppress(KeyboardInterrupt):
        server.wait_for_termination()


if __name__ == "__main__":
    main()
