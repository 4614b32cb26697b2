"""Several models of the same rewards: which are found, how they are weighed, and what a mixture of them predicts."""

from dataclasses import replace
from math import inf, log

import pytest
import torch
from torch import Tensor

from conbo.ascent import ascend
from conbo.belief import fit_belief
from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.models.fit import all_modes, fit, probabilities
from conbo.models.kernel_families import ProductFamily
from conbo.models.log_posterior import LogPosterior
from conbo.models.main_effects import MainEffectsFamily, MainEffectsKernel
from conbo.models.mixture import Mixture
from conbo.models.modes import Mode, best_of, nearly_stationary
from conbo.models.output_maps import Limits, LowTail, read_tail
from conbo.models.profiles import MATERN52
from conbo.models.schedule import begins_with
from conbo.models.structures import Structures
from conbo.models.transformed import TransformedPosterior
from conbo.observations import Observations
from conbo.policies.policy import Policy
from kernel_family_cases import columns
from random_beliefs import belief_with, product_kernel, reals, tensor, uniform

SPACE = reals(1, 1)


def standardized(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean()) / rewards.std()


def test_the_evidence_is_the_integral_over_the_hyperparameters() -> None:
    """Laplace's method against a sum over a fine grid of the two hyperparameters of a model without states."""
    space = reals(0, 1)
    told = belief_with(space, product_kernel(space, 0.5, 0.3), n=20, noise=0.05).observations
    noise = torch.full((20,), 0.05, dtype=torch.float64)
    family = ProductFamily(*columns(space))
    (fitted,) = fit(Structures((family,)), told.points, told.rewards, noise)
    axes = torch.linspace(-4.0, 3.0, 141, dtype=torch.float64), torch.linspace(-5.0, 5.0, 141, dtype=torch.float64)
    grid = torch.cartesian_prod(*axes)
    densities = LogPosterior(family, told.points, told.rewards, noise)(grid)[0] + grid.sum(-1)  # of the logarithms
    step = log(float(axes[0][1] - axes[0][0])) + log(float(axes[1][1] - axes[1][0]))
    assert fitted.evidence == pytest.approx(float(densities.logsumexp(0)) + step, abs=0.25)


def test_the_evidence_integrates_over_the_noise_variance_too() -> None:
    """The prior of a learned noise is a density of the variance, as those of lengthscales and variances are."""
    space = reals(0, 1)
    told = belief_with(space, product_kernel(space, 0.5, 0.3), n=60, noise=0.05).observations
    family = ProductFamily(*columns(space))
    (fitted,) = fit(Structures((family,)), told.points, told.rewards, members=1)
    axes = [torch.linspace(low, high, 25, dtype=torch.float64) for low, high in ((-4.0, 2.0), (-4.0, 4.0), (-6.0, 0.0))]
    grid = torch.cartesian_prod(*axes)
    densities = LogPosterior(family, told.points, told.rewards, "moderate")(grid)[0] + grid.sum(-1)
    step = sum(log(float(axis[1] - axis[0])) for axis in axes)
    assert fitted.evidence == pytest.approx(float(densities.logsumexp(0)) + step, abs=0.25)


def test_main_effects_are_found_where_there_is_no_interaction() -> None:
    points = uniform(60, 2, seed=3)
    rewards = standardized(torch.sin(6 * points[:, 0]) + torch.sin(5 * points[:, 1]))
    product = ProductFamily(*columns(SPACE))
    best, *_ = fit(Structures((product,), (MainEffectsFamily(product, MATERN52),)), points, rewards, members=6)
    assert isinstance(best.kernel, MainEffectsKernel)
    others = uniform(200, 2, seed=4)
    truth = torch.sin(6 * others[:, 0]) + torch.sin(5 * others[:, 1])
    predicted = best.posterior(points, rewards).mean(others)
    assert float(torch.stack([truth, predicted]).corrcoef()[0, 1]) > 0.999


