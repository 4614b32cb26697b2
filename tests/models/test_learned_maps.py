"""Output warping whose parameters are learned together with the hyperparameters."""

from collections.abc import Callable
from dataclasses import replace
from math import log

import pytest
import torch
from torch import Tensor

from conbo.belief import fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.learned_maps import learned_maps
from conbo.models.log_posterior import LogPosterior
from conbo.observations import Observations
from conbo.policies.policy import Policy
from random_beliefs import belief_with, product_kernel, reals, tensor, uniform

SPACE = reals(1, 1)


def test_learned_maps_are_standardized_and_weighed_by_their_slopes() -> None:
    rewards = -uniform(30, 1, seed=1)[:, 0].exp().square()
    maps = learned_maps(rewards)
    assert maps is not None
    parameters = tensor([[log(1e-4), 0.2], [0.0, 1e-3], [1.0, 1.0]])
    values, weights = maps.values(parameters)
    for row, mapped, weight in zip(parameters, values, weights, strict=True):
        output, t = maps.output(row), float(row[0].exp())
        torch.testing.assert_close(output.values(rewards, None)[0], mapped, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(maps.parameters(output), row)
        prior = 2 * log(t / (1 + t))
        assert float(weight) == pytest.approx(float(output.log_slope(rewards).sum()) + prior)
        assert float(mapped.mean()) == pytest.approx(0.0, abs=1e-9)
        assert float(mapped.std()) == pytest.approx(1.0)
    assert learned_maps(torch.ones(4)) is None


def test_a_map_keeps_its_ceiling_when_rewards_are_added_and_change_the_units() -> None:
    few = standard(-uniform(20, 1, seed=1)[:, 0].exp().square())
    more = standard(torch.cat([few, tensor([float(few.max()) + 0.01, -80.0])]))  # a better reward, and an awful one
    maps, later = learned_maps(few), learned_maps(more)
    assert maps is not None
    assert later is not None
    output = maps.output(tensor([log(0.3), 0.2]))
    scale, shift = torch.std_mean(more[:20])
    moved = output.in_other_units(float(shift), float(scale))
    torch.testing.assert_close(moved.values(more[:20], None)[0], output.values(few, None)[0], rtol=1e-9, atol=1e-9)
    again = later.output(later.parameters(moved))
    assert again.pivot + again.width == pytest.approx(moved.pivot + moved.width)
    passed = later.parameters(replace(moved, pivot=moved.pivot - 1))  # the best reward is above this ceiling
    assert float(passed[0]) == pytest.approx(log(0.3), abs=0.1)


def standard(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean()) / rewards.std()


def test_the_gradient_in_the_parameters_of_a_map_is_that_of_autograd() -> None:
    maps = learned_maps(-uniform(9, 1, seed=1)[:, 0].exp())
    assert maps is not None
    parameters, in_values = tensor([[-7.0, 0.2], [0.5, 1e-3], [1.0, 1.0]]).requires_grad_(), uniform(3, 9, seed=2)
    values, weights = maps.values(parameters)
    (wanted,) = torch.autograd.grad((values * in_values).sum() + weights.sum(), parameters)
    torch.testing.assert_close(maps.gradients(parameters.detach(), in_values), wanted, rtol=1e-7, atol=1e-9)


def test_density_of_mapped_rewards_has_the_gradient_that_a_search_uses() -> None:
    told = belief_with(SPACE, product_kernel(SPACE, 0.4, 0.3), n=12).observations
    target = LogPosterior(GaussianProcess().structures(SPACE).plain[0], told.points, told.rewards, "moderate")
    parameters, rewards = target.prior.starts()[:2], torch.stack([told.rewards, told.rewards**3])
    value, in_parameters, in_rewards = target.with_rewards(parameters, rewards)
    torch.testing.assert_close(value[:1], target(parameters[:1])[0])
    torch.testing.assert_close(in_parameters[:1], target(parameters[:1])[1])
    step = 1e-5 * torch.eye(12, dtype=torch.float64)[3]
    higher, lower = (target.with_rewards(parameters, rewards + sign * step)[0] for sign in (1, -1))
    torch.testing.assert_close(in_rewards[:, 3], (higher - lower) / 2e-5, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("distort", [lambda y: -(-y).exp(), lambda y: y**3], ids=["exponential", "cube"])
def test_a_distortion_of_smooth_rewards_is_found_and_undone(distort: Callable[[Tensor], Tensor]) -> None:
    points = uniform(40, 2, seed=2)
    smooth = -0.3 - 5 * (points[:, 1] - 0.3 - 0.4 * points[:, 0]).square() - torch.sin(3 * points[:, 0])
    belief = fit_belief(SPACE, bind(None, SPACE), Observations(points, distort(smooth), points[:0]), GaussianProcess())
    policy = Policy(replace(belief, average=None))
    for level in (0.1, 0.5, 0.9):
        assert float(policy({"s0": level})["x0"]) == pytest.approx(0.3 + 0.4 * level, abs=0.002)
