"""What is known now: standardized rewards, the model that fits the space, and rewards of any size."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.belief import LEAST_NOISE, Belief, fit_belief, standardization, standardized
from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.models.botorch_model import BotorchPosterior
from conbo.models.category_families import MultiTaskFamily, TrendFamily
from conbo.models.category_kernels import CategoryKernel, Trend
from conbo.models.exact import ExactPosterior
from conbo.models.kernel_families import KernelFamily, ProductFamily
from conbo.models.profiles import MATERN52
from conbo.observations import Observations
from conbo.policies.policy import Policy
from conbo.proposals.maximizer import Maximizer
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.trials import LARGEST_REWARD
from random_beliefs import generator, points_in, reals, tensor, uniform

MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0.1, 10, log=True), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1)})


def told(
    space: Space, scale: float = 1.0, shift: float = 0.0, n: int = 12, noise: Tensor | None = None
) -> Observations:
    points = points_in(space, n)
    rewards = shift + scale * (torch.sin(5 * points.sum(-1)) + points[:, -1])
    return Observations(points, rewards, points[:0], noise)


def belief_of(space: Space, observations: Observations, model: GaussianProcess | None = None) -> Belief:
    return fit_belief(space, bind(None, space), observations, model or GaussianProcess())


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=20),
    st.sampled_from([1e-300, 1e-9, 1.0, 1e9, 1e200, 1e300]),
    st.floats(-5, 5),
)
def test_standardized_rewards_have_mean_zero_and_variance_one(rewards: list[float], scale: float, shift: float) -> None:
    values = scale * (tensor(rewards) + shift)

    center, spread = standardization(values)
    result = (values - center) / spread

    assert torch.isfinite(result).all()
    assert float(result.mean()) == pytest.approx(0, abs=1e-3)
    if float(tensor(rewards).std()) > 1e-6:
        assert float(result.std()) == pytest.approx(1, rel=1e-6)
    else:
        assert float(result.abs().amax()) < 10


@pytest.mark.parametrize("value", [0.0, 1e-9, -3.0, 1e9, 1e200])
@pytest.mark.parametrize("n", [1, 5])
def test_constant_rewards_become_zero(value: float, n: int) -> None:
    shift, scale = standardization(torch.full((n,), value, dtype=torch.float64))

    assert shift == pytest.approx(value)
    assert 0 < scale < float("inf")


def test_means_are_given_back_in_the_units_of_the_rewards() -> None:
    belief = belief_of(reals(1, 1), told(reals(1, 1), scale=1e6, shift=3e7))

    mean = belief.to_reward(belief.posterior.mean(belief.observations.points))

    torch.testing.assert_close(mean, belief.observations.rewards, rtol=0, atol=2e5)


SCALES = [1e-9, 1e200]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("space", [reals(1, 1), MIXED, CATEGORIES], ids=["real", "mixed", "categories"])
def test_the_scale_of_rewards_changes_neither_model_nor_suggestion(space: Space, scale: float) -> None:
    single = GaussianProcess(members=1)
    plain, scaled = belief_of(space, told(space), single), belief_of(space, told(space, scale), single)
    proposal = Maximizer(ConBO(HybridKG()))

    others = points_in(space, 30, seed=4)
    torch.testing.assert_close(plain.posterior.mean(others), scaled.posterior.mean(others), rtol=0, atol=1e-4)
    suggestions = [proposal.propose(belief, 1, generator()).points for belief in (plain, scaled)]
    torch.testing.assert_close(*suggestions, rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", ["one observation", "constant", "duplicates"])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9, 1e200])
def test_poor_data_of_any_size_give_a_model_and_a_valid_suggestion(kind: str, scale: float) -> None:
    space = MIXED
    full = told(space, scale)
    observations = {
        "one observation": Observations(full.points[:1], full.rewards[:1], full.pending),
        "constant": Observations(full.points, torch.full_like(full.rewards, scale), full.pending),
        "duplicates": Observations(full.points.repeat(2, 1), full.rewards.repeat(2), full.pending),
    }[kind]

    belief = belief_of(space, observations)
    point = Maximizer(ConBO(HybridKG(n_z=3)), screened=32, iterations=5).propose(belief, 1, generator()).points

    assert torch.isfinite(belief.posterior.mean(points_in(space, 9, seed=2))).all()
    np.testing.assert_allclose(space.snap(point.numpy()), point.numpy(), atol=1e-12)


def test_the_kernel_follows_the_kind_of_states() -> None:
    def kind(space: Space, states: str = "auto") -> type[KernelFamily]:
        model = GaussianProcess(state_kernel=states, main_effects="none")
        (kind,) = {type(family) for family in model.structures(space).families}
        return kind

    assert kind(reals(1, 1)) is kind(reals(0, 1)) is ProductFamily
    assert kind(MIXED) is kind(CATEGORIES) is TrendFamily
    assert kind(CATEGORIES, "product") is kind(MIXED, "product") is ProductFamily
    assert kind(CATEGORIES, "trend") is kind(MIXED, "trend") is TrendFamily
    for space in (CATEGORIES, MIXED):
        (family,) = GaussianProcess("matern52", "multi-task", rank=3, main_effects="none").structures(space).families
        assert isinstance(family, MultiTaskFamily)
        assert family.rank == 3
        assert family.profile is MATERN52


def test_the_profile_follows_the_rewards() -> None:
    space = reals(1, 1)
    points = points_in(space, 60, seed=3)
    model = GaussianProcess(main_effects="none", members=1)
    for family in model.structures(space).families:
        assert isinstance(family, ProductFamily)
        covariance, _ = family.covariance(tensor([[-1.0, -1.0, 0.0]]), points)
        factor = torch.linalg.cholesky(covariance[0] + 1e-9 * torch.eye(60, dtype=torch.float64))
        rewards = factor @ torch.randn(60, generator=generator(), dtype=torch.float64)
        posterior = belief_of(space, Observations(points, rewards, points[:0]), model).posterior
        assert isinstance(posterior, ExactPosterior)
        assert posterior.kernel.actions.profile == family.profile


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingError, match=r"`profile` must be one of auto, .*, but got 'cosine'\."):
        GaussianProcess("cosine")
    with pytest.raises(
        SettingError, match=r"`state_kernel` must be auto, product, trend, multi-task or a function, but got 'sum'\."
    ):
        GaussianProcess(state_kernel="sum")
    for rank in (0, 1.5):
        with pytest.raises(SettingError, match=rf"`rank` must be an integer of at least 1, but got rank={rank}\."):
            GaussianProcess(state_kernel="multi-task", rank=rank)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="`noise` must be auto or small, but got 'none'"):
        GaussianProcess(noise="none")

    for states in ("trend", "multi-task"):
        for space in (reals(1, 1), reals(0, 1)):
            with pytest.raises(SettingError, match=rf"`state_kernel='{states}'` needs a state that is categorical"):
                GaussianProcess(state_kernel=states).structures(space)


def test_few_noisy_rewards_are_taken_for_exact_only_on_request() -> None:
    space = reals(1, 2)
    points = points_in(space, 20, seed=1)
    rewards = points.sum(-1) + 0.5 * torch.randn(20, generator=generator(2), dtype=torch.float64)
    observed = Observations(points, rewards, points[:0])
    usual, small = (
        fit_belief(space, bind(None, space), observed, GaussianProcess(noise=noise, members=1)).posterior
        for noise in ("auto", "small")
    )
    assert float(usual.noise_at(points).amin()) > 50 * float(small.noise_at(points).amax())


@pytest.mark.parametrize("states", ["product", "trend", "multi-task"])
def test_states_that_share_a_trend_are_predicted_better_together(states: str) -> None:
    space = Space(states={"k": Categorical([*"abcd"]), "s": Real(0, 1)}, actions={"x": Real(0, 1)})
    points, others = points_in(space, 40), points_in(space, 200, seed=7)

    def rewards(at: Tensor) -> Tensor:
        return torch.sin(6 * at[:, 2] + 2 * at[:, 1]) + 2 * (at[:, 0] > 0.5) * (1 + 0.2 * at[:, 2])

    belief = belief_of(space, Observations(points, rewards(points), points[:0]), GaussianProcess(state_kernel=states))

    mean = belief.to_reward(belief.posterior.mean(others))
    assert float((mean - rewards(others)).square().mean().sqrt()) < 0.25


def test_states_that_mirror_each_other_are_seen_by_the_multi_task_kernel() -> None:
    space = Space(states={"k": Categorical([*"ab"])}, actions={"x": Real(0, 1)})
    points = points_in(space, 40)
    sign = torch.where(points[:, 0] < 0.5, 1.0, -1.0)
    points = points[(sign > 0) | (points[:, 1] < 0.5)]  # what "b" does beyond a half is only known from "a"
    grid = torch.linspace(0.6, 1.0, 9, dtype=torch.float64)[:, None]
    hidden = torch.cat([torch.full_like(grid, 0.75), grid], -1)

    def error(model: GaussianProcess) -> float:
        waves = torch.sin(7 * points[:, 1]) * torch.where(points[:, 0] < 0.5, 1.0, -1.0)
        belief = belief_of(space, Observations(points, waves, points[:0]), model)
        mean = belief.to_reward(belief.posterior.mean(hidden))
        return float((mean + torch.sin(7 * grid[:, 0])).square().mean().sqrt())

    mirrored = error(GaussianProcess(state_kernel="multi-task", rank=1))
    assert mirrored < 0.01
    assert error(GaussianProcess(state_kernel="trend")) > 3 * mirrored


def test_a_fitted_belief_holds_everything_and_is_in_double_precision() -> None:
    belief = belief_of(CATEGORIES, told(CATEGORIES), GaussianProcess(members=1))

    assert isinstance(belief.posterior, ExactPosterior)
    assert isinstance(belief.posterior.kernel, CategoryKernel)
    assert isinstance(belief.posterior.kernel.categories, Trend)
    assert belief.n_state_dims == 1
    assert belief.device.type == "cpu"
    assert belief.posterior.factor.dtype == torch.float64
    assert belief.posterior.mean(belief.observations.points).dtype == torch.float64
    assert len(belief.observations) == 12


def test_known_noise_is_standardized_but_never_zero() -> None:
    noise = tensor([0.0, 4.0])
    observations = Observations(uniform(2, 2), tensor([1.0, 5.0]), uniform(0, 2), noise)

    known = standardized(observations, 3.0, 2.0)
    assert known.rewards.tolist() == [-1.0, 1.0]
    assert known.noise is not None
    assert known.noise.tolist() == [LEAST_NOISE, 1.0]
    assert standardized(replace(observations, noise=None), 3.0, 2.0).noise is None


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e9, 1e200])
def test_known_noise_may_be_of_any_size(scale: float) -> None:
    space = reals(1, 1)
    relative = torch.full((12,), 0.1, dtype=torch.float64)
    plain = belief_of(space, told(space, noise=relative**2))
    noise = (relative * scale).square().clamp_max(1e300)

    belief = belief_of(space, told(space, scale, noise=noise))

    others = points_in(space, 9, seed=2)
    assert torch.isfinite(belief.posterior.mean(others)).all()
    if 1e-10 < scale < 1e10:
        torch.testing.assert_close(belief.posterior.mean(others), plain.posterior.mean(others), rtol=0, atol=1e-4)


def test_noise_that_drowns_every_reward_leaves_a_model() -> None:
    space = reals(1, 1)
    belief = belief_of(space, told(space, 1e-200, noise=torch.ones(12, dtype=torch.float64)))
    mean = belief.posterior.mean(points_in(space, 9, seed=2))
    assert torch.isfinite(mean).all()
    assert float(mean.std()) < 1e-3


@pytest.mark.parametrize("noise", [None, 0.0, 1e300])
def test_the_largest_rewards_have_finite_predictions(noise: float | None) -> None:
    space = reals(1, 1)
    points = points_in(space, 12)
    rewards = LARGEST_REWARD * torch.where(points[:, 1] > 0.5, 1.0, -1.0).double()
    known = None if noise is None else torch.full_like(rewards, noise)
    belief = belief_of(space, Observations(points, rewards, points[:0], known))
    predictions = Policy(belief).predict_many([{"s0": s} for s in (0.0, 0.5, 1.0)])
    assert all(math.isfinite(p.mean) and math.isfinite(p.std) for p in predictions)
    assert all(p.mean > 0.1 * LARGEST_REWARD for p in predictions)


def test_repeated_exact_rewards_are_interpolated() -> None:
    space = reals(1, 1)
    once = told(space)
    twice = Observations(once.points.repeat(2, 1), once.rewards.repeat(2), once.pending, torch.zeros(24).double())

    belief = belief_of(space, twice)

    mean = belief.to_reward(belief.posterior.mean(once.points))
    torch.testing.assert_close(mean, once.rewards, rtol=0, atol=1e-3)


def test_points_are_snapped_to_what_the_space_allows() -> None:
    belief = belief_of(MIXED, told(MIXED))
    points = uniform(4, 3, 5, seed=3)

    snapped = belief.snap(points)

    np.testing.assert_array_equal(snapped.numpy(), MIXED.snap(points.numpy()))
    np.testing.assert_array_equal(belief.snap_actions(points[..., 2:]).numpy(), snapped[..., 2:].numpy())
    assert belief.space.has_integer_actions
    assert not belief_of(CATEGORIES, told(CATEGORIES)).space.has_integer_actions


@pytest.mark.filterwarnings("ignore")  # BoTorch has its own views on our data
def test_a_factory_of_botorch_models_takes_the_place_of_ours() -> None:
    space = CATEGORIES
    seen = []

    def factory(points: Tensor, rewards: Tensor, noise: Tensor | None) -> SingleTaskGP:
        seen.append((points, rewards, noise))
        return SingleTaskGP(points, rewards, noise, outcome_transform=None)

    observations = told(space, scale=1e5)
    belief = fit_belief(space, bind(None, space), observations, factory)

    ((points, rewards, noise),) = seen
    assert isinstance(belief.posterior, BotorchPosterior)
    assert noise is None
    assert set(points[:, 0].tolist()) <= {0.0, 1.0, 2.0}
    assert float(rewards.mean()) == pytest.approx(0, abs=1e-9)
    mean = belief.to_reward(belief.posterior.mean(observations.points))
    assert float(torch.corrcoef(torch.stack([mean, observations.rewards]))[0, 1]) > 0.9


def test_observations_remember_what_is_pending() -> None:
    table = told(reals(1, 1), noise=torch.ones(12, dtype=torch.float64))

    more = table.with_pending(uniform(2, 2)).with_pending(uniform(1, 2, seed=1))

    assert len(more) == len(table) == 12
    assert len(table.pending) == 0
    assert torch.equal(more.pending, torch.cat([uniform(2, 2), uniform(1, 2, seed=1)]))
    moved = more.to(torch.device("cpu"))
    for name in ("points", "rewards", "pending", "noise"):
        assert torch.equal(getattr(moved, name), getattr(more, name))
    assert told(reals(1, 1)).to(torch.device("cpu")).noise is None
