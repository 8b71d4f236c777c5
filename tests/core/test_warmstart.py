from __future__ import annotations

import numpy as np

from besttake.core.warmstart import warm_start


def test_warm_start_is_equation_6_and_alpha_zero_is_the_noise_itself():
    noise, chunk = np.array([[1.0, -2.0]], np.float32), np.array([[10.0, 10.0]], np.float32)
    np.testing.assert_allclose(warm_start(noise, 0.3, chunk), [[3.7, 1.6]], rtol=1e-6)
    np.testing.assert_array_equal(warm_start(noise, 0.3, None), np.float32(0.7) * noise)
    assert warm_start(noise, 0.0, chunk) is noise
    assert warm_start(noise, 0.3, chunk).dtype == np.float32
