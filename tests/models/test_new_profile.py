"""A profile of a user's own is never taken for another one by the parts that know only the built-in ones."""

import pytest
import torch
from torch import Tensor

from conbo.errors import SettingError
from conbo.models import compiled
from conbo.models.action_functions import state_functions
from conbo.models.prior_draws import NystromFeatures
from conbo.models.profiles import MATERN52, PROFILES, Profile, matern52, profile_of, squared_exponential
from random_beliefs import belief_with, generator, points_in, posterior_of, product_kernel, reals


def rational_quadratic(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = 1 / (1 + squared_distance / 2)
    return value, value**2, 2 * value**3


OWN = Profile("rational-quadratic", rational_quadratic)


def test_it_climbs_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    space = reals(1, 2)
    kernel = product_kernel(space, 0.4, [0.3, 0.8], 1.7, OWN)
    posterior = posterior_of(belief_with(space, kernel))
    functions = state_functions(posterior, points_in(space, 4, seed=8)[:, :1])
    starts = kernel.actions.scaled(points_in(space, 4, seed=9)[:, 1:]).unflatten(0, (4, 1))
    found = functions.maximize(starts, torch.zeros(1, dtype=torch.float64), 5)
    monkeypatch.setattr(compiled, "AVAILABLE", False)
    assert torch.equal(found.actions, functions.maximize(starts, torch.zeros(1, dtype=torch.float64), 5).actions)


@pytest.mark.parametrize("profile", [OWN, Profile("matern52", rational_quadratic)], ids=["own name", "borrowed name"])
def test_it_is_not_built_in_whatever_its_name(profile: Profile) -> None:
    space = reals(1, 1)
    points = points_in(space, 6)
    kernel = product_kernel(space, 0.4, 0.3, 1.7, profile)
    apart = [(points[:, None, i] - points[:, i]) / lengthscale for i, lengthscale in ((0, 0.4), (1, 0.3))]
    expected = 1.7 * torch.stack([1 / (1 + r.square() / 2) for r in apart]).prod(0)

    assert not profile.built_in
    torch.testing.assert_close(kernel.covariance(kernel.scaled(points), kernel.scaled(points)), expected)
    assert posterior_of(belief_with(space, kernel)).page_record(space) is None


def test_the_built_in_ones_are_known_by_name() -> None:
    assert all(profile.built_in and profile_of(name) is profile for name, profile in PROFILES.items())
    assert profile_of(OWN) is OWN
    assert profile_of("matern52") is MATERN52
    assert not Profile("matern52", MATERN52.tables, unit=1.0).built_in  # its lengthscales mean something else
    with pytest.raises(SettingError, match="`profile` must be one of matern52, squared-exponential, but got 'cubic'"):
        profile_of("cubic")


@pytest.mark.parametrize(
    ("name", "unit"), [("", 1.0), ("auto", 1.0), ("own", 0.0), ("own", -1.0), ("own", float("nan"))]
)
def test_a_profile_needs_a_name_and_a_positive_unit(name: str, unit: float) -> None:
    with pytest.raises(SettingError, match="profile"):
        Profile(name, squared_exponential, unit)


def test_without_a_spectrum_there_are_no_frequencies() -> None:
    with pytest.raises(SettingError, match="the profile has a `spectrum`, but 'rational-quadratic' has none"):
        OWN.frequencies(1, 3, generator(0))


def test_without_a_spectrum_functions_are_drawn_by_the_kernel_itself() -> None:
    assert isinstance(product_kernel(reals(1, 1), profile=OWN).draw_prior(2, 16, generator()), NystromFeatures)


def test_a_value_may_be_computed_in_place_but_is_the_same() -> None:
    squares = torch.linspace(0, 9, 20, dtype=torch.float64)
    torch.testing.assert_close(MATERN52.value(squares.clone()), matern52(squares)[0], rtol=0, atol=1e-15)