def test_models_of_negligible_probability_are_left_out_and_the_others_add_up() -> None:
    told = belief_with(SPACE, product_kernel(SPACE, 0.4, 0.3), n=12, noise=0.1).observations
    structures = GaussianProcess().structures(SPACE)
    fits = fit(structures, told.points, told.rewards, members=6)
    weights = probabilities(fits)
    assert 2 <= len(fits) <= 6
    assert float(weights.sum()) == pytest.approx(1.0)
    assert bool((weights.diff() <= 0).all())
    assert float(weights[-1] / weights[0]) > 0.03
    assert len(fit(structures, told.points, told.rewards, members=2)) == 2
    (alone,) = fit(structures, told.points, told.rewards, members=1)
    assert alone.evidence == pytest.approx(fits[0].evidence, abs=0.1)


def test_a_noisy_explanation_stays_beside_an_exact_one() -> None:
    """Few noisy rewards: of the likeliest models one says that all is noise, another that little is."""
    points = uniform(14, 2, seed=8)
    rewards = standardized(points[:, 0] + 0.6 * torch.randn(14, generator=torch.Generator().manual_seed(3)).double())
    fits = fit(GaussianProcess().structures(SPACE), points, rewards, members=6)
    levels = sorted(one.noise for one in fits if isinstance(one.noise, float))
    assert levels[-1] > 0.1


def noisy_modes(seed: int) -> list[Mode]:
    """Models of a weak signal in much noise, with two states and six actions."""
    points, noise = uniform(100, 8, seed=seed), torch.randn(100, generator=torch.Generator().manual_seed(seed)).double()
    rewards = standardized(0.5 * noise - (points[:, 2:] - 0.5).square().sum(-1))
    return all_modes(GaussianProcess().structures(reals(2, 6)), points, rewards, "moderate", False, False, True)


def height_above(mode: Mode) -> float:
    """The log-density where a longer and finer search from the mode ends."""
    low, high = mode.target.bounds.T
    return float(ascend(lambda p, _: mode.target(p)[:2], mode.parameters[None], low, high, 200, 0.01, 1e-6).values)


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_every_model_is_at_the_end_of_its_climb(seed: int) -> None:
    """Laplace's method would overrate a point on the way to a maximum by more nats than models differ by."""
    modes = noisy_modes(seed)
    assert len(modes) >= 2
    for mode in modes:
        assert height_above(mode) < mode.objective + 0.5


def test_a_newton_step_promises_what_a_model_lacks() -> None:
    mode = best_of(noisy_modes(5))
    curvature = mode.peak.curvature
    for direction in torch.linalg.eigh(curvature)[1].mT[-3:]:
        step = 0.2 * direction / (direction @ curvature @ direction).sqrt()
        away = replace(mode, parameters=mode.parameters + step)
        lacking = mode.objective - float(mode.target(away.parameters[None])[0])
        assert away.peak.gain == pytest.approx(lacking, rel=0.3)
        assert [mode, away] == nearly_stationary([mode, away])
        far = replace(mode, parameters=mode.parameters + 10 * step)
        assert [mode] == nearly_stationary([mode, far])


def test_a_parameter_that_its_bound_holds_promises_nothing() -> None:
    mode = best_of(noisy_modes(5))
    target, point = mode.target, mode.parameters + 0.3
    uphill = target(point[None])[1][0] > 0
    free = target.peak(point).gain
    target.prior.bounds = torch.stack(
        [torch.where(uphill, point - 1, point), torch.where(uphill, point, point + 1)], -1
    )
    assert target.peak(point).gain == 0 < free
    target.prior.bounds[0] = torch.stack([point[0] - 1, point[0] + 1])
    assert 0 < target.peak(point).gain < free


def exploding(n: int) -> tuple[Tensor, Tensor]:
    """Costs that explode: the logarithm is a smooth function."""
    points = uniform(n, 2, seed=5)
    return points, -torch.exp(3 * torch.sin(4 * points[:, 0]) + 4 * (points[:, 1] - 0.5).square() * 6)


def test_exploding_costs_are_compressed_and_predicted_in_their_own_units() -> None:
    points, rewards = exploding(40)
    belief = fit_belief(SPACE, bind(None, SPACE), Observations(points, rewards, points[:0]), GaussianProcess())
    members = belief.posterior.members if isinstance(belief.posterior, Mixture) else (belief.posterior,)
    assert all(isinstance(member, TransformedPosterior) for member in members)
    others, truth = exploding(300)
    better = belief.to_reward(belief.posterior.mean(others))
    plain = fit_belief(
        SPACE, bind(None, SPACE), Observations(points, rewards, points[:0]), GaussianProcess(output_warping="none")
    )
    worse = plain.to_reward(plain.posterior.mean(others))
    assert float((better - truth).abs().median()) < 0.3 * float((worse - truth).abs().median())


