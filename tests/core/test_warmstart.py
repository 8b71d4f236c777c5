from __future__ import annotations

import numpy as np

from besttake.core.warmstart import warm_start

EPS, CHUNK = np.array([[1.0, -2.0]], np.float32), np.array([[10.0, 10.0]], np.float32)


def test_noise_and_prior_are_two_dials_and_equation_6_is_one_setting_of_them() -> None:
    np.testing.assert_allclose(warm_start(EPS, 0.7, 0.3, CHUNK), [[3.7, 1.6]], rtol=1e-6)
    np.testing.assert_allclose(warm_start(EPS, 0.1, 0.2, CHUNK), [[2.1, 1.8]], rtol=1e-6)
    np.testing.assert_allclose(warm_start(EPS, 1, 0.2, CHUNK), [[3.0, 0.0]], rtol=1e-6)
    assert warm_start(EPS, 0.7, 0.3, CHUNK).dtype == np.float32


def test_without_a_prior_it_is_cooled_to_the_bit_and_with_all_the_noise_it_is_eps_itself() -> None:
    eps = np.random.default_rng(0).standard_normal((10, 4), np.float32)
    chunk = np.full((10, 4), 1e30, np.float32)
    for noise in (0.0, 0.1, 0.7):
        assert np.array_equal(warm_start(eps, noise, 0.0, chunk), warm_start(eps, noise))
        assert np.array_equal(warm_start(eps, noise), np.float32(noise) * eps)
    assert warm_start(eps, 1.0, 0.0, chunk) is eps
    assert warm_start(eps, 1.0, 0.3, None) is eps
