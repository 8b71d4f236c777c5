"""Diagnose a policy on a real robot: its own client plays the takes, and people judge them (`serve --session`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from besttake import registry
from besttake.arms.base import specs_of
from besttake.arms.sampler import arm_sampler
from besttake.config import Plan, as_plan
from besttake.envs.robot import robot_uri
from besttake.errors import PlanError
from besttake.measure.partial import SESSION
from besttake.policies.augmented import SessionPolicy
from besttake.policies.base import Policy
from besttake.progress import Reporter, as_reporter
from besttake.result import Result
from besttake.serving.connections import CONNECTIONS
from besttake.serving.operator import OperatorServer
from besttake.serving.robot_session import RobotSession
from besttake.serving.served import Limits
from besttake.serving.server import serve
from besttake.takes.key import TakeKey
from besttake.verbs.diagnose.diagnosis import run_plan
from besttake.verbs.diagnose.playing import TakePlayer, TakePlayerFactory
from besttake.verbs.diagnose.policies import Invocation
from besttake.verbs.diagnose.setup import with_defaults

_REGISTERED = "registered"


@dataclass(frozen=True)
class Service:
    """How a session is served: at ``port`` for the robot's client, at the port ``page`` for the operator's browser.

    ``started(client, page)`` is called with both addresses. ``revealed``: the page shows which arm runs.
    """

    protocol: str = "openpi"
    host: str = "127.0.0.1"
    port: int = 0
    page: int = 0
    token: str | None = None
    cameras: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    started: Callable[[str, str], None] = lambda client, page: None
    revealed: bool = False


def session(
    plan: Plan | str | Path | None = None, out: str | Path = "runs/session", service: Service | None = None, *,
    progress: bool | Reporter = False, verdict: Callable[[Result], None] = lambda result: None, command: str = "",
    **keys: Any,
) -> Result:  # fmt: skip
    """Diagnose a policy on a robot: serve it with all its arms, in a hidden order, while people judge its takes.

    Returns when the operator ends the session on its page. The same call continues a session that was stopped.

    Args:
        plan: A `Plan`, or the path of a YAML file with the same keys; without one, ``keys`` are the plan. Instead of
            ``env``, ``task`` may hold the robot's instruction.
        out: The run directory.
        service: Where the session is served, and by which protocol.
        progress: True shows a progress bar.
        verdict: Called with the result after the last take, and again whenever outcomes were corrected.
        command: The command line to record in the result, if there was one.
        keys: Keys of the plan; they override those of ``plan``.

    Raises:
        BestTakeError: The plan, a component or the run directory cannot be used. The message says what to do.

    Examples:
        >>> besttake.session(policy="testbed:half", env="testbed:pick", starts=10, out="runs/robot")  # doctest: +SKIP
    """
    service, reporter = service or Service(), as_reporter(progress)
    loaded: dict[str, Policy] = {}
    if plan is None and "env" not in keys:
        keys = _with_robot(keys, loaded)
    plan = with_defaults(as_plan(plan, keys))
    plan = plan.model_copy(update={"window": "common", "replicas": 1, "on": "local"})
    if len(plan.policy) != 1 or service.protocol not in CONNECTIONS:
        raise PlanError("a session needs one `policy`, and the `protocol` vla-eval or openpi")
    people = RobotSession(plan, revealed=service.revealed)
    with OperatorServer(people, Path(out), (service.host, service.page), service.token) as page:
        make = partial(_RobotTakePlayer, people, service, page.url)
        players = TakePlayerFactory(make, {SESSION: _hypotheses(plan)}, loaded)
        while True:
            people.outdated = False
            result = run_plan(plan, out, Invocation(reporter), players, command)
            page.judged = True
            verdict(result)
            with suppress(KeyboardInterrupt):
                people.wait()
            if not people.outdated:
                return result


def _with_robot(keys: Mapping[str, Any], loaded: dict[str, Policy]) -> dict[str, Any]:
    """The keys with an env for each task of the robot, which observes what the policy reads. Loads the policy."""
    uri, tasks = keys.get("policy"), keys.get("task") or ()
    if not isinstance(uri, str) or not tasks:
        raise PlanError("a session needs a `policy`, and a `task` in words (or an `env`)")
    loaded[uri] = registry.policy(uri, trust_remote_code=bool(keys.get("trust_remote_code")))
    envs = [robot_uri(task, loaded[uri].spec) for task in ([tasks] if isinstance(tasks, str) else tasks)]
    return {**keys, "task": (), "env": envs}


def _hypotheses(plan: Plan) -> list[str]:
    """The hypotheses of a session, in words, which are fixed before its first take."""
    more, effect = "succeeds more often than", f"effects of {plan.worth:g} points matter"
    picks = [f"the best of {plan.n} takes by {plan.scorer[0]} {more} one"] if plan.n > 1 else []
    controls = {arm: spec.control for arm, spec in specs_of(plan.arms).items() if spec.control in plan.arms}
    return [effect, *picks, *(f"{arm} {more} {control}" for arm, control in controls.items())]


class _RobotTakePlayer(TakePlayer):
    """Serves a policy to the robot's client, which plays the takes, and lets people judge them."""

    def __init__(self, people: RobotSession, service: Service, page: str, *args: Any) -> None:
        super().__init__(*args)
        self._people, self._service, self._page = people, service, page

    def __enter__(self) -> Self:
        setup, service, people = self.setup, self._service, self._people
        world, *others = {replace(env.world, name="") for env in setup.envs.values()}
        if others:
            raise PlanError("`env`: all tasks of a session need the same robot: the same cameras, actions and states")
        arms = arm_sampler(
            self.policy, world, setup.retrieval, setup.library, setup.encoder, setup.plan.candidates
        )  # fmt: skip
        served = SessionPolicy(arms, partial(people.begin, envs=setup.envs))
        if service.protocol == "openpi" and any(spec.history for spec in specs_of(setup.plan.arms).values()):
            self.reporter.note(
                "an arm looks back over the take, and openpi's client sends no steps between its requests"
            )
        server = serve(
            served, service.protocol, service.host, service.port, service.token, limits=service.limits,
            cameras=service.cameras,
        )  # fmt: skip
        self._closing.callback(server.close)
        self._register()
        service.started(server.url, self._page)
        return self

    def _register(self) -> None:
        """Fix a run's plan, seed, hypotheses, policy and retrieval before its first take, by a hash of them."""
        manifest = self.store.manifest
        identity = {name: value for name, value in manifest.identity.items() if name != _REGISTERED}
        if not self.store.rows():
            self.store.claim(_REGISTERED, manifest.model_copy(update={"identity": identity}).named().run)
        self.reporter.note(f"registered before the first take: {self.store.manifest.identity[_REGISTERED]}")

    def __call__(self, keys: Collection[TakeKey]) -> None:
        """Wait until the missing takes of ``keys`` are played and judged."""
        self._people.play([*keys], self.store, self._on_take)

    def remarks(self) -> list[str]:
        """Notes on what did not go as planned."""
        return self._people.remarks()
