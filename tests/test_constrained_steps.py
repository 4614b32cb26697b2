"""The best step within limits: singular problems beside ordinary ones."""

import numpy as np

from conbo.constrained_steps import constrained_steps

LINE = np.array([[1.0, 1.0]])  # t1 + t2 <= gap


def test_a_singular_problem_stops_no_other() -> None:
    regular, flat = np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    gradient, normals = np.array([[2.0, 4.0], [1.0, 0.0], [2.0, 4.0]]), np.stack([LINE] * 3)
    gaps, box = np.array([[9.0], [9.0], [1.0]]), np.full((3, 2), 5.0)
    steps = constrained_steps(np.stack([regular, flat, regular]), gradient, normals, gaps, -box, box)
    np.testing.assert_allclose(steps[0], [1, 1])
    np.testing.assert_allclose(steps[1], [1, 0])  # the shortest of all maxima
    np.testing.assert_allclose(steps[2], [1 / 3, 2 / 3], atol=1e-5)  # on the limit


def test_a_stiff_penalty_may_be_singular_up_to_rounding() -> None:
    curvature = np.array(
        [
            [1.4300325815718515e17, 5.947572935154577e16, 1.4469300418836208e17],
            [5.947572935154576e16, 2.477118954331448e16, 6.017779683676483e16],
            [1.4469300418836205e17, 6.017779683676483e16, 1.464027307437266e17],
        ]
    )
    gradient, normal = np.array([2573.9790464192597, 1657.2703467351776, 1196.5986612493698]), np.full((1, 3), 4 / 11)
    box = np.full((1, 3), 0.5)
    step = constrained_steps(curvature[None], gradient[None], normal[None], np.zeros((1, 1)), -box, box)
    assert bool((np.abs(step) <= 0.5).all())
