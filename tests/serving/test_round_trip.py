"""Our clients against our server: what a served policy is to a diagnosis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from besttake import registry
from besttake.errors import ComponentError
from besttake.serving import serve
from besttake.takes.draws import Draw


def test_a_served_policy_gives_its_own_chunks_through_vla_eval(policy, observation):
    """The server hands out `replan` actions of a chunk and says so: nobody asks it for more than one sample's."""
    with serve(policy, seed=5) as server:
        remote: Any = registry.policy(f"vla-eval:{server.url}")
        got = remote.sample([observation], [Draw(1, "push", 6, 0)])
        remote.close()
    expected = policy.sample([observation], [Draw(5, "push", 6, 0)])[:, :2]
    np.testing.assert_array_equal(got, expected)
    assert remote.spec.cameras == policy.spec.cameras


def test_a_served_policy_gives_its_own_chunks_through_openpi(policy, observation):
    with serve(policy, "openpi", seed=5) as server:
        remote: Any = registry.policy(f"openpi:{server.url}")
        got = remote.sample([observation], [Draw(1, "push", 6, 0)])
        remote.close()
    np.testing.assert_array_equal(got, policy.sample([observation], [Draw(5, "connection", 0, 0)]))
    assert (remote.spec.horizon, remote.spec.replan) == (4, 2)


@pytest.mark.parametrize("protocol", ["vla-eval", "openpi"])
def test_a_server_that_is_killed_fails_the_sample_and_serves_again_when_it_is_back(policy, observation, protocol):
    server = serve(policy, protocol)
    remote: Any = registry.policy(f"{protocol}:{server.url}")
    draw = Draw(0, "push", 0, 0)
    assert remote.sample([observation], [draw]).shape[0] == 1
    server.close()
    with pytest.raises(ComponentError, match="is the server running"):
        remote.sample([observation], [draw])
    with serve(policy, protocol, port=server.port):
        assert remote.sample([observation], [draw]).shape[0] == 1
        remote.close()


def test_the_token_goes_along_and_its_absence_is_said(policy, monkeypatch):
    monkeypatch.delenv("BESTTAKE_TOKEN", raising=False)
    with serve(policy, token="secret") as server:
        trusted: Any = registry.policy(f"vla-eval:{server.url}?token=secret")
        trusted.close()
        with pytest.raises(ComponentError, match=r"HTTP 401; give its token in \$BESTTAKE_TOKEN or with \?token="):
            registry.policy(f"vla-eval:{server.url}")
        monkeypatch.setenv("BESTTAKE_TOKEN", "secret")
        open_to_all: Any = registry.policy(f"vla-eval:{server.url}")
        open_to_all.close()
