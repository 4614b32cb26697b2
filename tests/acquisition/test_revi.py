"""REVI is a weighted sum of discretized knowledge gradients."""

import pytest
import torch
from torch import Tensor

from conbo.acquisition.quadrature_states import ExactStates
from conbo.acquisition.revi import Revi, latin_hypercube
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.spaces import Categorical, Real, Space
from conbo.state_distributions import Triangular, Weights
from random_beliefs import (
    belief_with,
    finite_differences,
    generator,
    points_in,
    posterior_of,
    product_kernel,
    reals,
    trend_kernel,
)

CATEGORIES = Space(states={"k": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1)})
BELIEFS = {
    "continuous": belief_with(reals(1, 2), product_kernel(reals(1, 2)), n=20, noise=0.05, distribution=Triangular()),
    "finite": belief_with(
        CATEGORIES, trend_kernel(CATEGORIES), n=20, noise=0.05, distribution={"k": Weights({"a": 1, "b": 3})}
    ),
}


def expected(belief: Belief, point: Tensor, states: Tensor, weights: Tensor, actions: Tensor) -> Tensor:
    """Σ_i w_i (E max - max) with the expectation by the trapezoidal rule."""
    posterior = posterior_of(belief)
    z = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2) / density_norm(z)
    total = torch.zeros((), dtype=torch.float64)
    for state, weight in zip(states, weights, strict=True):
        grid = torch.cat([state.expand(len(actions), -1), actions], -1)
        mean, slope = posterior.mean(grid), posterior.look_ahead_slopes(point[None], grid)[0]
        best = (mean[:, None] + slope[:, None] * z).amax(0)
        total = total + weight * ((best * density).sum() - mean.amax())
    return total


def density_norm(z: Tensor) -> Tensor:
    return torch.exp(-(z**2) / 2).sum()


@pytest.mark.parametrize("belief", BELIEFS.values(), ids=BELIEFS)
def test_revi_is_the_weighted_sum_of_discretized_knowledge_gradients(belief: Belief) -> None:
    acquisition = Revi().build(belief, generator())
    rule, points = acquisition.rule, points_in(belief.space, 5, seed=4)
    assert isinstance(rule, ExactStates)
    actions = acquisition.value.pool.actions  # type: ignore[union-attr]
    sums = [expected(belief, point, rule.pool, rule.pool_weights, actions) for point in points]
    torch.testing.assert_close(acquisition(points), torch.stack(sums), rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(acquisition.screen(points), acquisition(points))


def test_the_discretization_grows_with_the_data() -> None:
    for n, size in ((20, 7), (50, 10)):  # ⌈√40⌉, ⌈√100⌉
        belief = belief_with(reals(1, 1), product_kernel(reals(1, 1)), n=n)
        acquisition = Revi().build(belief, generator())
        assert isinstance(acquisition.rule, ExactStates)
        assert acquisition.rule.pool.shape == (size, 1)
        assert acquisition.value.pool.actions.shape == (size, 1)  # type: ignore[union-attr]


def test_few_states_are_taken_with_their_probabilities() -> None:
    rule = Revi().build(BELIEFS["finite"], generator()).rule
    assert isinstance(rule, ExactStates)
    assert rule.pool_weights.tolist() == [0.25, 0.75]


def test_the_gradient_is_that_of_the_values() -> None:
    belief = BELIEFS["continuous"]
    acquisition, points = Revi().build(belief, generator()), 0.1 + 0.8 * points_in(belief.space, 5, seed=4)
    _, gradient = acquisition.local(points)(points, torch.arange(5))
    torch.testing.assert_close(gradient, finite_differences(acquisition, points), atol=1e-6, rtol=1e-4)


def test_a_latin_hypercube_has_one_point_in_every_slice() -> None:
    points = latin_hypercube(10, 3, generator())
    assert ((points * 10).long().sort(0).values == torch.arange(10)[:, None]).all()


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="`points_per_observation > 0` and `least >= 1` must hold, but got 0 and 16"):
        Revi(points_per_observation=0)
