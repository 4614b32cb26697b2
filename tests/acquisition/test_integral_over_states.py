"""The integral over states: exact sums, quadratures against the reference, and what they must never do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import conbo.acquisition.quadrature_states
import conbo.models.exact_gains
from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import DiscreteKG, HybridKG, MonteCarloKG
from conbo.acquisition.quadrature_states import (
    ExactStates,
    GaussianStates,
    StateRuleRecipe,
    StratifiedStates,
    by_importance,
    curve_order,
)
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.exact import condition
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.state_distributions import RecipeLike, Triangular, Uniform, Weights
from random_beliefs import (
    MODELS,
    belief_on,
    belief_with,
    finite_differences,
    generator,
    points_in,
    product_kernel,
    reals,
    reference_belief,
    reference_candidates,
    relative_errors,
    tensor,
    trend_kernel,
    uniform,
)

CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1)})
MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
INTEGRALS = [name for name, model in MODELS.items() if "integrals" in model]
DISTRIBUTIONS: dict[str, RecipeLike] = {"uniform": Uniform(), "triangular": Triangular()}


def integral_errors(recipe: StateRuleRecipe, seed: int, n_z: int = 5) -> Tensor:
    """Relative errors of all integrals of the reference."""
    errors = []
    for name in INTEGRALS:
        cases = MODELS[name]["integrals"]
        for key, distribution in DISTRIBUTIONS.items():
            acquisition = ConBO(HybridKG(n_z), recipe).build(reference_belief(name, distribution), generator(seed))
            truth = tensor([case[key] for case in cases])
            errors.append(relative_errors(acquisition(reference_candidates(name, cases)), truth))
    return torch.cat(errors)


def dense(belief: Belief, candidates: Tensor, n: int = 600) -> Tensor:
    """∫ KG_c P[s] ds over one state by the midpoint rule, with many nodes."""
    grid = (torch.arange(n, dtype=torch.float64)[:, None] + 0.5) / n
    ahead = HybridKG(9).build(belief, generator()).at(grid.expand(len(candidates), -1, -1))
    return (ahead(candidates, torch.arange(len(candidates))).values * belief.states.density(grid)).mean(-1)


@pytest.mark.parametrize("seed", range(4))
def test_twenty_states_come_within_ten_percent_of_the_reference(seed: int) -> None:
    errors = integral_errors(StratifiedStates(), seed)

    assert len(errors) == 24
    assert float(errors.square().mean().sqrt()) < 0.1


def test_more_states_and_nodes_come_closer() -> None:
    errors = integral_errors(StratifiedStates(100, 1024), seed=0, n_z=27)

    assert float(errors.square().mean().sqrt()) < 0.03
    assert float(errors.median()) < 0.003


def test_finitely_many_states_are_summed_exactly() -> None:
    weights = {"a": 0.5, "b": 0.3, "c": 0.2}
    belief = belief_with(CATEGORIES, trend_kernel(CATEGORIES), distribution=Weights(weights))
    candidates = points_in(CATEGORIES, 6, seed=3)
    for recipe in (StratifiedStates(), GaussianStates()):
        result = ConBO(HybridKG(), recipe).build(belief, generator(1))(candidates)

        states = tensor([[1 / 6], [0.5], [5 / 6]]).expand(6, 3, 1)
        ahead = HybridKG().build(belief, generator(1)).at(states)
        expected = ahead(candidates, torch.arange(6)).values @ tensor([0.5, 0.3, 0.2])
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-9)


def test_without_states_it_is_the_knowledge_gradient_itself() -> None:
    space = reals(0, 2)
    belief = belief_with(space, product_kernel(space))
    candidates = points_in(space, 5, seed=3)

    result = ConBO(HybridKG()).build(belief, generator())(candidates)

    expected = HybridKG().build(belief, generator()).at(candidates[:, None, :0])(candidates, torch.arange(5)).values
    torch.testing.assert_close(result, expected[:, 0])
    assert result.shape == (5,)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_paper_s_proposal_agrees_with_dense_quadrature_on_average(distribution: str) -> None:
    space = reals(1, 1)
    belief = belief_with(space, product_kernel(space, 0.1, 0.3), n=25, distribution=DISTRIBUTIONS[distribution])
    candidates = torch.cat([tensor([[0.5], [0.4], [0.65]]), uniform(3, 1, seed=5)], -1)
    truth = dense(belief, candidates)

    draws = torch.stack(
        [ConBO(HybridKG(9), GaussianStates(100)).build(belief, generator(i))(candidates) for i in range(12)]
    )

    standard_error = draws.std(0) / 12**0.5
    assert ((draws.mean(0) - truth).abs() < 4 * standard_error + 0.01 * truth).all()
    assert (standard_error < 0.2 * truth).all()


def test_the_stratified_rule_is_far_more_accurate_than_the_paper_s() -> None:
    space = reals(1, 1)
    belief = belief_with(space, product_kernel(space, 0.4, 0.3), n=12)
    candidates = points_in(space, 10, seed=4)
    truth = dense(belief, candidates, 500)

    def error(recipe: StateRuleRecipe) -> float:
        runs = [ConBO(HybridKG(9), recipe).build(belief, generator(i))(candidates) for i in range(4)]
        return float(((torch.stack(runs) - truth) / truth).square().mean().sqrt())

    assert error(StratifiedStates()) < 0.1
    assert error(StratifiedStates()) < 0.5 * error(GaussianStates())


@given(
    st.integers(0, 10**6),
    st.sampled_from(["stratified", "gaussian"]),
    st.sampled_from(["best", "paper", "discrete"]),
)
@settings(max_examples=30)
def test_values_are_never_negative(seed: int, rule: str, value: str) -> None:
    space = reals(2, 1)
    belief = belief_with(space, product_kernel(space), n=1 + seed % 12, seed=seed, noise=10.0 ** -(seed % 6))
    estimator = {"best": HybridKG(), "paper": HybridKG(3, 1.0, "lower"), "discrete": DiscreteKG(20)}[value]
    recipe: StateRuleRecipe = {"stratified": StratifiedStates(8), "gaussian": GaussianStates(8)}[rule]
    acquisition = ConBO(estimator, recipe).build(belief, generator(seed))
    candidates = points_in(space, 5, seed)

    for result in (acquisition(candidates), acquisition.screen(candidates)):
        assert torch.isfinite(result).all()
        assert float(result.amin()) >= 0


def test_nothing_is_gained_where_the_sample_can_change_nothing() -> None:
    # state c is never met, and the states have nothing in common
    belief = belief_with(CATEGORIES, product_kernel(CATEGORIES, 0.02, 0.3), distribution=Weights({"a": 1.0, "b": 1.0}))
    acquisition = ConBO(HybridKG()).build(belief, generator())
    actions = uniform(5, 1, seed=3)

    useless = acquisition(torch.cat([torch.full((5, 1), 5 / 6, dtype=torch.float64), actions], -1))
    useful = acquisition(torch.cat([torch.full((5, 1), 0.5, dtype=torch.float64), actions], -1))

    assert float(useless.amax()) < 1e-12
    assert float(useful.amax()) > 1e-3


def test_nothing_is_gained_at_known_points() -> None:
    space = reals(1, 1)
    kernel = product_kernel(space)
    once = belief_with(space, kernel, n=10, noise=1e-7).observations
    points, rewards = once.points.repeat(3, 1), once.rewards.repeat(3)
    belief = belief_on(space, condition(kernel, 0.0, 1e-7, points, rewards), points, rewards)

    assert float(ConBO(HybridKG()).build(belief, generator())(once.points).amax()) < 1e-6


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("d_s", [1, 2])
@pytest.mark.parametrize("by_value", [False, True], ids=["by likeness", "by value"])
def test_stratified_weights_integrate_over_states(by_value: bool, d_s: int, distribution: str) -> None:
    space = reals(d_s, 1)
    belief = belief_with(space, product_kernel(space, 0.5), distribution=DISTRIBUTIONS[distribution])
    around = uniform(7, d_s, seed=2)
    sums, means = [], []
    for seed in range(20):
        rule = StratifiedStates(40, 512).build(belief, generator(seed))
        # an importance that is zero in places
        importance = (rule.pool[:, 0] - 0.3).clamp_min(0).expand(7, -1) if by_value else None
        chosen = rule.around(around, importance)
        assert chosen.states.shape == (7, 40, d_s)
        assert float(chosen.weights.amin()) > 0
        sums.append(chosen.weights.sum(-1))
        means.append((chosen.weights[..., None] * chosen.states).sum(1))

    # a constant is the hardest: the rule is made for values that follow the importance
    weights, states = torch.stack(sums), torch.stack(means)
    assert float(weights.mean()) == pytest.approx(1, abs=0.03 if d_s == 1 else 0.1)
    assert float((weights - 1).square().mean().sqrt()) < (0.05 if d_s == 1 else 0.2)
    torch.testing.assert_close(
        states.mean((0, 1)),
        torch.full((d_s,), 0.5, dtype=torch.float64),
        rtol=0,
        atol=0.02 if d_s == 1 else 0.06,
    )


def test_states_are_denser_where_they_matter() -> None:
    space = reals(1, 1)
    rule = StratifiedStates().build(belief_with(space, product_kernel(space, 0.1)), generator())

    near = rule.around(tensor([[0.2], [0.9]])).states[..., 0]
    far = rule.around(tensor([[0.2]]), (rule.pool[:, 0] > 0.7).double()[None]).states[..., 0]

    assert float((near[0] - 0.2).abs().median()) < 0.15
    assert float((near[1] - 0.9).abs().median()) < 0.15
    assert float((far > 0.7).double().mean()) > 0.5


def test_gaussian_weights_integrate_constants_on_average() -> None:
    space = reals(2, 1)
    belief = belief_with(space, product_kernel(space, 0.5))

    weights = GaussianStates(20_000).build(belief, generator()).around(tensor([[0.5, 0.6], [0.2, 0.9]])).weights

    torch.testing.assert_close(weights.sum(-1), torch.ones(2, dtype=torch.float64), rtol=0, atol=0.06)
    assert (weights == 0).any()  # states outside are lost


def test_gaussian_states_lie_around_the_candidate() -> None:
    space = reals(1, 1)
    belief = belief_with(space, product_kernel(space, 0.05))

    chosen = GaussianStates(500).build(belief, generator()).around(tensor([[0.5]]))

    assert chosen.states.shape == (1, 500, 1)
    assert float(chosen.states.std()) == pytest.approx(0.05, rel=0.15)


def test_many_finite_states_are_sampled() -> None:
    space = Space(states={"n": Integer(1, 1000)}, actions={"x": Real(0, 1)})
    belief = belief_with(space, product_kernel(space))
    for recipe in (StratifiedStates(), GaussianStates()):
        rule = recipe.build(belief, generator())

        chosen = rule.around(points_in(space, 3)[:, :1])

        assert not isinstance(rule, ExactStates)
        assert chosen.states.shape == (3, 20, 1)
        valid = torch.from_numpy(space.snap_states(chosen.states.numpy()))
        torch.testing.assert_close(chosen.states, valid, rtol=0, atol=1e-12)


HUNDRED = Space(states={"k": Categorical(range(100))}, actions={"x": Real(0, 1), "y": Real(0, 1)})


@pytest.mark.parametrize("variances", [(1.0, 0.4, 0.2), (0.2, 1.0, 0.2)], ids=["mostly shared", "mostly own"])
@pytest.mark.parametrize("weights", [None, {k: 1 + k % 3 for k in range(100)}], ids=["uniform", "weights"])
def test_twenty_of_a_hundred_states_stand_for_all(
    variances: tuple[float, float, float], weights: dict[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = None if weights is None else Weights(weights)
    belief = belief_with(HUNDRED, trend_kernel(HUNDRED, 0.5, variances), n=60, distribution=distribution)
    candidates = points_in(HUNDRED, 12, seed=3)
    sampled = ConBO(HybridKG()).build(belief, generator())
    monkeypatch.setattr(conbo.acquisition.quadrature_states, "MOST_CLIMBED", 100)
    exact = ConBO(HybridKG()).build(belief, generator())
    assert isinstance(exact.rule, ExactStates)
    assert not isinstance(sampled.rule, ExactStates)

    truth = exact(candidates)

    errors = relative_errors(sampled.integral(candidates), truth)
    assert float(errors.square().mean().sqrt()) < 0.15
    torch.testing.assert_close(sampled(candidates), truth, rtol=1e-6, atol=0)  # what decides is the exact sum
    # a rough estimate, but at all states: it knows the candidate's own
    assert float(torch.corrcoef(torch.stack([sampled.screen(candidates), truth]))[0, 1]) > 0.8


def test_a_state_that_shares_little_with_others_is_among_those_of_its_candidates() -> None:
    belief = belief_with(HUNDRED, trend_kernel(HUNDRED, 0.5, (0.05, 1.0, 0.2)), n=60)
    candidates = points_in(HUNDRED, 8, seed=3)

    chosen = ConBO(HybridKG()).build(belief, generator()).states_of(candidates)

    own = (chosen.states[..., 0] - candidates[:, :1]).abs() < 1e-9
    assert own.sum(-1).tolist() == [1] * 8
    torch.testing.assert_close(chosen.weights[own], torch.full((8,), 0.01, dtype=torch.float64))


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_what_is_chosen_by_importance_stands_for_the_whole(seed: int, n: int) -> None:
    importance = uniform(5, 30, seed=seed) ** 8  # a few are much more important than others
    importance[0] = 0.0
    importance[1, :29] = 0.0

    index, stands_for = by_importance(importance, n)

    assert index.shape == stands_for.shape == (5, n)
    represented = (importance.gather(1, index) * stands_for).sum(-1)
    torch.testing.assert_close(represented, importance.sum(-1))
    large = importance * n > importance.sum(-1, keepdim=True)
    for row in range(2, 5):
        for place in torch.nonzero(large[row])[:, 0]:
            (slot,) = torch.nonzero(index[row] == place)[:, 0]
            assert float(stands_for[row, slot]) == 1.0


def test_mixed_states_are_integrated_like_others() -> None:
    belief = belief_with(MIXED, product_kernel(MIXED))
    acquisition = ConBO(HybridKG(), GaussianStates()).build(belief, generator())
    candidates = points_in(MIXED, 6, seed=3)

    result, chosen = acquisition(candidates), acquisition.states_of(candidates)

    assert float(result.amax()) > 1e-3
    valid = torch.from_numpy(MIXED.snap_states(chosen.states.numpy()))
    torch.testing.assert_close(chosen.states, valid, rtol=0, atol=1e-12)


@pytest.mark.parametrize("recipe", [StratifiedStates(), GaussianStates()], ids=["stratified", "gaussian"])
def test_local_values_have_the_right_gradient_with_states_held_fixed(
    recipe: StateRuleRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = reals(1, 2)
    belief = belief_with(space, product_kernel(space, 0.5, [0.3, 0.8]))
    starts = 0.02 + 0.96 * points_in(space, 4, seed=3)
    acquisition = ConBO(HybridKG(), recipe).build(belief, generator())
    function, rows = acquisition.local(starts), torch.arange(4)
    function(starts, rows)
    monkeypatch.setattr(conbo.models.exact_gains, "WARM_STEPS", 0)

    value, gradient = function(starts, rows)

    numeric = finite_differences(lambda points: function(points, rows)[0], starts, 1e-6)
    torch.testing.assert_close(gradient, numeric, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(value, acquisition(starts), rtol=0.2, atol=1e-3)


def test_the_same_generator_gives_the_same_values() -> None:
    space = reals(2, 1)
    belief = belief_with(space, product_kernel(space))
    candidates = points_in(space, 4, seed=1)
    for recipe in (ConBO(HybridKG()), ConBO(MonteCarloKG(8), GaussianStates())):
        first, second = (recipe.build(belief, generator(3))(candidates) for _ in range(2))
        assert torch.equal(first, second)
        assert first.dtype == torch.float64


def test_the_curve_visits_every_point_and_keeps_neighbors_together() -> None:
    line = uniform(50, 1, seed=1)
    assert torch.equal(line[curve_order(line)], line.sort(0).values)
    square = uniform(400, 2, seed=2)

    order = curve_order(square)

    assert sorted(order.tolist()) == list(range(400))
    steps, shuffled = square[order].diff(dim=0).norm(dim=-1), square.diff(dim=0).norm(dim=-1)
    assert float(steps.mean()) < 0.25 * float(shuffled.mean())
    assert sorted(curve_order(uniform(30, 9, seed=3)).tolist()) == list(range(30))
    assert sorted(curve_order(torch.ones(5, 2, dtype=torch.float64)).tolist()) == list(range(5))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingError, match=r"`1 <= n_states <= pool`.*n_states=300, pool=256"):
        StratifiedStates(300)
    with pytest.raises(SettingError, match="n_states=0"):
        StratifiedStates(0)
    with pytest.raises(SettingError, match=r"`n_states` must be at least 1, but got 0\."):
        GaussianStates(0)
