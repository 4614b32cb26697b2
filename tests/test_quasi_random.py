"""Quasi-random points: torch's own, without torch."""

import numpy as np
import pytest
import torch

from conbo.quasi_random import sobol, sobol_points


@pytest.mark.parametrize("d", [1, 2, 7, 512, 513])
@pytest.mark.parametrize("seed", [0, 3, 2**31 - 1, 2**40 + 5])
@pytest.mark.parametrize("n", [1, 2, 77])
def test_points_are_those_of_torch_bit_for_bit(n: int, d: int, seed: int) -> None:
    engine = torch.quasirandom.SobolEngine(d, scramble=True, seed=seed)
    np.testing.assert_array_equal(sobol_points(n, d, seed), engine.draw(n, dtype=torch.float64).numpy())


def test_tensors_hold_the_same_points_whatever_the_default_type_is() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        np.testing.assert_array_equal(sobol(5, 3, seed=1).numpy(), sobol_points(5, 3, seed=1))
    finally:
        torch.set_default_dtype(before)
