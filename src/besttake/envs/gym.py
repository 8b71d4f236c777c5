"""Any Gymnasium env that reports success and has pictures: ``gym:ID?args``.

The cameras are the pictures in the observation, since policies were trained on those; for an env whose observations
have no pictures, the camera is ``render()``.

``gym:metaworld:Meta-World/MT1?env_name=reach-v3&goes_on=true`` imports ``metaworld`` and makes ``Meta-World/MT1`` with
``env_name``: options that are not BestTake's own go to ``gymnasium.make``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from besttake.envs.base import check_action, check_cameras, check_task, checked_flag, choose_gl, declared, global_seed
from besttake.errors import ComponentError, blaming, need, one_line
from besttake.files import short_hash
from besttake.options import Reader, names, value
from besttake.types import F32, U8, EnvSpec, Observation, Start, Step, TaskSpec

_CAMERA = "render"
_PICTURE = "pixels"
"""The name of the camera if the observation itself is a picture."""
_STARTS, _TUNING = range(100_000), range(100_000, 200_000)
"""Seeds for evaluation and for tuning."""
_SIDE = 256
"""Side of a rendered picture in pixels, if the env lets us choose: its default 480 x 480 takes far longer to render."""
_TERMINATED = "terminated"
_NO_RENDER_MODE = "unexpected keyword argument 'render_mode'", "takes no arguments"


def make(
    env_id: str, *, success: str | None = None, state: str = "", goes_on: bool | str = False,
    instruction: str = "", group: str | None = None, task: str | None = None, score_camera: str | None = None,
    **others: Any,
) -> GymEnv:  # fmt: skip
    """Make ``env_id`` (``ID`` or ``module:ID``).

    ``success`` names the key of ``info`` (default ``success``, else ``is_success``), or is ``terminated`` for an env
    that terminates at success and only then; ``state`` names the keys of a Dict observation that form the state,
    separated by commas (default: its only vector); ``goes_on`` says that the env does not end at success. Of
    ``others``, ``repeats`` (false: the env cannot repeat a start exactly) and those in `DeclaredFacts` are read here
    (``starts`` limits the number of seeds used as starts); the rest goes to ``gymnasium.make``.
    """
    read = Reader(f"gym:{env_id}")
    exact = read.flag("repeats", others.pop("repeats", True))
    facts, rest = declared(read, others)
    arguments = {key: value(text) for key, text in rest.items()}
    name = read.uri + (f"?{urlencode(sorted(arguments.items()), quote_via=quote)}" if arguments else "")
    inner = _build(env_id, arguments)
    renderers = (inner.unwrapped, *vars(inner.unwrapped).values())  # the env itself or, in mazes, a robot in it
    if not {"width", "height"} & {*arguments} and any(hasattr(part, "mujoco_renderer") for part in renderers):
        inner, arguments = _with_small_pictures(env_id, inner, arguments)
    try:
        horizon = facts.horizon or (inner.spec.max_episode_steps if inner.spec else None)
        if not horizon:
            raise ComponentError(f"{read.uri}: the env sets no limit of steps; add horizon=…")
        space = inner.action_space
        if len(getattr(space, "shape", None) or ()) != 1:
            raise ComponentError(f"{read.uri}: actions must be vectors (a Box of one dimension), not {space}")
        observed, _ = inner.reset(seed=0)
        keys = names(state) or _only_vector(observed, read.uri)
        cameras = tuple(_pictures(observed)) or (_CAMERA,)
        label = task or str(arguments.get("env_name", env_id.rpartition(":")[2]))
        tasks = (TaskSpec(label, group or label, instruction, horizon),)
        state_dim = _state(observed, keys, read.uri).size
        spec = EnvSpec(
            name, tasks, _STARTS[: facts.starts], action_dim=int(space.shape[0]), state_dim=state_dim,
            cameras=cameras, score_camera=read.choice("score_camera", score_camera or _scored(cameras), cameras),
            tuning=_TUNING, goes_on=read.flag("goes_on", goes_on),
            fps=float(facts.fps or inner.metadata.get("render_fps", 10) or 10), **facts.body,
            fingerprint=short_hash(f"{name} {success} {state} {horizon} {cameras} {arguments.get('width')}"),
            notes=_notes(state_dim, cameras, exact, arguments),
        )  # fmt: skip
    except ComponentError:
        inner.close()
        raise
    build = partial(_build, env_id, arguments)
    keys_of_success = names(success) or ("success", "is_success")
    return GymEnv(spec, inner, keys_of_success, keys, build if facts.rebuild else None, repeats=exact)


class GymEnv:
    """A Gymnasium env as a BestTake env: the index of a start is the seed of its reset.

    ``success`` are keys of ``info``, of which the first present one counts; ``state`` are keys of the observation;
    ``build`` makes a new env at each reset, for envs that do not reset exactly; ``repeats`` is False if even this does
    not repeat a start exactly.
    """

    def __init__(
        self, spec: EnvSpec, inner: Any, success: Sequence[str], state: Sequence[str],
        build: Callable[[], Any] | None, *, repeats: bool = True,
    ) -> None:  # fmt: skip
        self.repeats = repeats
        self.spec, self._inner, self._success_keys, self._state_keys, self._build = spec, inner, success, state, build
        self._state: F32 | None = None
        self._seen: dict[str, U8] = {}
        self._success, self._over = False, False

    def reset(self, start: Start) -> None:
        """Reset with the start's index as seed, also in envs that ignore ``reset(seed=…)``, as MetaWorld does."""
        check_task(self.spec, start.task)
        from gymnasium.utils import seeding

        with global_seed(start.index):
            if self._build is not None:
                self._inner.close()
                self._inner = self._build()
            self._inner.unwrapped.np_random = seeding.np_random(start.index)[0]
            observed, _ = self._inner.reset(seed=start.index)
        self._keep_observation(observed)
        self._success, self._over = False, False

    def step(self, action: F32) -> Step:
        """Execute one action. Success is sticky; ``done`` means that the env terminated or truncated the episode."""
        check_action(self.spec, action)
        if self._state is None or self._over:
            raise ComponentError(f"{self.spec.name}: reset comes before step, and again after the env has ended")
        observed, _, terminated, truncated, info = self._inner.step(action)
        self._keep_observation(observed)
        ended = checked_flag(self.spec.name, terminated, "terminated")
        stopped = checked_flag(self.spec.name, truncated, "truncated")
        self._success, self._over = self._success or self._is_success(info, ended), ended or stopped
        return Step(success=self._success, done=self._over)

    def observe(self, cameras: Sequence[str]) -> Observation:
        """State and pictures of the last observation, or the picture of ``render()`` if observations have none."""
        if self._state is None:
            raise ComponentError(f"{self.spec.name}: reset comes before observe")
        check_cameras(self.spec, cameras)
        images = {camera: self._seen[camera] if camera in self._seen else self._rendered() for camera in cameras}
        return Observation(images, self._state.copy(), self.spec.tasks[0].instruction)

    def close(self) -> None:
        """Free the env."""
        self._inner.close()

    def _keep_observation(self, observed: Any) -> None:
        self._state, self._seen = _state(observed, self._state_keys, self.spec.name), _pictures(observed)

    def _rendered(self) -> U8:
        with blaming(f"{self.spec.name}: render()"):
            picture = np.asarray(self._inner.render())
        if not _is_picture(picture):
            result = "None" if picture.dtype == object else f"{picture.dtype} {picture.shape}"
            raise ComponentError(f"{self.spec.name}: render() gave {result}, not a picture: uint8 (H, W, 3)")
        return np.ascontiguousarray(picture.astype(np.uint8))

    def _is_success(self, info: dict[str, Any], terminated: bool) -> bool:
        if present := [key for key in self._success_keys if key in info]:
            return checked_flag(self.spec.name, info[present[0]])
        if _TERMINATED in self._success_keys:
            return terminated
        keys, has = " or ".join(self._success_keys), ", ".join(map(str, info)) or "nothing"
        raise ComponentError(
            f"{self.spec.name}: info has no {keys} (it has {has}); name the key with success=…, or add"
            f" success={_TERMINATED} if the env terminates when the task is done, and never otherwise"
        )


