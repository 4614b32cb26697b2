"""Suggestions: valid in every space, as good as a dense grid's best, sensible where nothing is gained."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from conbo.acquisition.acquisition_function import AcquisitionRecipe
from conbo.acquisition.improvement import ExpectedImprovement
from conbo.acquisition.integral_over_states import ConBO, ConditionalAcquisition
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG, MonteCarloKG
from conbo.acquisition.quadrature_states import GaussianStates, StratifiedStates
from conbo.ascent import BatchedFunction
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.proposals import Proposal
from conbo.proposals.maximizer import (
    Maximizer,
    StochasticMaximizer,
    crossed,
    screening_points,
    weighted_variance,
)
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.state_distributions import Triangular
from random_beliefs import belief_with, generator, points_in, product_kernel, reals, tensor, trend_kernel

MIXED = Space(
    states={"s": Real(1, 100, log=True), "j": Integer(1, 5), "k": Categorical([*"ab"])},
    actions={"x": Real(0.1, 10, log=True), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
SPACES = {
    "real": reals(1, 1),
    "no states": reals(0, 2),
    "mixed": MIXED,
    "all actions": MIXED.with_states_as_actions(),
    "categories": Space(states={"k": Categorical([*"abc"])}, actions={"c": Categorical([*"uvw"])}),
}
PROPOSALS: dict[str, Proposal] = {
    "conbo": Maximizer(ConBO(HybridKG())),
    "paper": Maximizer(ConBO(HybridKG(3, 1.0, "lower"), GaussianStates())),
    "discrete": Maximizer(ConBO(DiscreteKG(20))),
    "Monte Carlo": Maximizer(ConBO(MonteCarloKG(8))),
    "improvement": Maximizer(ExpectedImprovement()),
    "stochastic": StochasticMaximizer(ConBO(HybridKG()), iterations=5),
}


EVEN = ConBO(HybridKG(), StratifiedStates(32, 32))  # every state of an even pool


def grid_search(belief: Belief) -> tuple[ConditionalAcquisition, float]:
    """An accurate acquisition over one state and one action, and its maximum on a dense grid."""
    judge = EVEN.build(belief, generator(100))
    axis = torch.linspace(0, 1, 21, dtype=torch.float64)
    return judge, float(judge(torch.cartesian_prod(axis, axis)).amax())


def belief_over(name: str, n: int = 15) -> Belief:
    space = SPACES[name]
    kernel = trend_kernel(space, 0.5) if name == "categories" else product_kernel(space, 0.5, 0.4)
    return belief_with(space, kernel, n=n, noise=0.05)


@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("name", SPACES)
def test_suggestions_are_valid_and_the_same_for_the_same_seed(name: str, proposal: str) -> None:
    belief, space = belief_over(name), SPACES[name]

    first, second = (PROPOSALS[proposal].propose(belief, 2, generator(3)).points for _ in range(2))

    assert torch.equal(first, second)
    assert first.shape == (2, space.n_state_dims + space.n_action_dims)
    assert first.dtype == torch.float64
    np.testing.assert_allclose(space.snap(first.numpy()), first.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("name", ["real", "mixed", "categories"])
def test_a_dictated_state_is_kept_exactly(name: str, proposal: str) -> None:
    belief, space = belief_over(name), SPACES[name]
    state = points_in(space, 1, seed=5)[0, : space.n_state_dims]
    if name == "real":
        state = tensor([1 / 3])

    points = PROPOSALS[proposal].propose(belief, 3, generator(), state).points

    assert torch.equal(points[:, : space.n_state_dims], state.expand(3, -1))
    np.testing.assert_allclose(space.snap(points.numpy()), points.numpy(), rtol=0, atol=1e-12)


def test_a_dictated_state_is_kept_where_states_are_actions() -> None:
    belief = belief_over("all actions")
    state = points_in(MIXED, 1, seed=5)[0, :3]

    points = PROPOSALS["improvement"].propose(belief, 2, generator(), state).points

    assert torch.equal(points[:, :3], state.expand(2, -1))


def test_the_best_action_is_found_for_a_dictated_state() -> None:
    belief = belief_over("real")
    recipe = ConBO(HybridKG())
    state = tensor([0.3])

    point = Maximizer(recipe).propose(belief, 1, generator(), state).points

    grid = torch.cat([tensor([[0.3]]).expand(201, 1), torch.linspace(0, 1, 201, dtype=torch.float64)[:, None]], -1)
    acquisition = EVEN.build(belief, generator(1))
    assert float(acquisition(point)) >= 0.95 * float(acquisition(grid).amax())


@pytest.mark.parametrize("seed", range(3))
def test_suggestions_are_nearly_as_good_as_the_best_of_a_dense_grid(seed: int) -> None:
    space = reals(1, 1)
    belief = belief_with(space, product_kernel(space, 0.4, 0.25), n=12, seed=seed)
    judge, best = grid_search(belief)

    point = Maximizer(ConBO(HybridKG())).propose(belief, 1, generator(seed)).points

    assert float(judge(point)) >= 0.9 * best


def test_the_paper_s_stochastic_ascent_finds_good_points_too() -> None:
    space = reals(1, 1)
    belief = belief_with(space, product_kernel(space, 0.4, 0.25), n=12)
    judge, best = grid_search(belief)

    point = StochasticMaximizer(ConBO(HybridKG(), GaussianStates())).propose(belief, 1, generator()).points

    assert float(judge(point)) >= 0.8 * best


def test_climbing_pays() -> None:
    space = reals(1, 2)
    belief = belief_with(space, product_kernel(space, 0.4, 0.3), n=20)
    recipe = ConBO(HybridKG())

    climbed = Maximizer(recipe).search(belief, generator())
    screened = Maximizer(recipe, iterations=0).search(belief, generator())

    assert float(climbed.values.amax()) > float(screened.values.amax())


def test_the_history_is_complete_and_the_best_is_a_full_value() -> None:
    belief = belief_over("mixed")
    proposal = Maximizer(ConBO(HybridKG()), screened=64, starts=4, iterations=6)

    search = proposal.search(belief, generator())

    assert len(search.points) == len(search.values) >= 64 + 2 * 4 - 1
    np.testing.assert_allclose(MIXED.snap(search.points.numpy()), search.points.numpy(), rtol=0, atol=1e-12)
    assert int(search.values.argmax()) < 4  # one of the finalists
    assert torch.equal(proposal.propose(belief, 1, generator()).points[0], search.points[int(search.values.argmax())])


@pytest.mark.parametrize("maximizer", [Maximizer, StochasticMaximizer])
def test_where_nothing_can_be_gained_the_least_known_likely_point_is_suggested(maximizer: type) -> None:
    # with a single action there is nothing to decide: KG is zero everywhere
    space = Space(states={"s": Real(0, 1)}, actions={"only": Categorical(["a"])})
    belief = belief_with(space, product_kernel(space, 0.2), n=4, distribution=Triangular())
    proposal = maximizer(ConBO(HybridKG()))

    point = proposal.propose(belief, 1, generator()).points

    grid = torch.cat([torch.linspace(0, 1, 201, dtype=torch.float64)[:, None], torch.full((201, 1), 0.5)], -1)
    promise = weighted_variance(belief, grid)
    assert float(weighted_variance(belief, point)) >= 0.95 * float(promise.amax())
    density = belief.states.density(grid[:, :1])
    torch.testing.assert_close(promise, density * belief.posterior.variance(grid))


@dataclass(frozen=True)
class Cone:
    """An acquisition of known shape: a cone around `peak`, or nothing at all."""

    peak: Tensor
    height: float = 1.0
    climbs_logarithm = False

    def build(self, belief: Belief, generator: torch.Generator) -> "Cone":
        return self

    def screen(self, points: Tensor) -> Tensor:
        return self(points)

    def __call__(self, points: Tensor) -> Tensor:
        return self.height * torch.exp(-(points - self.peak).square().sum(-1))

    def local(self, starts: Tensor) -> BatchedFunction:
        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            values = self(points)
            return values, -2 * (points - self.peak) * values[:, None]

        return function


def test_the_maximizer_knows_nothing_of_what_it_maximizes() -> None:
    belief = belief_over("no states")
    peak = tensor([0.37, 1.2])
    recipe: AcquisitionRecipe = Cone(peak)

    point = Maximizer(recipe, iterations=40).propose(belief, 1, generator()).points

    assert float(Cone(peak)(point)) >= 0.998 * float(Cone(peak)(tensor([[0.37, 1.0]])))


@pytest.mark.parametrize("height", [0.0, 1e-14])
def test_a_flat_acquisition_falls_back_to_the_largest_variance(height: float) -> None:
    belief = belief_over("no states", n=5)

    point = Maximizer(Cone(tensor([0.5, 0.5]), height)).propose(belief, 1, generator()).points

    variance = belief.posterior.variance(points_in(belief.space, 500, seed=8))
    assert float(belief.posterior.variance(point)) >= float(variance.quantile(0.97))


def test_screening_points_follow_the_states_and_visit_the_policy() -> None:
    space = reals(1, 1)
    belief = belief_with(space, product_kernel(space, 0.5, 0.3), n=30, noise=1e-4, distribution=Triangular())

    points = screening_points(belief, 400, generator())

    assert points.shape == (400, 2)
    counts = torch.histc(points[:, 0], 4, 0, 1) / 400
    torch.testing.assert_close(counts, tensor([1, 3, 3, 1]) / 8, rtol=0, atol=0.03)
    near, far = belief.posterior.mean(points[:100]), belief.posterior.mean(points[100:])
    assert float(near.mean()) > float(far.mean()) + 0.2
    assert torch.equal(points, screening_points(belief, 400, generator()))
    dictated = screening_points(belief, 50, generator(), tensor([0.123]))
    assert (dictated[:, 0] == 0.123).all()


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingError, match=r"starts <= screened` must hold, but got .*10"):
        Maximizer(ExpectedImprovement(), screened=10, starts=11)
    with pytest.raises(SettingError, match="must hold"):
        Maximizer(ExpectedImprovement(), starts=0)


@dataclass(frozen=True)
class StateTimesAction:
    """A value that is the product of one of the state and one of the action: few states and few actions are good."""

    climbs_logarithm = False

    def build(self, belief: Belief, generator: torch.Generator) -> "StateTimesAction":
        return self

    def __call__(self, points: Tensor) -> Tensor:
        of_state = ((points[:, 0] * 400).floor() * 37 % 400 / 399) ** 8
        return of_state * torch.exp(-((points[:, 1:] - 0.3) ** 2).sum(-1) / 0.05)

    def screen(self, points: Tensor) -> Tensor:
        return self(points)

    def local(self, starts: Tensor) -> BatchedFunction:
        def function(points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            gradient = -2 * (points - 0.3) / 0.05 * self(points)[:, None]
            gradient[:, 0] = 0.0  # a category
            return self(points), gradient

        return function


def test_with_hundreds_of_categories_good_actions_meet_good_states() -> None:
    space = Space(states={"k": Categorical(range(400))}, actions={f"x{i}": Real(0, 1) for i in range(4)})
    belief = belief_with(space, trend_kernel(space), n=10)
    found = [
        float(StateTimesAction()(Maximizer(StateTimesAction(), screened=256).propose(belief, 1, generator(k)).points))
        for k in range(4)
    ]
    assert min(found) > 0.95  # of 1, the best; by what was screened alone, 0.75
    points = points_in(space, 300)
    pairs = crossed(belief, points, StateTimesAction()(points))
    top = StateTimesAction()(points).argsort(descending=True)
    wanted = torch.cat([points[top[200], :1], points[top[1], 1:]])
    assert bool((pairs == wanted).all(-1).any())
