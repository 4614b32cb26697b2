"""Thompson sampling: draws from the posterior, maximized."""

import numpy as np
import torch

from conbo.proposals.thompson import Thompson
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import belief_with, generator, points_in, product_kernel, reals, tensor, trend_kernel

MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0.1, 10, log=True), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)


def test_suggestions_are_valid_and_the_same_for_the_same_seed() -> None:
    for space in (MIXED, MIXED.with_states_as_actions(), reals(0, 2)):
        belief = belief_with(space, product_kernel(space))

        first, second = (Thompson(200).propose(belief, 4, generator(2)).points for _ in range(2))

        assert torch.equal(first, second)
        assert first.dtype == torch.float64
        np.testing.assert_allclose(space.snap(first.numpy()), first.numpy(), rtol=0, atol=1e-12)


def test_a_dictated_state_is_kept_exactly() -> None:
    belief = belief_with(MIXED, product_kernel(MIXED))
    state = points_in(MIXED, 1, seed=3)[0, :2]

    points = Thompson(200).propose(belief, 3, generator(), state).points

    assert torch.equal(points[:, :2], state.expand(3, -1))


def test_a_known_function_is_sampled_at_its_maximum() -> None:
    space = reals(0, 1)
    belief = belief_with(space, product_kernel(space, actions=0.3), n=60, noise=1e-6)
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
    best = belief.posterior.mean(grid).amax()

    points = Thompson(400).propose(belief, 8, generator()).points

    assert float((best - belief.posterior.mean(points)).amax()) < 1e-2


def test_an_action_is_suggested_as_often_as_it_is_likely_to_be_best() -> None:
    space = Space(states={"k": Categorical(["a"])}, actions={"c": Categorical([*"uvw"])})
    belief = belief_with(space, trend_kernel(space, 0.3), n=4, noise=0.3)
    points = tensor([[0.5, (i + 0.5) / 3] for i in range(3)])
    mean, covariance = belief.posterior.mean(points), belief.posterior.covariance(points, points)
    normal = torch.randn(100_000, 3, generator=generator(5), dtype=torch.float64)
    likely = torch.bincount((mean + normal @ torch.linalg.cholesky(covariance).mT).argmax(-1), minlength=3) / 1e5

    drawn = Thompson(60).propose(belief, 2000, generator()).points

    frequency = torch.bincount((drawn[:, 1] * 3).long(), minlength=3) / 2000
    torch.testing.assert_close(frequency, likely, rtol=0, atol=0.04)
