"""Which actions are likely to be the best of a state."""

import pytest
import torch

from conbo.models.exact import condition
from conbo.search.likely_peaks import every_action, joint_moments, likely_peaks
from conbo.spaces import Categorical, Integer, Space
from random_beliefs import belief_with, generator, posterior_of, product_kernel, reals, tensor, uniform

NORMALS = torch.randn(41, 2000, generator=generator(), dtype=torch.float64)
POOL = torch.linspace(0, 1, 41, dtype=torch.float64)[:, None]


def test_few_actions_are_all_looked_at() -> None:
    space = Space(actions={"n": Integer(1, 3), "c": Categorical(["u", "v"])})
    belief = belief_with(space, product_kernel(space))
    every = every_action(belief, 6)
    assert every is not None
    assert len(torch.unique(every, dim=0)) == 6
    assert every_action(belief, 5) is None
    assert every_action(belief_with(reals(0, 1), product_kernel(reals(0, 1))), 1000) is None


def test_moments_are_those_of_the_posterior() -> None:
    posterior = posterior_of(belief_with(reals(1, 2), product_kernel(reals(1, 2)), n=12))
    states, actions = uniform(3, 1, seed=1), uniform(3, 5, 2, seed=2)
    mean, covariance = joint_moments(posterior, states, actions)
    for k in range(3):
        points = torch.cat([states[k].expand(5, -1), actions[k]], -1)
        torch.testing.assert_close(mean[k], posterior.mean(points))
        torch.testing.assert_close(covariance[k], posterior.covariance(points, points))


def test_a_rare_peak_is_found() -> None:
    """Rewards are known well near 0.2 and fall off beyond 0.5, but nobody has looked at the far end."""
    space = reals(1, 1)
    points = tensor([[0.5, x] for x in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)])
    rewards = tensor([0.0, 0.8, 1.0, 0.8, 0.0, -1.0, -1.5])
    posterior = condition(product_kernel(space, 0.5, 0.2), 0.0, 1e-4, points, rewards)
    likely = likely_peaks(posterior, POOL, tensor([[0.5]]), NORMALS, 12)[0, :, 0]
    assert abs(float(likely[0]) - 0.2) < 0.03  # the most likely one comes first
    assert float(likely.amax()) > 0.8
    assert not ((likely > 0.35) & (likely < 0.65)).any()


def test_fillers_are_those_that_come_closest() -> None:
    space = reals(1, 1)
    points = torch.cat([torch.full_like(POOL, 0.5), POOL], -1)
    posterior = condition(product_kernel(space), 0.0, 1e-8, points, -(POOL[:, 0] - 0.5).abs())
    likely = likely_peaks(posterior, POOL, tensor([[0.5]]), NORMALS, 5)[0, :, 0]
    assert sorted(likely.tolist()) == pytest.approx([0.45, 0.475, 0.5, 0.525, 0.55])
    assert likely_peaks(posterior, POOL, tensor([[0.5]]), NORMALS, 99).shape == (1, 41, 1)
