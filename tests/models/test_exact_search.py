"""The best action of every state: against a dense grid, in every kind of space."""

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from torch import Tensor

from conbo.belief import Belief, ModelLike, fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models import compiled
from conbo.models.distinct_best import ALIKE, distinct_best
from conbo.models.exact_search import CHUNK, ActionPool, BestActionsOnce, polish_integers
from conbo.models.posterior import BestActions
from conbo.observations import Observations
from conbo.search.action_candidates import action_candidates
from conbo.spaces import Categorical, Integer, Real, Space
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
    warped,
)

SPACES = {
    "real": reals(1, 1),
    "two actions": reals(1, 2),
    "no states": reals(0, 2),
    "categories": Space(states={"k": Categorical([*"ab"])}, actions={"c": Categorical([*"uvwxy"]), "x": Real(0, 1)}),
    "integers": Space(states={"s": Real(0, 1)}, actions={"n": Integer(1, 9), "m": Integer(1, 100, log=True)}),
    "mixed": Space(
        states={"s": Real(0, 1), "k": Categorical([*"ab"])},
        actions={"x": Real(0.1, 10, log=True), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
    ),
}


SPACES |= {"warped": SPACES["two actions"], "warped mixed": SPACES["mixed"]}


def belief_over(name: str, n: int = 40, profile: str = "matern52") -> Belief:
    space = SPACES[name]
    kernel = product_kernel(space, 0.5, 0.4, profile=profile)
    return belief_with(space, warped(kernel) if name.startswith("warped") else kernel, n=n, noise=0.01)


def found(belief: Belief, states: Tensor, **settings: int) -> BestActions:
    return belief.search(action_candidates(belief, 96, generator())).best(states, **settings)


def grid_over(space: Space, k: int) -> Tensor:
    """All valid actions on a grid of k values for each real."""
    columns = [
        torch.linspace(0, 1, k, dtype=torch.float64) if p.n_levels is None else tensor(p.levels())  # type: ignore[union-attr]
        for p in space.actions.values()
    ]
    return torch.cartesian_prod(*columns).reshape(-1, len(columns))


@pytest.mark.parametrize("profile", ["matern52", "squared-exponential"])
@pytest.mark.parametrize("name", SPACES)
def test_the_best_action_is_no_worse_than_the_best_of_a_grid(name: str, profile: str) -> None:
    belief, space = belief_over(name, profile=profile), SPACES[name]
    states = points_in(space, 12, seed=6)[:, : space.n_state_dims]

    result = found(belief, states)

    grid = grid_over(space, 41)
    joint = torch.cat([states[:, None].expand(12, len(grid), -1), grid.expand(12, -1, -1)], -1)
    best = belief.posterior.mean(joint.flatten(0, 1)).reshape(12, -1).amax(-1)
    worse = best - result.mean
    # integers are rounded and then moved by one at most, the rest staying where it is
    tolerance = 2e-3 if space.has_integer_actions else 1e-6
    assert float((worse < tolerance).double().mean()) > 0.9
    torch.testing.assert_close(
        belief.posterior.mean(torch.cat([states, result.actions], -1)), result.mean, rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("name", SPACES)
def test_best_actions_are_valid_and_the_best_of_all_climbs(name: str) -> None:
    belief, space = belief_over(name), SPACES[name]
    states = points_in(space, 12, seed=6)[:, : space.n_state_dims]

    result = found(belief, states, starts=3)

    assert result.basins.shape == (12, 3, space.n_action_dims)
    for actions in (result.actions, result.basins):
        np.testing.assert_allclose(space.snap_actions(actions.numpy()), actions.numpy(), atol=1e-12)
    joint = torch.cat([states[:, None].expand(12, 3, -1), result.basins], -1)
    means = belief.posterior.mean(joint.flatten(0, 1)).reshape(12, 3)
    torch.testing.assert_close(means.amax(-1), result.mean, rtol=0, atol=1e-8)
    assert result.mean.dtype == result.actions.dtype == torch.float64


def test_states_with_a_trend_have_their_own_best_actions() -> None:
    space = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1)})
    belief = belief_with(space, trend_kernel(space, 0.2, (0.2, 1.0, 0.5)), n=30)
    states = tensor([[1 / 6], [0.5], [5 / 6]])

    result = found(belief, states)

    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
    for k in range(3):
        values = belief.posterior.mean(torch.cat([states[k].expand(2001, 1), grid], -1))
        assert float(result.mean[k]) == pytest.approx(float(values.amax()), abs=1e-4)
        assert float(result.mean[k]) >= float(values.amax()) - 1e-9


