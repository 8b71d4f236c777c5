from __future__ import annotations

import subprocess
import sys

import numpy as np
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from besttake.takes.draws import Draw

addresses = st.builds(
    Draw,
    run_seed=st.integers(0, 2**32),
    task=st.text(max_size=20),
    start=st.integers(0, 10**6),
    seed=st.integers(0, 1000),
    chunk=st.integers(0, 1000),
)


@given(addresses)
def test_a_draw_is_a_pure_function_of_its_address(draw: Draw) -> None:
    assert np.array_equal(draw.normal((3, 2)), Draw(**vars(draw)).normal((3, 2)))


@given(addresses, addresses)
def test_different_addresses_give_different_noise(a: Draw, b: Draw) -> None:
    assert (a == b) == bool(np.array_equal(a.normal((4,)), b.normal((4,))))


def test_streams_chunks_and_candidates_do_not_share_noise() -> None:
    draw = Draw(0, "pick", 1, 2, 3)
    others = [draw.normal((8,), s) for s in ("noise", "perception", "shuffle", "env", "extra")]
    others += [draw.at(4).normal((8,)), draw.candidate(1).normal((8,)), draw.candidate(2).normal((8,))]
    assert len({x.tobytes() for x in others}) == len(others)
    assert draw.candidate(0) == draw


def test_uniform_noise_fills_the_range_from_minus_one_to_one_and_halves_exactly() -> None:
    """EVO-1 makes it from 0 to 1 and stretches that again: no bit may be lost on the way."""
    x = np.concatenate([Draw(5, "stack", s, 0).uniform((50,)) for s in range(200)])
    assert x.dtype == np.float32
    assert scipy.stats.kstest(x, "uniform", (-1, 2)).pvalue > 1e-3
    np.testing.assert_array_equal((x + 1) / 2 * 2 - 1, x)


def test_another_process_draws_the_same() -> None:
    code = "from besttake.takes.draws import Draw; print(Draw(7, 'push', 1, 2, 3).normal((5,)).tobytes().hex())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert told == Draw(7, "push", 1, 2, 3).normal((5,)).tobytes().hex()
