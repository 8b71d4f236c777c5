"""``serve``."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from besttake.cli.flags import option
from besttake.cli.options import pairs

Retrieve = Annotated[
    Path | None,
    typer.Option(metavar="LIBRARY|RUN", help="Retrieve from this library, or with the settings of this run."),
]
Cameras = Annotated[
    str | None, typer.Option(metavar="OURS=THEIRS,…", help="Camera names of the clients, e.g. wrist=wrist_image.")
]
Origins = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN", help="Let web pages of this origin connect, e.g. http://localhost:3000. Repeatable."
    ),
]


def serve(
    policy: Annotated[str, typer.Option(metavar="URI", help="Policy to serve.")],
    retrieve: Retrieve = None,
    cooled: Annotated[bool, typer.Option("--cooled", help="Sample with less noise instead.")] = False,
    noise: Annotated[float | None, option("noise", help="Noise, 0 to 1 (default: as diagnosed, or 0.1).")] = None,
    prior: Annotated[float | None, option("prior", help="Prior, 0 to 1 (default: as diagnosed, or 0.1).")] = None,
    protocol: Annotated[str, typer.Option(metavar="vla-eval|openpi", help="Protocol that clients speak.")] = "vla-eval",
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; other than loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 8000,
    token: Annotated[str | None, typer.Option(help="Token that clients must send (default: $BESTTAKE_TOKEN).")] = None,
    cameras: Cameras = None,
    allow_origin: Origins = None,
    max_sessions: Annotated[int, typer.Option(min=1, max=1024, help="Most connections at once.")] = 32,
    batch: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Most clients sampled in one call (default: the width of the policy)."),
    ] = None,
    seed: Annotated[int, option("seed", help="Seed of the sampling noise (default 0).")] = 0,
    trust_remote_code: Annotated[bool, option("trust_remote_code")] = False,
) -> None:
    """Serve a policy to other harnesses, plain or with retrieval or cooling built in.

    Examples:
      besttake serve --policy lerobot:org/pi0_libero --retrieve libraries/libero --port 8000
      besttake serve --policy lerobot:org/pi0_libero --retrieve runs/diagnosis
      besttake serve --policy testbed:half --cooled --protocol openpi --port 0
    """
    from besttake import registry
    from besttake.core.retrieve import RetrievalConfig
    from besttake.errors import Interrupted, PlanError
    from besttake.policies import augmented
    from besttake.policies.augmented import retrieval_from
    from besttake.sanitize import printable
    from besttake.serving.served import Limits
    from besttake.serving.server import serve as start

    if retrieve is not None and cooled:
        raise PlanError("`retrieve` and `cooled` exclude each other: choose one")
    model = registry.policy(policy, trust_remote_code=trust_remote_code)
    if retrieve is not None:
        model = augmented.retrieving(model, *retrieval_from(retrieve, policy, {"noise": noise, "prior": prior}))
    elif cooled:
        model = augmented.cooled(model, RetrievalConfig().noise if noise is None else noise)
    names = pairs("cameras", cameras.split(",") if cameras else [], "OURS=THEIRS,OURS=THEIRS", "wrist=wrist_image")
    shown = token or os.environ.get("BESTTAKE_TOKEN")
    limits = Limits(max_sessions=max_sessions, origins=tuple(allow_origin or ()), batch=batch)
    with start(model, protocol, host, port, shown, seed=seed, limits=limits, cameras=names) as server:
        print(printable(f"serving {model.spec.name} at {server.url} ({protocol}); Ctrl-C ends it"), flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            raise Interrupted("the server has ended") from None