def test_many_states_are_passed_in_chunks_without_a_seam() -> None:
    belief = belief_over("real")
    states = uniform(CHUNK + 5, 1, seed=1)

    result = found(belief, states)

    around = slice(CHUNK - 3, CHUNK + 5)
    torch.testing.assert_close(result.mean[around], found(belief, states[around]).mean, rtol=0, atol=1e-9)


def test_integers_of_any_range_are_searched() -> None:
    space = Space(states={"s": Real(0, 1)}, actions={"n": Integer(0, 10**12), "m": Integer(1, 10**9, log=True)})
    belief = belief_with(space, product_kernel(space, 0.5, 0.4), n=20)

    result = found(belief, uniform(5, 1, seed=1))

    np.testing.assert_allclose(space.snap_actions(result.actions.numpy()), result.actions.numpy(), atol=1e-12)


def test_an_integer_is_polished_to_the_better_neighbor() -> None:
    # levels so coarse that the nearest to a peak need not be the better
    space = Space(states={"s": Real(0, 1)}, actions={"n": Integer(1, 4)})
    for seed in range(6):
        belief = belief_with(space, product_kernel(space, 0.5, 0.3), n=12, seed=seed)
        states = uniform(20, 1, seed=seed)

        result = found(belief, states)

        levels = grid_over(space, 0)
        joint = torch.cat([states[:, None].expand(20, 4, 1), levels.expand(20, 4, 1)], -1)
        best = belief.posterior.mean(joint.flatten(0, 1)).reshape(20, 4).amax(-1)
        torch.testing.assert_close(result.mean, best, rtol=0, atol=1e-9)


@pytest.mark.parametrize("model", [GaussianProcess(members=1), lambda x, y, _: SingleTaskGP(x, y)])
@pytest.mark.parametrize("limits", [[], ["x + 0.02 * n <= 0.57"]])
def test_real_parameters_follow_integers_that_are_rounded(model: ModelLike, limits: list[str]) -> None:
    # rewards are high along a narrow ridge, between whose integers the search without rounding ends
    space = Space({"s": Real(0, 1)}, {"x": Real(0, 1), "n": Integer(0, 10)}, limits)
    points = points_in(space, 60, seed=3)
    s, x, n = points[:, 0], points[:, 1], 11 * points[:, 2] - 0.5
    rewards = -100 * (x - 0.1 * n).square() - 0.01 * (n - 4.5 - s).square()
    belief = fit_belief(space, bind(None, space), Observations(points, rewards, points[:0]), model)
    states = tensor([[0.0], [0.25], [0.5], [0.9]])

    best = found(belief, states, starts=8)

    for state, action, mean in zip(states, best.actions, best.mean, strict=True):
        grid = torch.cat([state.expand(401 * 11, -1), grid_over(space, 401)], -1)
        assert bool(belief.contains(torch.cat([state, action])[None]))
        assert float(mean) >= float(belief.posterior.mean(grid[belief.contains(grid)]).amax()) - 1e-4


def test_an_integer_moves_along_a_constraint_if_the_real_parameter_makes_room() -> None:
    space = Space({"s": Real(0, 1)}, {"n": Integer(0, 10), "x": Real(0, 10)}, ["n + x <= 5"])
    start = torch.from_numpy(space.encode_actions([{"n": 2, "x": 3.0}]))[None]

    def mean_at(actions: Tensor) -> Tensor:  # of 2 n + x
        return 2 * (11 * actions[..., 0] - 0.5) + 10 * actions[..., 1]

    def climb(actions: Tensor) -> Tensor:  # as far up as the constraint allows
        return torch.stack([actions[..., 0], (5 - (11 * actions[..., 0] - 0.5)) / 10], -1)

    actions, mean = polish_integers(space, mean_at, climb, start, tensor([[0.5]]))

    (best,) = space.decode_actions(actions[0].numpy())
    assert best["n"] == 3  # with x = 3 it is infeasible, and with x = 2 it is better than before
    assert float(best["x"]) == pytest.approx(2.0)
    assert float(mean) == pytest.approx(8.0)


