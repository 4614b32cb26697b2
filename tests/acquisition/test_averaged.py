"""ConBO under an average of models: the weighted sum of what its members expect, for the price of about one of them."""

from dataclasses import replace

import pytest
import torch

from conbo.acquisition.integral_over_states import AveragedAcquisition, ConBO, ConditionalAcquisition
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG
from conbo.acquisition.quadrature_states import StratifiedStates
from conbo.belief import Belief
from conbo.models.mixture import Mixture
from conbo.spaces import Integer, Real, Space
from random_beliefs import belief_with, finite_differences, generator, points_in, product_kernel, reals, tensor

FEW_STATES = Space(states={"s": Integer(1, 4)}, actions={"x": Real(0, 1)})


def averaged(space: Space, weights: list[float]) -> tuple[Belief, list[Belief]]:
    """A belief in an average of models whose lengthscales differ, and the beliefs in each of them."""
    kernels = [product_kernel(space, 0.6 / (1 + place), 0.2 * (1 + place)) for place in range(len(weights))]
    members = [belief_with(space, kernel, n=10, noise=0.01) for kernel in kernels]
    same = [replace(one, observations=members[0].observations) for one in members]
    posterior = Mixture(tuple(one.posterior for one in members), tensor(weights))
    return replace(members[0], posterior=posterior), same


def test_the_values_are_the_weighted_sum_of_the_members() -> None:
    belief, members = averaged(FEW_STATES, [0.7, 0.3])
    points, recipe = points_in(FEW_STATES, 5), ConBO(DiscreteKG(20))  # a fixed set of actions in each of four states
    function = recipe.build(belief, generator())
    alone = [recipe.build(member, generator()) for member in members]

    assert isinstance(function, AveragedAcquisition)
    expected = 0.7 * alone[0](points) + 0.3 * alone[1](points)
    torch.testing.assert_close(function(points), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(function.screen(points), expected, rtol=1e-9, atol=0)


def test_the_gradient_is_that_of_the_values() -> None:
    belief, _ = averaged(reals(1, 1), [0.6, 0.4])
    starts = points_in(reals(1, 1), 4, seed=2)
    local, rows = ConBO(DiscreteKG(20)).build(belief, generator()).local(starts), torch.arange(4)
    _, gradient = local(starts, rows)
    torch.testing.assert_close(gradient, finite_differences(lambda x: local(x, rows)[0], starts), rtol=1e-4, atol=1e-7)


def test_states_are_shared_out_by_weight() -> None:
    belief, _ = averaged(reals(1, 1), [0.7, 0.2, 0.1])
    function = ConBO(HybridKG(), StratifiedStates(20)).build(belief, generator())
    assert isinstance(function, AveragedAcquisition)
    points = points_in(reals(1, 1), 3)
    assert [part.states_of(points).states.shape[1] for part in function.parts] == [14, 5, 5]


def test_a_share_of_the_states_gives_about_the_same_integral() -> None:
    """Both members are the same model, so the average is that model, with fewer states for each half."""
    belief, (alone, _) = averaged(reals(2, 2), [0.5, 0.5])
    twice = replace(belief, posterior=Mixture((alone.posterior, alone.posterior), tensor([0.5, 0.5])))
    points = points_in(reals(2, 2), 8, seed=1)
    dense = ConBO(HybridKG(), StratifiedStates(128)).build(alone, generator())(points)
    values = ConBO(HybridKG()).build(twice, generator(1))(points)
    error = (values - dense) / dense.amax()
    assert float(error.square().mean().sqrt()) < 0.1


@pytest.mark.parametrize(
    ("weights", "share", "kept"),
    [([0.7, 0.3], 0.9, [0.7, 0.3]), ([0.7, 0.2, 0.1], 0.85, [7 / 9, 2 / 9]), ([0.95, 0.05], 0.9, [1.0])],
)
def test_the_most_probable_members_make_up_a_share_of_the_weight(
    weights: list[float], share: float, kept: list[float]
) -> None:
    belief, members = averaged(reals(1, 1), weights)
    posterior = belief.of_most_probable(share).posterior
    found = posterior.weights.tolist() if isinstance(posterior, Mixture) else [1.0]
    assert found == pytest.approx(kept)
    assert belief.of_most_probable(0).posterior is members[0].posterior
    assert members[0].of_most_probable(share) is members[0]


def test_a_single_model_is_no_average() -> None:
    _, (alone, _) = averaged(reals(1, 1), [0.5, 0.5])
    assert isinstance(ConBO(HybridKG()).build(alone, generator()), ConditionalAcquisition)
