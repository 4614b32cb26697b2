"""MTS: the discretization of the supplement, and the point with the greatest improvement of a draw."""

from math import ceil

import pytest
import torch

from conbo.errors import SettingError
from conbo.proposals.multi_task_thompson import (
    MultiTaskThompson,
    best_of_nearest,
    discretization,
    distinct_argmax,
    joint_draws,
    pathwise_draws,
)
from conbo.search.action_candidates import action_candidates
from conbo.spaces import Categorical, Real, Space
from conbo.state_distributions import Weights
from random_beliefs import belief_with, generator, product_kernel, reals, tensor, trend_kernel

SPACE = reals(1, 1)
BELIEF = belief_with(SPACE, product_kernel(SPACE, actions=0.3), n=20)
CATEGORIES = Space(states={"k": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1)})
FINITE = belief_with(CATEGORIES, trend_kernel(CATEGORIES), n=20, distribution={"k": Weights({"a": 1, "c": 3})})


@pytest.mark.parametrize(("d_s", "d_x"), [(1, 1), (2, 6), (1, 8), (3, 1)])
def test_the_discretization_has_the_size_of_the_supplement(d_s: int, d_x: int) -> None:
    space = reals(d_s, d_x)
    points = discretization(belief_with(space, product_kernel(space)), 3000, generator())
    n_states = ceil(3000 ** (d_s / (d_s + d_x)))
    assert points.shape == (n_states, ceil(3000 / n_states), d_s + d_x)
    assert (points[:, :, :d_s] == points[:, :1, :d_s]).all()


def test_every_state_has_its_policy_s_action_and_the_best_near_ones() -> None:
    points = discretization(BELIEF, 3000, generator())
    states, actions = points[:, 0, :1], points[:, :, 1:]
    search = BELIEF.search(action_candidates(BELIEF, 256, generator(1)))
    torch.testing.assert_close(actions[:, 0], search.best(states).actions, atol=1e-4, rtol=0)
    assert float((actions[:, 1:40] - actions[:, :1]).abs().mean()) < 0.1  # neighbors
    for k, best in enumerate(best_of_nearest(BELIEF, states).unbind(1)):
        assert torch.equal(actions[:, 40 + k], best)


def test_the_best_of_the_nearest_states() -> None:
    apart = (BELIEF.observations.points[:, 0] - 0.3).abs()
    nearest = apart.argsort()[:10]
    best = nearest[BELIEF.observations.rewards[nearest].argsort(descending=True)[:4]]
    assert torch.equal(best_of_nearest(BELIEF, tensor([[0.3]]))[0], BELIEF.observations.points[best, 1:])


def test_few_states_are_all_there_unless_they_cannot_occur() -> None:
    points = discretization(FINITE, 300, generator())
    assert points[:, 0, 0].tolist() == pytest.approx([1 / 6, 5 / 6])
    assert points.shape == (2, 150, 2)


@pytest.mark.parametrize("draw", ["joint", "pathwise"])
def test_the_point_has_the_greatest_improvement_of_its_draw(draw: str) -> None:
    drawn = joint_draws if draw == "joint" else pathwise_draws
    for seed in range(5):
        (chosen,) = MultiTaskThompson(points=400, draw=draw).propose(BELIEF, 1, generator(seed)).points
        same = generator(seed)
        points = discretization(BELIEF, 400, same)
        values = drawn(BELIEF, points.flatten(0, 1), 1, same).reshape(points.shape[:2])
        improvement = values - values[:, :1]
        where = (points == chosen).all(-1)
        assert float(improvement[where].amax()) == float(improvement.amax()) > 0


def test_weights_make_likely_states_more_interesting() -> None:
    plain = [float(MultiTaskThompson(100).propose(FINITE, 1, generator(k)).points[0, 0]) for k in range(40)]
    weighted = [
        float(MultiTaskThompson(100, weighted=True).propose(FINITE, 1, generator(k)).points[0, 0]) for k in range(40)
    ]
    assert sum(s > 0.5 for s in weighted) > sum(s > 0.5 for s in plain)


def test_both_kinds_of_draws_have_the_posterior_s_moments() -> None:
    points = discretization(BELIEF, 30, generator()).flatten(0, 1)
    for drawn in (joint_draws, pathwise_draws):
        values = drawn(BELIEF, points, 4000, generator(1))
        torch.testing.assert_close(values.mean(1), BELIEF.posterior.mean(points), atol=0.05, rtol=0)
        torch.testing.assert_close(torch.cov(values), BELIEF.posterior.covariance(points, points), atol=0.1, rtol=0)


def test_a_point_is_taken_once() -> None:
    points, values = (
        tensor([[0.1], [0.2], [0.1]]),
        tensor([[3.0, 3.0, 3.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]),
    )
    assert distinct_argmax(points, values).flatten().tolist() == [
        0.1,
        0.2,
        0.2,
    ]  # the last for want of another


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="`points` must be at least 1, but got points=0"):
        MultiTaskThompson(0)
    with pytest.raises(SettingError, match="`draw` must be 'joint' or 'pathwise', but got 'other'"):
        MultiTaskThompson(draw="other")
