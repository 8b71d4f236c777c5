"""The command ``serve``: a policy for other harnesses, or a session on a robot."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from besttake.cli.console import command_line, reporter, show, wait
from besttake.cli.flags import Flags, pairs, plan_flags, plan_option
from besttake.errors import Interrupted, PlanError
from besttake.sanitize import printable

if TYPE_CHECKING:
    from besttake.policies.base import Policy
    from besttake.result import Result
    from besttake.verbs.session import Service

_PORT: Any = {"min": 0, "max": 65535}
_IN_SESSION: Any = {"rich_help_panel": "A session on a robot (with the flags of a plan)"}
_Port = Annotated[int, typer.Option(**_PORT, help="Port to listen on; 0 picks a free one.")]
_Retrieve = Annotated[
    Path | None,
    typer.Option(metavar="LIBRARY|RUN", help="Retrieve from this library, or with the settings of this run."),
]
_Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on; other than loopback needs a token.")]
_Token = Annotated[str | None, typer.Option(help="Token that clients must send (default: $BESTTAKE_TOKEN).")]
_Cameras = Annotated[
    str | None, typer.Option(metavar="OURS=THEIRS,…", help="Camera names of the clients, e.g. wrist=wrist_image.")
]
_Origins = Annotated[
    list[str] | None,
    typer.Option(metavar="ORIGIN", help="Web pages that may connect, e.g. http://localhost:3000. Repeatable."),
]
_Batch = Annotated[
    int | None,
    typer.Option(min=1, max=4096, help="Most clients sampled in one call (default: the width of the policy)."),
]
_Gate = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Judge takes by the score and threshold of this run (openpi).")
]
_Session = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN", help="Diagnose the policy on a robot: people judge its takes on a page.", **_IN_SESSION
    ),
]
_Page = Annotated[int, typer.Option(**_PORT, help="Port of the page; 0 picks a free one.", **_IN_SESSION)]
_Open = Annotated[bool, typer.Option("--open", help="Let the page say which arm runs.", **_IN_SESSION)]


@plan_flags(
    "env", "task", "demos", "demos_per_task", "encoder", "starts", "seeds", "arms", "worth", "until", "budget",
    "scorer", "best_of", "stride", "rule", "check_states", "probe_states", "gripper_dim", "gripper_open", "eef_dims",
    helps={
        "env": "What the robot is (default: made from what the policy reads, and the task).",
        "task": "What the robot is asked to do, in words. Repeatable.",
    },
)  # fmt: skip
def serve(
    given: Flags,
    policy: Annotated[str, typer.Option(metavar="URI", help="Policy to serve.")],
    retrieve: _Retrieve = None,
    cooled: Annotated[bool, typer.Option("--cooled", help="Sample with less noise instead.")] = False,
    noise: Annotated[float | None, plan_option("noise", help="Noise, 0 to 1 (default: as diagnosed, or 0.1).")] = None,
    prior: Annotated[float | None, plan_option("prior", help="Prior, 0 to 1 (default: as diagnosed, or 0.1).")] = None,
    protocol: Annotated[str, typer.Option(metavar="vla-eval|openpi", help="Protocol that clients speak.")] = "vla-eval",
    host: _Host = "127.0.0.1",
    port: _Port = 8000,
    token: _Token = None,
    cameras: _Cameras = None,
    allow_origin: _Origins = None,
    max_sessions: Annotated[int, typer.Option(min=1, max=1024, help="Most connections at once.")] = 32,
    batch: _Batch = None,
    gate: _Gate = None,
    seed: Annotated[int, plan_option("seed", help="Seed of the sampling noise (default 0).")] = 0,
    trust_remote_code: Annotated[bool, plan_option("trust_remote_code")] = False,
    session: _Session = None,
    page: _Page = 8001,
    revealed: _Open = False,
) -> None:
    """Serve a policy to other harnesses, as it is or with retrieval or cooling built in.

    With --session, a robot's client plays the takes of a diagnosis, and people judge them without seeing the arm.

    Examples:
      besttake serve --policy lerobot:org/pi0_libero --retrieve libraries/libero --port 8000
      besttake serve --policy lerobot:org/pi0_libero --retrieve runs/diagnosis
      besttake serve --policy testbed:half --cooled --protocol openpi --port 0
      besttake serve --policy lerobot:org/pi0_arm --protocol openpi --session runs/robot --task "fold the towel"
    """
    from besttake.serving.gate import Gate
    from besttake.serving.served import Limits
    from besttake.verbs.session import Service

    names = pairs("cameras", cameras.split(",") if cameras else [], "OURS=THEIRS,OURS=THEIRS", "wrist=wrist_image")
    judge = Gate.open(gate) if gate is not None else None
    limits = Limits(max_sessions=max_sessions, origins=tuple(allow_origin or ()), batch=batch, gate=judge)
    service = Service(
        protocol, host, port, page, token or os.environ.get("BESTTAKE_TOKEN"), names, limits, _say_where, revealed
    )
    if session is not None:
        if retrieve is not None or cooled or gate is not None:
            raise PlanError("a `session` plays all takes of its `arms`: leave out `retrieve`, `cooled` and `gate`")
        keys = {"noise": noise, "prior": prior, "seed": seed, "trust_remote_code": trust_remote_code}
        _session(session, service, {**keys, **given, "policy": policy})
        return
    if given:
        raise PlanError(f"`{next(iter(given))}` needs a `session`; without one, the client decides it")
    from besttake import registry

    model = registry.policy(policy, trust_remote_code=trust_remote_code)
    if retrieve is not None or cooled:
        model = _augmented(model, policy, retrieve, {"noise": noise, "prior": prior}, cooled=cooled)
    _serve(model, service, seed)


def _augmented(
    model: Policy, name: str, retrieve: Path | None, dials: Mapping[str, float | None], *, cooled: bool
) -> Policy:
    """Return the policy with retrieval or cooling built in."""
    from besttake.core.retrieve import RetrievalConfig
    from besttake.policies import augmented

    if retrieve is None:
        noise = dials["noise"]
        return augmented.cooled(model, RetrievalConfig().noise if noise is None else noise)
    if cooled:
        raise PlanError("`retrieve` and `cooled` exclude each other: choose one")
    return augmented.retrieving(model, *augmented.read_retrieval(retrieve, name, dials))


def _serve(model: Policy, service: Service, seed: int) -> None:
    """Serve until Ctrl-C."""
    from besttake.serving.server import serve as start_server

    with start_server(
        model, service.protocol, service.host, service.port, service.token, seed=seed, limits=service.limits,
        cameras=service.cameras,
    ) as server:  # fmt: skip
        wait(f"serving {model.spec.name} at {server.url} ({service.protocol})", "the server has ended")


def _session(out: Path, service: Service, keys: Mapping[str, Any]) -> None:
    """Serve a session until it is ended, and print each new verdict."""
    from besttake.reporting.terminal import diagnosis
    from besttake.verbs.report import report
    from besttake.verbs.session import session

    def verdict(result: Result) -> None:
        report(out)
        show(diagnosis(result, out), result.to_json(), False)
        print("outcomes can still be corrected on the page; end the session there, or by Ctrl-C", flush=True)

    known = {name: value for name, value in keys.items() if value is not None}
    try:
        session(out=out, service=service, progress=reporter(False), verdict=verdict, command=command_line(), **known)
    except KeyboardInterrupt:
        raise Interrupted("takes that were judged are kept, and the same command goes on") from None


def _say_where(client: str, page: str) -> None:
    print(printable(f"the robot's client connects to {client}; the page is {page}"), flush=True)
