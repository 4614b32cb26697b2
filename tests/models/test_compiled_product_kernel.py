"""The compiled loops over pairs of points against torch."""

import pytest
import torch
from torch import Tensor

from conbo.models import compiled, compiled_product_kernel
from conbo.models.kernels import ProductKernel
from conbo.models.profiles import MATERN52, SQUARED_EXPONENTIAL, Profile, squared_exponential
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import points_in, product_kernel, reals, uniform

MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
TWO = reals(1, 2)
MATERN = product_kernel(TWO, 0.4, [0.3, 0.8], 1.7)
SMOOTH = product_kernel(TWO, 0.4, [0.3, 0.8], 1.7, "squared-exponential")
KERNELS: dict[str, tuple[Space, ProductKernel]] = {
    "matern": (TWO, MATERN),
    "squared exponential": (TWO, SMOOTH),
    "one of each": (TWO, ProductKernel(MATERN.states, SMOOTH.actions, 0.6)),
    "no states": (reals(0, 2), product_kernel(reals(0, 2))),
    "mixed": (MIXED, product_kernel(MIXED, [0.5, 0.9], [0.4, 0.6, 1.1], 0.8)),
}


def assert_same(quick: Tensor, reference: Tensor) -> None:
    torch.testing.assert_close(quick, reference, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_covariances_are_those_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space, kernel = KERNELS[name]
    a, b = (kernel.scaled(points_in(space, n, seed)) for seed, n in ((1, 9), (2, 14)))

    quick = kernel.covariance(a, b)
    monkeypatch.setattr(compiled, "AVAILABLE", False)

    assert_same(quick, kernel.covariance(a, b))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("p", [1, 6])
def test_gradients_are_those_of_torch(name: str, p: int, monkeypatch: pytest.MonkeyPatch) -> None:
    space, kernel = KERNELS[name]
    here, shared = kernel.scaled(points_in(space, p, seed=1)), kernel.scaled(points_in(space, 8, seed=2))
    states, actions = kernel.scaled(points_in(space, p * 8, seed=3))
    own = states.unflatten(0, (p, 8)), actions.unflatten(0, (p, 8))
    weights = uniform(2, p, 8, seed=4) - 0.5
    cases = [(shared, weights[0]), (own, weights[0]), (shared, weights)]

    quick = [kernel.gradient(here, *case) for case in cases]
    monkeypatch.setattr(compiled, "AVAILABLE", False)

    for gradient, case in zip(quick, cases, strict=True):
        assert_same(gradient, kernel.gradient(here, *case))


def test_what_autograd_follows_and_other_profiles_are_left_to_torch() -> None:
    own = Profile("own", squared_exponential)
    points = uniform(3, 2)

    assert compiled_product_kernel.handles((MATERN52, SQUARED_EXPONENTIAL), points) == compiled.AVAILABLE
    assert not compiled_product_kernel.handles((MATERN52, MATERN52), points, uniform(3).requires_grad_(True))
    assert not compiled_product_kernel.handles((MATERN52, own), points)


def test_no_points_have_no_covariances() -> None:
    none, some = MATERN.scaled(points_in(TWO, 0)), MATERN.scaled(points_in(TWO, 4))

    assert MATERN.covariance(none, some).shape == (0, 4)
    assert MATERN.gradient(none, some, uniform(0, 4)).shape == (0, 3)
    assert MATERN.gradient(some, none, uniform(4, 0)).tolist() == torch.zeros(4, 3).tolist()