def _build(env_id: str, arguments: dict[str, Any]) -> Any:
    choose_gl()
    gymnasium = need("gymnasium", "gym:…", "gym")
    make = partial(gymnasium.make, env_id, disable_env_checker=True, **arguments)
    try:
        with warnings.catch_warnings():  # users' own envs often do not list their render modes
            warnings.filterwarnings("ignore", message=".*that is not in the possible render_modes.*")
            try:
                return make(render_mode="rgb_array")
            except TypeError as error:
                if not any(text in str(error) for text in _NO_RENDER_MODE):
                    raise
                return make()  # its constructor takes no render mode
    except ModuleNotFoundError as error:
        raise ComponentError(f"gym:{env_id}: {error}; install the package that defines this env") from error
    except (gymnasium.error.NamespaceNotFound, gymnasium.error.NameNotFound) as error:
        hint = "" if ":" in env_id else f"; name the module that registers it, gym:MODULE:{env_id}"
        raise ComponentError(f"gym:{env_id}: {one_line(error)}{hint}") from error
    except (gymnasium.error.Error, TypeError, ValueError, AssertionError, KeyError) as error:
        raise ComponentError(f"gym:{env_id}: {one_line(error)}") from error


def _with_small_pictures(env_id: str, inner: Any, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The env with small pictures if its constructor takes their size, and its arguments; else ``inner`` as it is."""
    small = {**arguments, "width": _SIDE, "height": _SIDE}
    try:
        env = _build(env_id, small)
    except ComponentError:
        return inner, arguments
    inner.close()
    return env, small


def _state(observed: Any, keys: Sequence[str], uri: str) -> F32:
    if not isinstance(observed, dict):
        # A picture is not a state.
        return np.zeros(0, np.float32) if np.ndim(observed) > 1 else np.atleast_1d(observed).astype(np.float32)
    if missing := [key for key in keys if key not in observed]:
        raise ComponentError(f"{uri}: no {missing[0]!r} in the observation ({', '.join(observed)})")
    parts = [np.ravel(observed[key]) for key in keys]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)


def _only_vector(observed: Any, uri: str) -> tuple[str, ...]:
    """The key of the only vector in a Dict observation; none if the observation has only pictures."""
    if not isinstance(observed, dict):
        return ()
    vectors = tuple(key for key, part in observed.items() if not isinstance(part, dict) and np.ndim(part) == 1)
    if len(vectors) > 1:
        sizes = ", ".join(f"{key} {np.size(observed[key])}" for key in vectors)
        raise ComponentError(
            f"{uri}: observations hold several vectors ({sizes} numbers); name those that form the state, in the"
            f" order in which the policy reads them, e.g. state={','.join(vectors)}"
        )
    if not vectors and not _pictures(observed):
        raise ComponentError(f"{uri}: observations are a Dict ({', '.join(observed)}); add state=KEY,…")
    return vectors


def _pictures(observed: Any) -> dict[str, U8]:
    """The pictures (H, W, 3) of an observation by their keys, also those in nested Dicts (as in ALOHA)."""
    if not isinstance(observed, dict):
        return {_PICTURE: np.array(observed)} if _is_picture(observed) else {}
    pictures: dict[str, U8] = {}
    for key, part in observed.items():
        pictures |= _pictures(part) if isinstance(part, dict) else {key: np.array(part)} if _is_picture(part) else {}
    return pictures


def _is_picture(part: Any) -> bool:
    array = np.asarray(part)
    return array.ndim == 3 and array.shape[2] == 3 and array.dtype == np.uint8


def _scored(cameras: Sequence[str]) -> str:
    """The camera to score by: the first whose name contains ``wrist``, else the first."""
    return next((camera for camera in cameras if "wrist" in camera), cameras[0])


def _notes(state_dim: int, cameras: Sequence[str], repeats: bool, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    if not state_dim:
        notes.append("observations hold pictures alone: many envs also give a state with obs_type=pixels_agent_pos")
    if cameras == (_CAMERA,):
        size = f", {arguments['width']} x {arguments['height']} (width=…, height=…)" if "width" in arguments else ""
        notes.append(
            f"pictures are those of `render()`{size}; an env may offer the policy's own in observations, often by"
            " `obs_type`"
        )
    if not repeats:
        notes.append(
            "repeats=false: takes of a start begin alike only as far as the env can do it, so pairing them gains less"
        )
    return tuple(notes)
