"""One action for all states."""

import torch

from conbo.models.exact import condition
from conbo.policies.single_action import SingleAction, best_observed, reference_state
from conbo.spaces import Categorical, Real, Space
from conbo.state_distributions import Normal, Weights
from random_beliefs import belief_on, generator, product_kernel, reals, tensor

SPACE = Space(states={"k": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1)})
POINTS = tensor([[1 / 6, 0.2], [1 / 6, 0.5], [0.5, 0.9]])


def test_every_state_gets_the_best_action_of_the_first() -> None:
    rewards = tensor([1.0, 2.0, 9.0])
    posterior = condition(product_kernel(SPACE), 0.0, 1e-2, POINTS, rewards)
    policy = SingleAction().build(belief_on(SPACE, posterior, POINTS, rewards), generator())
    assert policy(tensor([[1 / 6], [0.5], [5 / 6]])).flatten().tolist() == [0.5] * 3


def test_where_nothing_was_observed_all_actions_are_compared() -> None:
    rewards = tensor([1.0, 2.0, 9.0])
    posterior = condition(product_kernel(SPACE), 0.0, 1e-2, POINTS, rewards)
    action, mean = best_observed(belief_on(SPACE, posterior, POINTS, rewards), tensor([5 / 6]))
    means = posterior.mean(torch.cat([tensor([[5 / 6]] * 3), POINTS[:, 1:]], -1))
    assert (float(action), mean) == (0.9, float(means[2]))


def test_the_reference_state_is_the_first_or_the_middle() -> None:
    def state(space: Space, distribution: object = None) -> float:
        points = POINTS if space is SPACE else POINTS.clone()
        posterior = condition(product_kernel(space), 0.0, 1e-2, points, points[:, 0])
        return float(reference_state(belief_on(space, posterior, points, points[:, 0], distribution)))

    assert state(SPACE) == 1 / 6
    assert state(SPACE, {"k": Weights({"b": 1, "c": 3})}) == 0.5
    assert state(reals(1, 1)) == 0.5
    assert abs(state(reals(1, 1), {"s0": Normal(0.3, 0.01)}) - 0.3) < 1e-9
