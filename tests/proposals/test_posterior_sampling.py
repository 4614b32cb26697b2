"""PS-BAX: the most uncertain point of a drawn policy."""

from dataclasses import replace

import pytest
import torch

from conbo.errors import SettingError
from conbo.proposals.posterior_sampling import PosteriorSampling, new_points, policy_states
from conbo.search.action_candidates import action_candidates
from conbo.search.path_peaks import path_peaks
from conbo.spaces import Integer, Real, Space
from random_beliefs import belief_with, generator, posterior_of, product_kernel, reals, tensor

SPACE = reals(1, 1)
BELIEF = belief_with(SPACE, product_kernel(SPACE, actions=0.3), n=12)


def test_it_is_the_most_uncertain_point_of_the_drawn_policy() -> None:
    chosen = PosteriorSampling(states=32).propose(BELIEF, 2, generator(5)).points
    same, posterior = generator(5), posterior_of(BELIEF)
    states = policy_states(BELIEF, 32, same)
    paths = BELIEF.draw_paths(6, same)
    actions = path_peaks(BELIEF, paths, action_candidates(BELIEF, 64, same), states, 10)
    for k in range(2):
        policy = torch.cat([states, actions[:, k]], -1)
        assert torch.equal(chosen[k], policy[posterior.variance(policy).argmax()])


def test_few_states_are_all_asked() -> None:
    space = Space(states={"m": Integer(1, 3)}, actions={"x": Real(0, 1)})
    assert len(policy_states(belief_with(space, product_kernel(space)), 128, generator())) == 3


def test_points_are_neither_awaited_nor_repeated() -> None:
    belief = replace(BELIEF, observations=BELIEF.observations.with_pending(tensor([[0.0, 0.0]])))
    first, second = tensor([[0.0, 0.0], [0.1, 0.1]]), tensor([[0.1, 0.1]])
    spare = tensor([[0.5, 0.5], [0.6, 0.6]])
    expected = tensor([[0.1, 0.1], [0.5, 0.5], [0.6, 0.6]])
    assert torch.equal(new_points(belief, [first, second], spare, 3), expected)
    assert len(new_points(belief, [second], spare[:1].repeat(4, 1), 4)) == 4  # also where fewer points are left


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="`states` must be at least 1, but got states=0"):
        PosteriorSampling(states=0)
