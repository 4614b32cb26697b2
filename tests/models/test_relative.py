"""Models of actions relative to the state: the change of coordinates, when they are chosen, and what they find."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.exact import condition
from conbo.models.fit import fit
from conbo.models.kernel_families import ProductFamily
from conbo.models.log_posterior import LogPosterior
from conbo.models.main_effects import MainEffectsKernel
from conbo.models.posterior import Averages, Posterior
from conbo.models.relative import RelativePosterior, relative_space
from conbo.models.relative_family import RelativeFamily
from conbo.models.relative_modes import weights_by_curvature
from conbo.models.shear import Shear
from conbo.observations import Observations
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates
from conbo.spaces import Categorical, Integer, Real, Space
from kernel_family_cases import columns
from random_beliefs import belief_with, generator, product_kernel, reals, tensor, uniform

W = tensor([[0.7, -1.2], [-0.3, 0.0]])
MIXED = Space(
    states={"s": Real(1, 100, log=True), "k": Categorical([*"ab"])},
    actions={"n": Integer(0, 9), "c": Categorical([*"uvw"]), "x": Real(-1, 1)},
)
MIXED_W = tensor([[0.8, 0.0], [0.0, 0.0], [-0.5, 0.0]])


def tent(points: Tensor) -> Tensor:
    """Rewards of the best stock for every demand: a tent over the action minus 0.6 times the state."""
    away = points[:, 1] - 0.6 * points[:, 0] - 0.1
    return points[:, 0] - torch.where(away > 0, 2 * away, -3 * away)


def basins(points: Tensor) -> Tensor:
    """Rewards whose two best actions stay where they are, while the state decides which one is better."""
    here, there = (((points[:, 1] - place) / 0.15).square().neg().exp() for place in (0.2, 0.75))
    return here * (1 - 0.6 * points[:, 0]) + there * (0.5 + 0.6 * points[:, 0])


def members(posterior: Posterior) -> tuple[Posterior, ...]:
    return posterior.members if isinstance(posterior, Averages) else (posterior,)


def belief_about(space: Space, points: Tensor, rewards: Tensor, model: GaussianProcess | None = None) -> Belief:
    told = Observations(points, rewards, points[:0])
    return fit_belief(space, bind(None, space), told, model or GaussianProcess())


def test_relative_actions_fill_the_unit_cube_and_lead_back() -> None:
    shear, points = Shear(W), uniform(2000, 4, seed=1)
    corners = torch.cartesian_prod(*[tensor([0.0, 1.0])] * 4)
    seen = shear(torch.cat([points, corners]))[:, 2:]
    torch.testing.assert_close(seen.amin(0), tensor([0.0, 0.0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(seen.amax(0), tensor([1.0, 1.0]), rtol=0, atol=1e-12)
    back = shear.actions(points[:, :2], shear.relative(points[:, :2], points[:, 2:]))
    torch.testing.assert_close(back, points[:, 2:])


def test_gradients_follow_the_change_of_coordinates() -> None:
    shear, points = Shear(W), uniform(5, 4, seed=1).requires_grad_(True)
    pull = uniform(5, 4, seed=2)
    (expected,) = torch.autograd.grad((shear(points) * pull).sum(), points)
    torch.testing.assert_close(shear.gradient(pull), expected)


@pytest.mark.parametrize(("space", "weights"), [(reals(2, 2), W), (MIXED, MIXED_W)])
def test_the_space_of_relative_actions_allows_those_that_stand_for_actions(space: Space, weights: Tensor) -> None:
    shear, inner = Shear(weights), relative_space(space, Shear(weights))
    d_s = space.n_state_dims
    points = uniform(4000, space.n_state_dims + space.n_action_dims, seed=3)
    states, relative = points[:, :d_s], points[:, d_s:]
    actions = relative * shear.span + shear.low + states @ shear.weights.mT
    stand_for_actions = ((actions >= 0) & (actions <= 1)).all(-1)
    assert 0.1 < float(stand_for_actions.double().mean()) < 0.9
    assert inner.contains(points.numpy()).tolist() == stand_for_actions.tolist()
    assert inner.state_categories == space.state_categories
    assert inner.action_categories == space.action_categories


def test_curvature_reveals_the_weights_of_a_function_of_relative_actions() -> None:
    """Dense exact rewards of g(x - W s) + h(s), whose second derivatives W explains wholly."""
    space = reals(2, 2)
    points = sobol(300, 4, seed=1)
    away = points[:, 2:] - points[:, :2] @ W.mT
    rewards = torch.sin(away[:, 0]) + (away[:, 1] - away[:, 0]).square() + points[:, 0].exp() * points[:, 1]
    target = LogPosterior(ProductFamily(*columns(space)), points, rewards, torch.full((300,), 1e-8).double())
    weights, share = weights_by_curvature(target, tensor([1.5, 1.5, 1.5, 1.5, 1.0]))
    torch.testing.assert_close(weights.view(2, 2), W, rtol=0, atol=0.1)
    assert share > 0.99


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_relative_actions_are_found_and_locate_the_best_action_from_few_rewards(noise: float) -> None:
    space, points = reals(1, 1), sobol(24, 2, seed=1)
    rewards = tent(points) + noise * torch.randn(24, generator=generator(), dtype=torch.float64)
    states = torch.linspace(0, 1, 41, dtype=torch.float64)[:, None]

    def largest_error(model: GaussianProcess) -> float:
        belief = belief_about(space, points, rewards, model)
        found = belief.search(action_candidates(belief, 64, generator())).best(states)
        return float((found.actions - (0.6 * states + 0.1)).abs().amax())

    posterior = belief_about(space, points, rewards).posterior
    assert all(isinstance(member, RelativePosterior) for member in members(posterior))
    best = members(posterior)[0]
    assert isinstance(best, RelativePosterior)
    assert float(best.shear.weights[0, 0]) == pytest.approx(0.6, abs=0.03)
    assert largest_error(GaussianProcess()) < 0.7 * largest_error(GaussianProcess(relative_actions="none"))


def test_actions_stay_as_they_are_where_the_best_one_does_not_follow_the_state() -> None:
    space, points = reals(1, 1), sobol(40, 2, seed=1)
    posterior = belief_about(space, points, basins(points)).posterior
    assert not any(isinstance(member, RelativePosterior) for member in members(posterior))


@pytest.mark.parametrize(
    "space",
    [
        reals(0, 2),
        Space(states={"k": Categorical([*"ab"])}, actions={"x": Real(0, 1)}),
        Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)}, constraints=["x <= 0.9"]),
    ],
)
def test_no_state_or_a_limit_leaves_actions_as_they_are(space: Space) -> None:
    points = sobol(20, space.n_state_dims + space.n_action_dims, seed=1)
    points = torch.from_numpy(space.snap(points.numpy()))
    posterior = belief_about(space, points, tent(points)).posterior
    assert not any(isinstance(member, RelativePosterior) for member in members(posterior))


def test_the_search_finds_the_best_action_of_a_fine_grid_in_every_state() -> None:
    """States near the ends of their range leave little room for relative actions."""
    space, shear = reals(1, 1), Shear(tensor([[1.5]]))
    kernel = product_kernel(space, 0.7, 0.15)
    told = belief_with(space, kernel, n=25).observations
    posterior = RelativePosterior(condition(kernel, 0.0, 1e-3, shear(told.points), told.rewards), shear)
    states = torch.linspace(0, 1, 51, dtype=torch.float64)[:, None]
    found = posterior.action_search(space, sobol(64, 1, seed=1)).best(states)
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None]
    for state, action, mean in zip(states, found.actions, found.mean, strict=True):
        values = posterior.mean(torch.cat([state.expand(2001, -1), grid], -1))
        assert float(mean) >= float(values.amax()) - 1e-6
        assert 0 <= float(action) <= 1


def test_a_kept_model_is_fitted_again_to_more_rewards() -> None:
    """A fit that begins with earlier models keeps their relative actions, and stays a maximum of the density."""
    space, points = reals(1, 1), sobol(40, 2, seed=1)
    rewards = tent(points)
    structures = GaussianProcess().structures(space)
    earlier = fit(structures, points[:24], rewards[:24], small_noise=True, members=6)
    assert all(one.shear is not None for one in earlier)
    again = fit(structures, points, rewards, small_noise=True, members=6, earlier=earlier)
    assert all(one.shear is not None for one in again)
    best = again[0]
    assert isinstance(best.kernel, MainEffectsKernel)
    target = LogPosterior(structures.read(best.record), points, rewards, "small")
    parameters = torch.tensor(best.record["parameters"], dtype=torch.float64)
    assert float(target(parameters[None])[0]) == pytest.approx(best.objective, abs=1e-9)
    assert target.peak(parameters).gain < 0.01  # nats that a Newton step promises


def test_without_weights_a_family_is_as_it_was() -> None:
    space = reals(2, 2)
    plain, points = ProductFamily(*columns(space)), uniform(7, 4, seed=1)
    family, parameters = RelativeFamily(plain), uniform(5, seed=2)
    with_zeros = family.with_weights(parameters, torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(family.without_weights(with_zeros), parameters)
    covariance, _ = family.covariance(with_zeros[None], points)
    torch.testing.assert_close(covariance, plain.covariance(parameters[None], points)[0])


def test_predictions_average_over_the_weights_too() -> None:
    space, points = reals(1, 1), sobol(24, 2, seed=1)
    belief = belief_about(space, points, tent(points))
    drawn = {
        float(member.shear.weights[0, 0])
        for member in members(belief.predictive)
        if isinstance(member, RelativePosterior)
    }
    assert len(drawn) > 4


def test_integers_stay_whole() -> None:
    kernel, shear = product_kernel(MIXED, [0.5, 0.9], [0.4, 0.8, 0.3]), Shear(MIXED_W)
    belief = belief_with(MIXED, kernel, n=30)
    told = belief.observations
    posterior = RelativePosterior(condition(kernel, 0.0, 1e-3, shear(told.points), told.rewards), shear)
    belief = replace(belief, posterior=posterior)
    states = torch.from_numpy(MIXED.snap(sobol(20, 5, seed=2).numpy()))[:, :2]
    found = belief.search(action_candidates(belief, 64, generator())).best(states)
    for action in MIXED.decode_actions(found.actions.numpy()):
        assert isinstance(action["n"], int)
    torch.testing.assert_close(torch.from_numpy(MIXED.snap_actions(found.actions.numpy())), found.actions)


def test_equal_rewards_and_many_weights_leave_actions_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    space, points = reals(1, 1), sobol(24, 2, seed=1)
    structures = GaussianProcess().structures(space)
    assert all(one.shear is None for one in fit(structures, points, points.new_zeros(24)))
    assert all(one.shear is not None for one in fit(structures, points, tent(points)))
    monkeypatch.setattr("conbo.models.relative_modes.MOST_WEIGHTS", 0)
    assert all(one.shear is None for one in fit(structures, points, tent(points)))
