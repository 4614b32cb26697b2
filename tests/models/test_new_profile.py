"""A profile of a user's own is never taken for another one by the parts that know only the built-in ones."""

import pytest
import torch
from torch import Tensor

from conbo.errors import SettingError
from conbo.models import compiled
from conbo.models.action_functions import state_functions
from conbo.models.pathwise import spectral_frequencies
from conbo.models.profiles import PROFILES
from random_beliefs import belief_with, generator, points_in, posterior_of, product_kernel, reals


def rational_quadratic(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value = 1 / (1 + squared_distance / 2)
    return value, value**2, 2 * value**3


@pytest.fixture(autouse=True)
def _profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "rational-quadratic", (rational_quadratic, 1.0))


def test_it_climbs_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    space = reals(1, 2)
    kernel = product_kernel(space, 0.4, [0.3, 0.8], 1.7, "rational-quadratic")
    posterior = posterior_of(belief_with(space, kernel))
    functions = state_functions(posterior, points_in(space, 4, seed=8)[:, :1])
    starts = kernel.actions.scaled(points_in(space, 4, seed=9)[:, 1:]).unflatten(0, (4, 1))
    found = functions.maximize(starts, torch.zeros(1, dtype=torch.float64), 5)
    monkeypatch.setattr(compiled, "AVAILABLE", False)
    assert torch.equal(found.actions, functions.maximize(starts, torch.zeros(1, dtype=torch.float64), 5).actions)


def test_its_spectrum_is_not_known() -> None:
    factor = product_kernel(reals(1, 1), profile="rational-quadratic").actions
    with pytest.raises(SettingError, match="it is not for 'rational-quadratic'"):
        spectral_frequencies(factor, 3, generator(0))
