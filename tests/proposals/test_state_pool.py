"""PMTO: the order of states in a round, the state that joins the pool, and the optimistic action."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.exact import condition
from conbo.observations import Observations
from conbo.proposals.state_pool import StatePool, next_state, numbered, uncertainty
from conbo.spaces import Categorical, Real, Space
from random_beliefs import belief_with, generator, posterior_of, product_kernel, reals, tensor

SPACE = reals(1, 1)


def belief_after(points: list[list[float]], rewards: list[float], space: Space = SPACE) -> Belief:
    """A belief after these rewards at points with one state and one action."""
    belief = belief_with(space, product_kernel(space))
    told = Observations(tensor(points), tensor(rewards), tensor(points)[:0])
    posterior = condition(posterior_of(belief).kernel, 0.0, 0.01, told.points, told.rewards)
    return replace(belief, observations=told, posterior=posterior)


def test_states_are_numbered_in_the_order_of_their_first_visits() -> None:
    pool, visited = numbered(tensor([[0.7], [0.2], [0.7 + 1e-15], [0.9], [0.2]]))
    assert pool.tolist() == [[0.7], [0.2], [0.9]]
    assert visited.tolist() == [0, 1, 0, 2, 1]


def test_a_round_goes_from_the_latest_state_to_the_earliest_and_then_adds_one() -> None:
    belief = belief_after([[0.2, 0.5], [0.8, 0.4], [0.5, 0.1]], [0.0, 1.0, 0.5])
    states = StatePool().propose(belief, 7, generator()).points[:, 0]
    assert states[:2].tolist() == [0.8, 0.2]  # 0.5 was evaluated when it joined
    added = float(states[2])
    assert added not in (0.2, 0.5, 0.8)
    assert states[3:6].tolist() == [0.5, 0.8, 0.2]
    assert float(states[6]) not in (0.2, 0.5, 0.8, added)


def test_the_new_state_is_the_one_whose_best_action_is_least_certain() -> None:
    states = torch.linspace(0, 0.3, 7, dtype=torch.float64).tolist()
    belief = belief_after([[s, 0.2 + s] for s in states], [1.0] * 7)
    candidates = torch.linspace(0, 1, 21, dtype=torch.float64)[:, None]
    spread = uncertainty(belief, candidates)
    assert int(spread.argmax()) == 20
    assert float(spread[3]) < 0.05 * float(spread[20])
    pending = tensor([[s, 0.5] for s in states])  # every state of the pool is visited in this round
    waiting = replace(belief, observations=belief.observations.with_pending(pending))
    assert float(next_state(waiting, generator())) > 0.95


def test_the_task_model_learns_from_the_best_action_of_each_state() -> None:
    places = torch.linspace(0, 1, 8, dtype=torch.float64).tolist()
    good = [[s, 0.5] for s in places]
    scattered = [[s, a] for s, a in zip(places, (0.9, 0.1, 0.6, 0.2, 0.8, 0.3, 0.7, 0.0), strict=True)]
    candidates = torch.linspace(0, 1, 11, dtype=torch.float64)[:, None]
    smooth = belief_after([*good, *scattered], [1.0] * 8 + [0.0] * 8)
    rough = belief_after([*good, *scattered], [0.0] * 8 + [1.0] * 8)
    only = belief_after(scattered, [1.0] * 8)
    torch.testing.assert_close(uncertainty(rough, candidates), uncertainty(only, candidates))
    assert not torch.allclose(uncertainty(smooth, candidates), uncertainty(only, candidates))


@pytest.mark.parametrize("beta", [0.5, 3.0])
def test_the_action_has_the_highest_upper_confidence_bound_of_its_state(beta: float) -> None:
    belief = belief_with(SPACE, product_kernel(SPACE), n=9, noise=0.01)
    point = StatePool(beta).propose(belief, 1, generator(), tensor([0.3])).points

    def bound(actions: Tensor) -> Tensor:
        points = torch.cat([torch.full_like(actions, 0.3), actions], -1)
        return belief.posterior.mean(points) + beta * belief.posterior.variance(points).sqrt()

    best = bound(torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]).amax()
    assert point[0, 0] == 0.3
    assert float(bound(point[:, 1:])) == pytest.approx(float(best), abs=1e-5)


def test_if_all_of_finitely_many_states_are_in_the_pool_the_least_evaluated_comes_next() -> None:
    space = Space(states={"k": Categorical(["a", "b", "c"])}, actions={"x": Real(0, 1)})
    a, b, c = 1 / 6, 0.5, 5 / 6
    belief = belief_after([[a, 0.1], [b, 0.2], [c, 0.3], [b, 0.4], [a, 0.5], [c, 0.6]], [0.0] * 6, space)
    states = StatePool().propose(belief, 4, generator()).points[:, 0]
    assert sorted(states[:3].tolist()) == pytest.approx([a, b, c])
    new = belief_after([[a, 0.1], [b, 0.2], [a, 0.3]], [0.0] * 3, space)
    assert float(next_state(new, generator())) == pytest.approx(c)


def test_beta_must_be_positive() -> None:
    with pytest.raises(SettingError, match="`beta` must be positive, but got beta=0"):
        StatePool(0)
