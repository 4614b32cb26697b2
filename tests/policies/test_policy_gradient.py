"""Policy gradient on data where the answer is known."""

import pytest
import torch
from torch import Tensor

from conbo.errors import SettingError
from conbo.models.exact import condition
from conbo.policies.policy_gradient import PolicyGradient, QuadraticPolicy, baseline, quadratic
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import belief_on, finite_differences, generator, product_kernel, reals, tensor, uniform


def policy_of(space: Space, points: Tensor, rewards: Tensor) -> QuadraticPolicy:
    posterior = condition(product_kernel(space), 0.0, 1e-2, points, rewards)
    return PolicyGradient().build(belief_on(space, posterior, points, rewards), generator())


def test_a_quadratic_best_action_is_found() -> None:
    points = uniform(2000, 3)
    best = 0.4 + 0.2 * points[:, :1] ** 2 + torch.tensor([[0.0, 0.1]])
    policy = policy_of(reals(1, 2), points, -(points[:, 1:] - best).square().sum(-1))
    states = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)[:, None]
    expected = 0.4 + 0.2 * states**2 + torch.tensor([[0.0, 0.1]])
    # smoothing by 0.2 draws the maximum away from the nearer end
    torch.testing.assert_close(policy(states), expected, atol=0.05, rtol=0)


def test_categories_have_actions_of_their_own() -> None:
    space = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1), "n": Integer(1, 5)})
    unit = uniform(500, 3)
    points = torch.from_numpy(space.snap(unit.numpy()))
    best = torch.where(points[:, :1] < 0.5, tensor([0.3, 0.3]), tensor([0.7, 0.7]))
    policy = policy_of(space, points, -(points[:, 1:] - best).square().sum(-1))
    actions = policy(tensor([[0.25], [0.75]]))
    torch.testing.assert_close(actions, tensor([[0.3, 0.3], [0.7, 0.7]]), atol=0.1, rtol=0)


def test_the_mean_may_leave_the_cube_but_actions_do_not() -> None:
    points = uniform(500, 2)
    policy = policy_of(reals(1, 1), points, points[:, 1])
    assert float(policy(tensor([[0.5]]))) <= 1.0


def test_one_observation_is_repeated() -> None:
    policy = policy_of(reals(1, 1), tensor([[0.4, 0.6]]), tensor([3.0]))
    torch.testing.assert_close(policy(tensor([[0.1]])), tensor([[0.6]]), atol=1e-9, rtol=0)


def test_the_baseline_is_a_weighted_mean() -> None:
    rewards = tensor([1.0, 2.0, 5.0])
    torch.testing.assert_close(baseline(tensor([[0.0], [0.0], [100.0]]), rewards, 0.2), tensor([1.5, 1.5, 5.0]))


def test_quadratic_features() -> None:
    assert quadratic(tensor([[0.75, 0.0]])).tolist() == [[1.0, 0.25, -0.5, 0.0625, -0.125, 0.25]]


def test_the_expected_advantage_climbs_along_its_gradient() -> None:
    points = uniform(30, 2, seed=1)
    rewards = torch.sin(5 * points.sum(-1))
    features, actions = quadratic(points[:, :1]), points[:, 1:]
    advantage = rewards - baseline(points[:, :1], rewards, 0.2)
    found = PolicyGradient()._fitted(features, actions, advantage).flatten()[None]

    def value(flat: Tensor) -> Tensor:
        away = actions - features @ flat.unflatten(1, (3, 1))
        return (advantage * torch.exp(-away.square().sum(-1) / 0.08)).sum(-1)

    assert float(finite_differences(value, found).abs().amax()) < 1e-3  # a stationary point


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="`spread` must be positive, but got spread=0"):
        PolicyGradient(spread=0)
    with pytest.raises(SettingError, match="`starts` must be at least 1, but got starts=0"):
        PolicyGradient(starts=0)
