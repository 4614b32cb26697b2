"""KG_c three ways: against the reference, against brute force, its bounds and its gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import conbo.models.exact_gains
from conbo.acquisition.convex_integral import quantile_nodes
from conbo.acquisition.expected_max import expected_max
from conbo.acquisition.knowledge_gradient import DiscreteKG, Estimator, HybridKG, MonteCarloKG
from conbo.acquisition.knowledge_gradient_bounds import Bounds, knowledge_gradient_bounds
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.exact import condition
from conbo.models.exact_gains import ExactGains
from conbo.models.kernels import Kernel
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import (
    MODELS,
    belief_on,
    belief_with,
    finite_differences,
    generator,
    heteroscedastic_noise,
    multi_task_kernel,
    points_in,
    posterior_of,
    product_kernel,
    reals,
    reference_belief,
    reference_candidates,
    reference_states,
    relative_errors,
    tensor,
    trend_kernel,
    warped,
)

PAPER = HybridKG(n_z=5, spread=1.0, estimate="lower")
MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1), "y": Real(0, 1)})
SETTINGS: dict[str, tuple[Space, Kernel]] = {
    "matern": (reals(1, 2), product_kernel(reals(1, 2), 0.4, [0.3, 0.8], 1.7)),
    "squared exponential": (
        reals(1, 2),
        product_kernel(reals(1, 2), 0.4, [0.3, 0.8], 1.7, "squared-exponential"),
    ),
    "no states": (reals(0, 2), product_kernel(reals(0, 2))),
    "warped": (reals(1, 2), warped(product_kernel(reals(1, 2), 0.4, [0.3, 0.8], 1.7))),
    "warped mixed trend": (MIXED, warped(trend_kernel(MIXED, [0.4, 0.6, 1.1], states=0.5))),
    "mixed": (MIXED, product_kernel(MIXED, [0.5, 0.9], [0.4, 0.6, 1.1], 0.8)),
    "trend": (CATEGORIES, trend_kernel(CATEGORIES, [0.4, 0.6])),
    "mixed trend": (MIXED, trend_kernel(MIXED, [0.4, 0.6, 1.1], states=0.5)),
    "multi-task": (CATEGORIES, multi_task_kernel(CATEGORIES, [0.4, 0.6])),
    "mixed multi-task": (MIXED, multi_task_kernel(MIXED, [0.4, 0.6, 1.1], states=0.5)),
}
ESTIMATORS: dict[str, Estimator] = {
    "best": HybridKG(),
    "paper": PAPER,
    "Monte Carlo": MonteCarloKG(16),
    "discrete": DiscreteKG(40),
}
TRUTH = torch.cat([tensor([q["knowledge_gradient"] for q in model["queries"]]) for model in MODELS.values()])


def queries(name: str) -> tuple[Tensor, Tensor]:
    """Candidates (n, d) of a reference model, and one state (n, 1, d_s) for each."""
    cases = MODELS[name]["queries"]
    return reference_candidates(name, cases), reference_states(name, [case["state"] for case in cases])[:, None]


def values(belief: Belief, estimator: Estimator, candidates: Tensor, states: Tensor, seed: int = 0) -> Tensor:
    """KG_c (r, m) of candidates (r, d) at states (r, m, d_s)."""
    built = estimator.build(belief, generator(seed))
    return built.at(states)(candidates, torch.arange(len(candidates))).values


def bounds(belief: Belief, estimator: Estimator, candidates: Tensor, states: Tensor) -> Bounds:
    """What KG_c (r, m) lies between."""
    built = estimator.build(belief, generator())
    assert isinstance(built, ExactGains)
    return knowledge_gradient_bounds(built, candidates, states)


def on_reference(estimator: Estimator, seed: int = 0) -> Tensor:
    """The estimates of all reference queries."""
    return torch.cat([values(reference_belief(name), estimator, *queries(name), seed=seed)[:, 0] for name in MODELS])


def problem(name: str, r: int = 5, m: int = 3) -> tuple[Belief, Tensor, Tensor]:
    """A belief with candidates (r, d) and states (r, m, d_s)."""
    space, kernel = SETTINGS[name]
    states = points_in(space, r * m, seed=8)[:, : space.n_state_dims].unflatten(0, (r, m))
    n = 20 if space.states else 8  # of a single function 20 observations leave little to gain
    return belief_with(space, kernel, n=n), points_in(space, r, seed=7), states


@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_estimate_agrees_with_the_reference(seed: int) -> None:
    five = relative_errors(on_reference(HybridKG(5), seed), TRUTH)
    many = relative_errors(on_reference(HybridKG(27), seed), TRUTH)

    assert float(five.median()) <= 0.02
    assert float(five.quantile(0.9)) <= 0.15
    assert float(many.quantile(0.9)) <= 0.015


def test_the_paper_s_estimate_is_a_lower_bound_that_converges() -> None:
    last = torch.zeros_like(TRUTH)
    for n_z in (3, 9, 27):
        estimate = on_reference(HybridKG(n_z, spread=1.0, estimate="lower"))
        assert float((estimate / TRUTH).amax()) <= 1.002  # the reference is accurate to 0.1 %
        assert float((estimate - last).amin()) > -1e-3 * float(TRUTH.amin())
        last = estimate
    assert float(relative_errors(last, TRUTH).median()) < 0.01


def test_bounds_enclose_the_truth_and_close_in_for_nested_nodes() -> None:
    widths = []
    lower, upper = torch.zeros_like(TRUTH), torch.full_like(TRUTH, torch.inf)
    for n_z in (3, 9, 27):
        parts = [bounds(reference_belief(name), HybridKG(n_z), *queries(name)) for name in MODELS]
        low, best, high = (torch.cat([getattr(p, key)[:, 0] for p in parts]) for key in ("lower", "best", "upper"))
        assert float((low / TRUTH).amax()) <= 1.002
        assert float((high / TRUTH).amin()) >= 0.998
        assert (low <= best).all()
        assert (best <= high).all()
        assert float((low - lower).amin()) > -1e-9
        assert float((upper - high).amin()) > -1e-9
        lower, upper = low, high
        widths.append(float(((high - low) / TRUTH).median()))
    assert widths[1] < 0.5 * widths[0]
    assert widths[2] < 0.02


def test_bounds_are_refused_where_there_are_none() -> None:
    belief, candidates, states = problem("matern")
    for estimator in (MonteCarloKG(6), DiscreteKG(10)):
        with pytest.raises(SettingError, match="use HybridKG"):
            bounds(belief, estimator, candidates, states)


def test_monte_carlo_is_unbiased() -> None:
    samples = torch.stack([on_reference(MonteCarloKG(64), seed) for seed in range(12)])

    standard_error = samples.std(0) / 12**0.5
    deviation = (samples.mean(0) - TRUTH) / (standard_error + 2e-3 * TRUTH)
    assert float(deviation.abs().amax()) < 5
    assert float(deviation.square().mean().sqrt()) < 1.6


@pytest.mark.parametrize("name", SETTINGS)
def test_the_discrete_estimate_equals_brute_force_over_its_set(name: str) -> None:
    belief, candidates, states = problem(name)
    posterior, d_s = posterior_of(belief), belief.n_state_dims
    built = DiscreteKG(30).build(belief, generator())
    # the same set, drawn from the same generator
    d_x = belief.space.n_action_dims
    actions = belief.snap_actions(torch.rand(30, d_x, generator=generator(), dtype=torch.float64))

    result = built.at(states)(candidates, torch.arange(5)).values

    for r, candidate in enumerate(candidates):
        for m in range(3):
            points = torch.cat([states[r, m].expand(30, d_s), actions], -1)
            slope = posterior.look_ahead_slopes(candidate[None], points)[0]
            expected = expected_max(posterior.mean(points), slope).gain
            assert float(result[r, m]) == pytest.approx(float(expected), abs=1e-10)
    torch.testing.assert_close(built.rough(states[0])(candidates[:1])[0], result[0], rtol=0, atol=1e-12)


def test_a_large_discrete_set_comes_close_to_the_reference() -> None:
    name = "one-state-one-action"
    truth = tensor([query["knowledge_gradient"] for query in MODELS[name]["queries"]])

    estimate = values(reference_belief(name), DiscreteKG(1000), *queries(name))[:, 0]

    assert float(relative_errors(estimate, truth).amax()) < 0.02


@given(st.integers(0, 10**6), st.sampled_from(sorted(SETTINGS)), st.sampled_from(["best", "paper", "discrete"]))
@settings(max_examples=40)
def test_values_are_never_negative(seed: int, name: str, estimator: str) -> None:
    space, kernel = SETTINGS[name]
    belief = belief_with(space, kernel, n=1 + seed % 20, noise=10.0 ** -(seed % 7), seed=seed)
    candidates = torch.cat([points_in(space, 3, seed + 1), belief.observations.points[:1]])
    states = points_in(space, 8, seed + 2)[:, : space.n_state_dims].unflatten(0, (4, 2))

    result = values(belief, ESTIMATORS[estimator], candidates, states)

    assert torch.isfinite(result).all()
    assert float(result.amin()) >= 0


@pytest.mark.parametrize("estimator", ["best", "paper", "discrete"])
@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_is_gained_at_known_points(name: str, estimator: str) -> None:
    space, kernel = SETTINGS[name]
    once = belief_with(space, kernel, n=10, noise=1e-7)
    points, rewards = once.observations.points.repeat(3, 1), once.observations.rewards.repeat(3)
    belief = belief_on(space, condition(kernel, 0.0, 1e-7, points, rewards), points, rewards)
    states = points[:10, None, : space.n_state_dims]
    elsewhere = points_in(space, 10, seed=5)

    known = values(belief, ESTIMATORS[estimator], points[:10], states)
    unknown = values(belief, ESTIMATORS[estimator], elsewhere, elsewhere[:, None, : space.n_state_dims])

    assert float(known.amax()) < 1e-6
    assert float(unknown.amax()) > 1e-3


@pytest.mark.parametrize("noise", ["one for all", "varying"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", SETTINGS)
def test_the_gradient_equals_finite_differences_with_the_maximizers_held_fixed(
    name: str, estimator: str, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    belief, candidates, states = problem(name)
    if noise == "varying":
        space, kernel = SETTINGS[name]
        belief = belief_with(space, kernel, len(belief.observations), noise=heteroscedastic_noise(space))
    d = candidates.shape[1]
    candidates = 0.02 + 0.96 * candidates
    weights = torch.rand(5, 3, generator=generator(3), dtype=torch.float64)
    ahead = ESTIMATORS[estimator].build(belief, generator()).at(states)
    rows = torch.arange(5)
    ahead(candidates, rows)
    monkeypatch.setattr(conbo.models.exact_gains, "WARM_STEPS", 0)

    gradient = ahead(candidates, rows).gradient(weights)

    def total(points: Tensor) -> Tensor:
        return (ahead(points, rows).values * weights).sum(-1)

    numbers = [c for c, k in enumerate(belief.space.state_categories + belief.space.action_categories) if not k]
    numeric = finite_differences(total, candidates, 1e-6)
    torch.testing.assert_close(gradient[:, numbers], numeric[:, numbers], rtol=1e-5, atol=1e-6)
    assert float(gradient.abs().amax()) > 1e-3
    assert not gradient[:, [c for c in range(d) if c not in numbers]].any()


def test_following_the_gradient_tracks_the_maximizers() -> None:
    belief, candidates, states = problem("matern")
    ahead = HybridKG(9).build(belief, generator()).at(states)
    rows = torch.arange(5)
    ahead(candidates, rows)
    moved = (candidates + 0.01).clamp(0, 1)

    warm = ahead(moved, rows).values
    cold = values(belief, HybridKG(9), moved, states)

    torch.testing.assert_close(warm, cold, rtol=0.02, atol=1e-4)


def test_rows_choose_their_sets_of_states() -> None:
    belief, candidates, states = problem("matern")
    rows = torch.arange(5)
    ahead = PAPER.build(belief, generator()).at(states)
    all_rows = ahead(candidates, rows).values

    some = ahead(candidates[[3, 1]], tensor([3, 1]).long()).values

    torch.testing.assert_close(some, all_rows[[3, 1]], rtol=1e-3, atol=1e-6)


def test_integer_actions_are_maximized_over_integers_only() -> None:
    space = Space(states={"s": Real(0, 1)}, actions={"n": Integer(1, 6)})
    belief = belief_with(space, product_kernel(space, 0.4, 0.3), n=12)
    posterior = posterior_of(belief)
    candidates = points_in(space, 6, seed=7)
    states = points_in(space, 6, seed=8)[:, None, :1]
    levels = tensor(space.actions["n"].levels())[:, None]  # type: ignore[union-attr]

    result = values(belief, HybridKG(27, spread=1.0, estimate="lower"), candidates, states)[:, 0]

    for r in range(6):
        points = torch.cat([states[r].expand(6, 1), levels], -1)
        slope = posterior.look_ahead_slopes(candidates[r : r + 1], points)[0]
        truth = float(expected_max(posterior.mean(points), slope).gain)
        assert float(result[r]) <= truth + 1e-9
        assert float(result[r]) >= 0.9 * truth - 1e-4


def test_more_nodes_matter_less_and_less() -> None:
    belief, candidates, states = problem("matern", r=20)
    fine = values(belief, HybridKG(27), candidates, states)

    errors = [float((values(belief, HybridKG(n), candidates, states) - fine).abs().mean()) for n in (3, 5, 9)]

    assert errors[0] > errors[2]
    assert errors[2] < 0.01 * float(fine.mean())


@pytest.mark.parametrize("estimator", ["best", "paper", "Monte Carlo"])
def test_screening_resembles_the_full_value(estimator: str) -> None:
    belief, candidates, states = problem("matern", r=40)
    built = (
        HybridKG().build(belief, generator())
        if estimator == "best"
        else ESTIMATORS[estimator].build(belief, generator())
    )

    shared = states[:1].expand_as(states)
    rough = built.rough(states[0])(candidates).sum(-1)
    full = values(belief, HybridKG(9), candidates, shared).sum(-1)

    assert rough.shape == (40,)
    ranks = torch.stack([rough, full]).argsort(-1).argsort(-1).double()
    assert float(torch.corrcoef(ranks)[0, 1]) > 0.8


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_same_generator_gives_the_same_values_in_double_precision(estimator: str) -> None:
    belief, candidates, states = problem("mixed")

    first, second = (values(belief, ESTIMATORS[estimator], candidates, states, seed=4) for _ in range(2))

    assert torch.equal(first, second)
    assert first.dtype == torch.float64


def test_the_middle_node_is_the_present_policy() -> None:
    belief, candidates, states = problem("matern")
    built = HybridKG(5).build(belief, generator())

    lines = built.at(states)(candidates, torch.arange(5)).lines  # type: ignore[union-attr]

    grid = torch.cartesian_prod(*(torch.linspace(0, 1, 41, dtype=torch.float64),) * 2)
    for r in range(5):
        for m in range(3):
            points = torch.cat([states[r, m].expand(len(grid), 1), grid], -1)
            assert float(lines.mean[r, m, 2]) >= float(belief.posterior.mean(points).amax()) - 1e-6
    assert float(quantile_nodes(5)[2]) == 0


@pytest.mark.parametrize(
    ("recipe", "settings_", "message"),
    [
        (HybridKG, {"n_z": 4}, "`n_z` must be odd and at least 3, so that z = 0 is a node, but got 4."),
        (HybridKG, {"n_z": 1}, "`n_z` must be odd and at least 3"),
        (HybridKG, {"estimate": "worst"}, "but got 'worst'"),
        (MonteCarloKG, {"n_z": 0}, "`n_z` must be at least 1, but got 0."),
        (DiscreteKG, {"n": 0}, "`n` must be at least 1, but got 0."),
    ],
)
def test_settings_that_make_no_sense_are_refused(recipe: type, settings_: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        recipe(**settings_)
