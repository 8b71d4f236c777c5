"""``serve``."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.flags import option
from besttake.cli.options import pairs


def serve(
    policy: Annotated[str, typer.Option(help="Policy to serve (URI).")],
    retrieve: Annotated[Path | None, typer.Option(help="Warm-start from this library, or as in this run.")] = None,
    cooled: Annotated[bool, typer.Option("--cooled", help="Sample more calmly instead.")] = False,
    alpha: Annotated[float | None, option("alpha")] = None,
    protocol: Annotated[str, typer.Option(help="Protocol of the clients: vla-eval or openpi.")] = "vla-eval",
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token: Annotated[str | None, typer.Option(help="What clients must show (default: $BESTTAKE_TOKEN).")] = None,
    cameras: Annotated[str | None, typer.Option(help="The clients' names of cameras: wrist=wrist_image,…")] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Let web pages of this origin connect, e.g. http://localhost:3000. Repeatable."),
    ] = None,
    max_sessions: Annotated[int, typer.Option(min=1, max=1024, help="Connections at once.")] = 32,
    batch: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Clients sampled at once at most (default: the policy's width).")
    ] = None,
    seed: Annotated[int, option("seed")] = 0,
    trust_remote_code: Annotated[bool, option("trust_remote_code")] = False,
) -> None:
    """Serve a policy, as it is or with its intervention, to other harnesses.

    Examples:
      besttake serve --policy lerobot:org/pi0_libero --retrieve libraries/libero --port 8000
      besttake serve --policy lerobot:org/pi0_libero --retrieve runs/diagnosis
      besttake serve --policy testbed:half --cooled --protocol openpi --port 0
    """
    from besttake import registry
    from besttake.errors import Interrupted, PlanError
    from besttake.escapes import printable
    from besttake.policies import augmented
    from besttake.serving.limits import Limits
    from besttake.serving.retrieval import retrieval_from
    from besttake.serving.server import serve as start

    if retrieve is not None and cooled:
        raise PlanError("`retrieve` and `cooled` exclude each other: choose one")
    model = registry.policy(policy, trust_remote_code=trust_remote_code)
    if retrieve is not None:
        model = augmented.retrieving(model, *retrieval_from(retrieve, alpha, policy))
    elif cooled:
        model = augmented.cooled(model, 0.3 if alpha is None else alpha)
    names = pairs("cameras", cameras.split(",") if cameras else [], "OURS=THEIRS,OURS=THEIRS", "wrist=wrist_image")
    shown = token or os.environ.get("BESTTAKE_TOKEN")
    limits = Limits(max_sessions=max_sessions, origins=tuple(allow_origin or ()), batch=batch)
    with start(model, protocol, host, port, shown, seed=seed, limits=limits, cameras=names) as server:
        print(printable(f"serving {model.spec.name} at {server.url} ({protocol}); Ctrl-C ends it"), flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            raise Interrupted("the server has ended") from None
