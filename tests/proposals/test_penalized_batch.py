"""Batches: the penalty's formula, and points that keep away from each other and from pending ones."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.belief import Belief
from conbo.proposals.maximizer import Maximizer
from conbo.proposals.penalized_batch import DISTINCT, penalized_batch, penalty
from conbo.spaces import Categorical, Real, Space
from random_beliefs import (
    belief_with,
    generator,
    points_in,
    posterior_of,
    product_kernel,
    reals,
    tensor,
    trend_kernel,
    uniform,
)

CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1)})


def belief_over(d_s: int = 1, d_x: int = 1) -> Belief:
    space = reals(d_s, d_x)
    return belief_with(space, product_kernel(space, 0.3, 0.3, 2.5))


def check_apart(belief: Belief, batch: torch.Tensor) -> None:
    others = torch.cat([batch, belief.observations.pending])
    between = penalty(belief, batch, others) + torch.eye(len(batch), len(others), dtype=torch.float64)
    assert float(between.amin()) >= DISTINCT - 1e-12


def test_the_penalty_is_one_minus_the_prior_correlation() -> None:
    belief = belief_over(1, 2)
    a, b = points_in(belief.space, 5, seed=1), points_in(belief.space, 4, seed=2)
    kernel = posterior_of(belief).kernel
    covariance = kernel.covariance(kernel.scaled(a), kernel.scaled(b))

    torch.testing.assert_close(penalty(belief, a, b), 1 - covariance / 2.5)
    torch.testing.assert_close(penalty(belief, a, a).diagonal(), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-9)


def test_the_penalty_of_categories_follows_the_trend() -> None:
    belief = belief_with(CATEGORIES, trend_kernel(CATEGORIES, 0.3, (1.0, 0.4, 0.2)))

    between = penalty(belief, tensor([[1 / 6, 0.5], [0.5, 0.5]]), tensor([[1 / 6, 0.5]]))

    torch.testing.assert_close(between[:, 0], tensor([0.0, 1 - 1.0 / 1.6]), rtol=0, atol=1e-12)


def test_a_batch_starts_with_the_best_and_goes_on_with_what_is_good_and_far() -> None:
    belief = belief_over()
    points = tensor([[0.5, 0.5], [0.51, 0.5], [0.5, 0.9], [0.1, 0.1]])
    values = tensor([1.0, 0.99, 0.5, 0.2])

    batch = penalized_batch(belief, points, values, 3)

    assert torch.equal(batch, points[[0, 2, 3]])
    assert torch.equal(penalized_batch(belief, points, values, 1), points[:1])


def test_each_choice_maximizes_the_penalized_value() -> None:
    belief = belief_over()
    points, values = points_in(belief.space, 60, seed=3), uniform(60, seed=4)

    batch = penalized_batch(belief, points, values, 5)

    for k in range(1, 5):
        between = penalty(belief, points, batch[:k])
        score = torch.where((between >= DISTINCT).all(-1), values * between.prod(-1), -1.0)
        assert torch.equal(batch[k], points[int(score.argmax())])


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 5))
def test_points_of_a_batch_are_apart_from_each_other_and_from_pending_ones(seed: int, n: int, pending: int) -> None:
    belief = belief_over(1, 2)
    waiting = points_in(belief.space, pending, seed=seed + 1)
    belief = replace(belief, observations=belief.observations.with_pending(waiting))
    # the pending points are among those to choose from, and the best
    points = torch.cat([waiting, points_in(belief.space, 300, seed=seed)])
    values = torch.cat([torch.full((pending,), 2.0, dtype=torch.float64), uniform(300, seed=seed)])

    batch = penalized_batch(belief, points, values, n)

    assert batch.shape == (n, 3)
    check_apart(belief, batch)


def test_where_all_points_are_alike_the_farthest_are_taken() -> None:
    belief = belief_over()
    points = 0.5 + 1e-4 * uniform(20, 2, seed=1)

    batch = penalized_batch(belief, points, uniform(20, seed=2), 4)

    assert batch.shape == (4, 2)
    assert torch.equal(batch[1], points[int(penalty(belief, points, batch[:1])[:, 0].argmax())])


@pytest.mark.parametrize("n", [2, 8])
def test_suggested_batches_are_apart_and_start_with_the_single_suggestion(n: int) -> None:
    belief = belief_over(1, 2)
    belief = replace(belief, observations=belief.observations.with_pending(points_in(belief.space, 2, seed=9)))
    proposal = Maximizer(ConBO(HybridKG()))

    batch = proposal.propose(belief, n, generator()).points

    check_apart(belief, batch)
    assert torch.equal(batch[:1], proposal.propose(belief, 1, generator()).points)


def test_a_pending_suggestion_is_not_suggested_again() -> None:
    belief = belief_over()
    proposal = Maximizer(ConBO(HybridKG()))
    first = proposal.propose(belief, 1, generator()).points

    waiting = replace(belief, observations=belief.observations.with_pending(first))

    second = proposal.propose(waiting, 1, generator()).points
    assert float(penalty(belief, second, first)) >= DISTINCT
