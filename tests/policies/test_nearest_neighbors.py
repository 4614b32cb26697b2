"""KNN on data where the answer is known."""

import pytest
import torch

from conbo.errors import SettingError
from conbo.models.exact import condition
from conbo.policies.nearest_neighbors import NearestNeighbors
from conbo.spaces import Categorical, Real, Space
from random_beliefs import belief_on, generator, product_kernel, reals, tensor


def policy_of(space: Space, points: list[list[float]], rewards: list[float], k: int):  # type: ignore[no-untyped-def]
    posterior = condition(product_kernel(space), 0.0, 1e-2, tensor(points), tensor(rewards))
    return NearestNeighbors(k).build(belief_on(space, posterior, tensor(points), tensor(rewards)), generator())


def test_it_is_the_best_observed_action_of_the_nearest_states() -> None:
    points = [[0.0, 0.1], [0.1, 0.2], [0.2, 0.3], [0.9, 0.4], [1.0, 0.5]]
    policy = policy_of(reals(1, 1), points, [1.0, 3.0, 2.0, 5.0, 4.0], k=2)
    assert policy(tensor([[0.0], [0.2], [1.0]])).flatten().tolist() == [0.2, 0.2, 0.4]


def test_fewer_observations_than_neighbors_are_all_looked_at() -> None:
    policy = policy_of(reals(1, 1), [[0.0, 0.1], [1.0, 0.2]], [1.0, 2.0], k=10)
    assert policy(tensor([[0.0], [0.7]])).flatten().tolist() == [0.2, 0.2]


def test_another_category_is_farther_than_any_number() -> None:
    space = Space(states={"s": Real(0, 1), "k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})
    policy = policy_of(space, [[0.9, 0.25, 0.1], [0.0, 0.75, 0.2]], [1.0, 2.0], k=1)
    assert float(policy(tensor([[0.0, 0.25]]))) == 0.1


def test_without_states_it_is_the_best_of_k() -> None:
    policy = policy_of(reals(0, 1), [[0.3], [0.6]], [2.0, 1.0], k=10)
    assert torch.equal(policy(torch.empty(3, 0, dtype=torch.float64)), tensor([[0.3]] * 3))


def test_k_is_checked() -> None:
    with pytest.raises(SettingError, match="`k` must be at least 1, but got k=0"):
        NearestNeighbors(0)
