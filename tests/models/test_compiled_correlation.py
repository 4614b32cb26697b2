"""Compiled correlations, their sums and rough gains against torch."""

import pytest
import torch

from conbo.acquisition.expected_max import expected_gain, expected_max
from conbo.models import compiled
from conbo.models.exact_gains import lines_at
from conbo.models.exact_rough_gains import RoughGains
from conbo.models.exact_search import ActionPool
from conbo.models.kernels import Kernel
from conbo.models.main_effects import MainEffectsKernel
from random_beliefs import belief_with, posterior_of, product_kernel, reals, uniform

SPACE = reals(1, 2)
MATERN = product_kernel(SPACE, 0.4, [0.3, 0.8], 1.7)
SMOOTH = product_kernel(SPACE, 0.4, [0.3, 0.8], 1.7, "squared-exponential")
KERNELS: dict[str, Kernel] = {
    "matern": MATERN,
    "squared exponential": SMOOTH,
    "main effects": MainEffectsKernel(MATERN, MATERN.states, 0.5, 0.3),
}


@pytest.mark.parametrize("name", ["matern", "squared exponential"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 2), (5, 2)),
        ((40, 2), (2, 2)),
        ((0, 2), (0, 2)),
        ((3, 0), (4, 0)),
        ((4, 3, 2), (6, 2)),
        ((4, 9, 2), (4, 1, 2)),
        ((2, 3, 5, 2), (2, 3, 4, 2)),
    ],
)
def test_correlations_are_those_of_torch(
    name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    factor = KERNELS[name].actions
    a, b = (3 * uniform(*shape, seed=seed) for seed, shape in enumerate(shapes))

    quick = factor.correlation(a, b)
    monkeypatch.setattr(compiled, "AVAILABLE", False)

    torch.testing.assert_close(quick, factor.correlation(a, b), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_gradients_of_lines_are_those_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = posterior_of(belief_with(SPACE, KERNELS[name]))
    case = uniform(3, 3, seed=1), uniform(3, 4, 1, seed=2), uniform(3, 4, 5, 2, seed=3)
    pull = uniform(3, 4, 5, seed=4) - 0.5

    quick = lines_at(posterior, *case).gradient(pull)
    monkeypatch.setattr(compiled, "AVAILABLE", False)

    torch.testing.assert_close(quick, lines_at(posterior, *case).gradient(pull), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_rough_gains_are_those_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = posterior_of(belief_with(SPACE, KERNELS[name]))
    states, candidates = uniform(7, 1, seed=1), uniform(9, 3, seed=2)
    best = ActionPool(posterior, SPACE, uniform(20, 2, seed=3)).best(states, starts=3)

    quick = RoughGains(posterior, None, states, best, expected_gain)(candidates)
    monkeypatch.setattr(compiled, "AVAILABLE", False)

    reference = RoughGains(posterior, None, states, best, expected_gain)(candidates)
    assert float(reference.amax()) > 0
    torch.testing.assert_close(quick, reference, rtol=1e-7, atol=1e-10)


def test_the_gain_alone_is_that_of_the_whole_expected_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    mean, slope = uniform(6, 4, 5), 2 * uniform(6, 4, 5, seed=1) - 1
    for available in (compiled.AVAILABLE, False):
        monkeypatch.setattr(compiled, "AVAILABLE", available)
        torch.testing.assert_close(expected_gain(mean, slope), expected_max(mean, slope).gain, rtol=0, atol=0)