@pytest.mark.parametrize("seed", range(3))
def test_rewards_of_a_gaussian_process_are_not_compressed(seed: int) -> None:
    told = belief_with(SPACE, product_kernel(SPACE, 0.4, 0.3), n=40, seed=seed).observations
    fits = fit(GaussianProcess().structures(SPACE), told.points, told.rewards, map_rewards=True, members=6)
    assert all(one.output is None for one in fits)


@pytest.mark.parametrize("power", [0.0, 1e-3, 1 / 3, 1.0])
@pytest.mark.parametrize("width", [0.01, 2.0])
def test_a_map_is_the_inverse_of_its_inverse_and_its_slope_is_right(power: float, width: float) -> None:
    rewards = torch.linspace(-30.0, 3.0, 200, dtype=torch.float64)
    output = LowTail(pivot=2.0, width=width, shift=-0.5, scale=0.8, power=power)
    values, variances = output.values(rewards, torch.ones_like(rewards))
    assert variances is not None
    torch.testing.assert_close(output.rewards(values), rewards, rtol=1e-9, atol=1e-9)
    slope = (output.values(rewards + 1e-6, None)[0] - output.values(rewards - 1e-6, None)[0]) / 2e-6
    inside = (rewards - output.pivot).abs() > 1e-3  # not at the corner of the second derivative
    torch.testing.assert_close(output.log_slope(rewards).exp()[inside], slope[inside], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(variances.sqrt()[inside], slope[inside], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(1 / output.slope_of_rewards(values)[inside], slope[inside], rtol=1e-5, atol=1e-8)
    assert read_tail(output.record()) == output


def test_a_map_without_a_power_is_a_logarithm() -> None:
    record = LowTail(pivot=2.0, width=0.5).record()
    del record["power"]  # as in policies of earlier versions
    assert float(read_tail(record).compressed(tensor([0.0]))) == pytest.approx(-0.5 * log(5.0))


TAIL = LowTail(pivot=0.3, width=0.4, shift=-0.2, scale=0.7)


@pytest.mark.parametrize(
    "output", [TAIL, Limits(-0.4, 0.8), Limits(-inf, 0.8), Limits(-0.4, inf), Limits(-0.4, 0.25, TAIL)]
)
def test_expected_rewards_are_averages_over_draws(output: LowTail | Limits) -> None:
    mean, variance, noise = tensor([-1.5, -0.2, 0.9]), tensor([0.3, 0.05, 0.2]), tensor([0.1, 0.0, 0.2])
    generator = torch.Generator().manual_seed(0)
    values = mean[:, None] + variance.sqrt()[:, None] * torch.randn(3, 200_000, generator=generator).double()
    errors = noise.sqrt()[:, None] * torch.randn(3, 200_000, generator=generator).double()
    expected = output.expected(values, noise[:, None])
    rewards = output.rewards(values + errors) if isinstance(output, LowTail) else expected
    if isinstance(output, Limits) and output.tail is None:
        torch.testing.assert_close(expected, values.clamp(output.low, output.high))

    average, spread = output.moments(mean, variance, noise)

    torch.testing.assert_close(average, rewards.mean(-1), rtol=0.01, atol=0.015)
    torch.testing.assert_close(spread, expected.var(-1), rtol=0.1, atol=0.002)


def test_limits_hold_for_predictions_that_are_sure_to_be_beyond() -> None:
    average, spread = Limits(0.0, 1.0).moments(tensor([-5.0, 7.0]), tensor([0.01, 4.0]), tensor([0.0, 0.0]))
    assert average.tolist() == pytest.approx([0.0, 1.0], abs=0.01)
    assert bool(((average >= 0) & (average <= 1) & (spread >= 0)).all())


def test_the_slope_within_limits_is_that_of_the_expected_reward() -> None:
    output, noise = Limits(-0.4, 0.25, TAIL), tensor([0.1])
    values = torch.linspace(-3, 1, 41, dtype=torch.float64)
    slope = (output.expected(values + 1e-6, noise) - output.expected(values - 1e-6, noise)) / 2e-6
    torch.testing.assert_close(output.expected_slope(values, noise), slope, rtol=1e-4, atol=1e-7)


def test_a_mixture_draws_functions_from_its_members_by_weight() -> None:
    beliefs = [belief_with(SPACE, product_kernel(SPACE, 0.4, 0.3), constant=c, n=1) for c in (-50.0, 50.0)]
    mixture = Mixture(tuple(b.posterior for b in beliefs), tensor([0.8, 0.2]))
    paths = mixture.draw_paths(500, torch.Generator().manual_seed(0), features=16)
    assert paths is not None
    far = paths(tensor([[0.99, 0.99]]))[0]
    assert paths.n == 500
    assert float((far < 0).double().mean()) == pytest.approx(0.8, abs=0.06)


def test_the_policy_of_a_mixture_is_best_by_its_mean() -> None:
    told = belief_with(SPACE, product_kernel(SPACE, 0.4, 0.2), n=15).observations
    belief = fit_belief(SPACE, bind(None, SPACE), told, GaussianProcess())
    assert isinstance(belief.posterior, Mixture)
    policy = Policy(replace(belief, average=None))
    for level in (0.1, 0.5, 0.9):
        prediction = policy.predict({"s0": level})
        grid = torch.linspace(0, 1, 401, dtype=torch.float64)[:, None]
        means = belief.to_reward(belief.posterior.mean(torch.cat([torch.full_like(grid, level), grid], -1)))
        assert prediction.mean >= float(means.amax()) - 1e-6


def test_all_models_are_tried_on_a_fixed_schedule() -> None:
    looked_at = {n: begins_with(n) for n in (5, 6, 7, 8, 19, 20, 21, 22, 23, 29, 33, 100, 110, 255, 256, 400)}
    assert looked_at == {
        5: 5, 6: 6, 7: 6, 8: 8, 19: 18,
        20: 20, 21: 20, 22: 22, 23: 22, 29: 28, 33: 33, 100: 94, 110: 103, 255: 236, 256: 256, 400: 400,
    }  # fmt: skip


def test_a_fit_that_begins_with_earlier_models_is_a_pure_function_of_the_rewards() -> None:
    points = uniform(23, 2, seed=5)
    observations = Observations(points, torch.sin(5 * points).sum(-1), points[:0])
    first, again = (
        fit_belief(SPACE, bind(None, SPACE), observations, GaussianProcess()).posterior.mean(points) for _ in range(2)
    )
    assert torch.equal(first, again)
    changed = replace(observations, rewards=observations.rewards + torch.eye(23, dtype=torch.float64)[0])
    other = fit_belief(SPACE, bind(None, SPACE), changed, GaussianProcess()).posterior.mean(points)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ({"input_warping": "straight"}, "`input_warping` must be auto or none, but got 'straight'"),
        ({"relative_actions": "yes"}, "`relative_actions` must be auto or none, but got 'yes'"),
        ({"main_effects": True}, "`main_effects` must be auto or none, but got True"),
        ({"output_warping": "log"}, "`output_warping` must be auto or none, but got 'log'"),
        ({"members": 0}, "`members` must be an integer of at least 1, but got members=0"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, object], rule: str) -> None:
    with pytest.raises(SettingError, match=rule):
        GaussianProcess(**setting)  # type: ignore[arg-type]


def test_the_former_name_of_input_warping_works_and_says_what_to_use() -> None:
    with pytest.warns(DeprecationWarning, match=r"`actions='straight'` is now `input_warping='none'`; .* conbo 0\.5"):
        assert GaussianProcess(actions="straight") == GaussianProcess(input_warping="none")
    with pytest.raises(SettingError, match="`actions` must be auto or straight, but got 'bent'"):
        GaussianProcess(actions="bent")
    assert replace(GaussianProcess(input_warping="none"), rank=3).input_warping == "none"


def test_the_former_name_of_the_state_kernel_works_and_says_what_to_use() -> None:
    with pytest.warns(DeprecationWarning, match=r"`states='product'` is now `state_kernel='product'`; .* conbo 0\.5"):
        assert GaussianProcess(states="product") == GaussianProcess(state_kernel="product")
    assert replace(GaussianProcess(state_kernel="trend"), rank=3).state_kernel == "trend"