@pytest.mark.parametrize("name", ["two actions", "no states", "mixed"])
def test_a_state_is_searched_once(name: str) -> None:
    belief = belief_over(name)
    states = points_in(SPACES[name], 12, seed=1)[:, : belief.n_state_dims]
    pool = posterior_of(belief).action_search(belief.space, action_candidates(belief, 64, generator(0)))
    searched = []

    class Counted(ActionPool):
        def best(self, states: Tensor, starts: int = 4, steps: int = 10) -> BestActions:
            searched.extend(states.tolist())
            return super().best(states, starts, steps)

    once = BestActionsOnce(Counted(pool.posterior, pool.space, pool.actions), starts=3)

    for rows in ([3, 1, 3], [0, 1, 2, 3], [11, 5, 0, 11], [5, 3]):
        result, expected = once(states[rows]), pool.best(states[rows], starts=3)
        torch.testing.assert_close(result.actions, expected.actions, rtol=0, atol=1e-6)
        torch.testing.assert_close(result.mean, expected.mean, rtol=0, atol=1e-12)
        torch.testing.assert_close(result.basins, expected.basins, rtol=0, atol=1e-6)

    assert len(searched) == len({tuple(state) for state in searched})


@pytest.fixture(params=["compiled", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "compiled" and not compiled.AVAILABLE:
        pytest.skip("Numba is not installed")
    monkeypatch.setattr(compiled, "AVAILABLE", request.param == "compiled")


@pytest.mark.usefixtures("path")
def test_starts_are_the_best_that_are_not_alike() -> None:
    likeness = tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.1], [0.1, 0.1, 1.0]])
    scores = tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])

    assert distinct_best(scores, likeness, 2).tolist() == [[0, 2], [2, 1]]
    assert distinct_best(scores, likeness, 5).tolist() == [[0, 2, 0], [2, 1, 0]]
    assert scores.tolist() == [[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]


@pytest.mark.usefixtures("path")
def test_starts_are_those_of_a_plain_search() -> None:
    actions = uniform(30, 2, seed=3)
    likeness = torch.exp(-torch.cdist(actions, actions))
    scores = (4 * uniform(50, 30, seed=4)).round()  # many ties

    chosen = distinct_best(scores, likeness, 4)

    for row in range(50):
        left = list(range(30))
        for place in range(4):
            best = max(left, key=lambda j: (float(scores[row, j]), -j))
            assert int(chosen[row, place]) == best
            left = [j for j in left if j != best and likeness[best, j] <= ALIKE]


@pytest.mark.filterwarnings("ignore")  # BoTorch has its own views on our data
def test_a_botorch_model_is_searched_by_autograd() -> None:
    space = SPACES["mixed"]
    ours = belief_over("mixed")

    def factory(points: Tensor, rewards: Tensor, noise: Tensor | None) -> SingleTaskGP:
        return SingleTaskGP(points, rewards, outcome_transform=None)

    belief = fit_belief(space, bind(None, space), ours.observations, factory)
    states = points_in(space, 6, seed=6)[:, :2]

    result = found(belief, states)

    np.testing.assert_allclose(space.snap_actions(result.actions.numpy()), result.actions.numpy(), atol=1e-12)
    grid = grid_over(space, 15)
    joint = torch.cat([states[:, None].expand(6, len(grid), -1), grid.expand(6, -1, -1)], -1)
    with torch.no_grad():
        best = belief.posterior.mean(joint.flatten(0, 1)).reshape(6, -1).amax(-1)
    assert float((best - result.mean).median()) < 0.02
    assert posterior_of(ours).n_observations == 40


def test_a_prepared_pool_knows_its_correlations() -> None:
    space = reals(1, 2)
    posterior = posterior_of(belief_with(space, product_kernel(space, 0.4, [0.3, 0.6]), n=7))
    actions = action_candidates(belief_with(space, product_kernel(space), n=7), 8, generator())

    pool = posterior.action_search(space, actions)

    factor = posterior.kernel.actions
    assert torch.equal(pool.actions, actions)
    torch.testing.assert_close(pool.features, factor.scaled(actions))
    torch.testing.assert_close(pool.correlation, factor.correlation(posterior.actions, factor.scaled(actions)))
    torch.testing.assert_close(pool.similarity.diagonal(), torch.ones(15, dtype=torch.float64))
    torch.testing.assert_close(pool.similarity, pool.similarity.mT)
