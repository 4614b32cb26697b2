import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from conbo.bound_states import StateDistribution, bind
from conbo.errors import PointError, SpaceError
from conbo.quasi_random import sobol
from conbo.spaces import Categorical, Integer, Parameter, Real, Space
from conbo.state_distributions import Density, Normal, Product, RecipeLike, Triangular, Uniform, Weights


def space_of(**states: Parameter) -> Space:
    return Space(states=states, actions={"x": Real(0, 1)})


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def grid(n: int) -> torch.Tensor:
    return (torch.arange(n, dtype=torch.float64)[:, None] + 0.5) / n


LINEAR, LOG = Real(2, 6), Real(0.1, 10, log=True)
DAYS = Categorical(["mon", "tue", "sun"])

REAL_CASES = [
    (LINEAR, None),
    (LINEAR, Triangular()),
    (LINEAR, Triangular(2)),
    (LINEAR, Normal(3, 1)),
    (LINEAR, Normal(40, 2)),
    (LOG, Uniform()),
    (LOG, Triangular(1)),
    (LOG, Normal(2, 1)),
    (LINEAR, lambda state: math.exp(-state["s"])),
    (LINEAR, Density(lambda state: math.exp(-state["s"]), bound=0.2)),
    (LOG, lambda state: state["s"]),
    (LOG, Density(lambda state: state["s"], bound=10)),
]

DISCRETE_CASES = [
    (Integer(1, 6), None),
    (Integer(1, 6), Triangular(2)),
    (Integer(1, 6), Normal(5, 1)),
    (Integer(1, 6), Weights({2: 1, 5: 3, 6: 0})),
    (Integer(1, 6, log=True), None),
    (Integer(1, 6, log=True), Normal(3, 2)),
    (Integer(1, 6, log=True), lambda state: state["s"]),
    (DAYS, None),
    (DAYS, Weights({"sun": 2, "mon": 1})),
    (DAYS, {"s": Weights({"sun": 2, "tue": 1.5, "mon": 1})}),
    (DAYS, lambda state: len(state["s"]) + (state["s"] == "sun")),
]


@pytest.mark.filterwarnings("ignore:.* of its weight on:UserWarning")
@pytest.mark.parametrize(("parameter", "recipe"), REAL_CASES)
def test_samples_of_a_real_state_follow_its_density(parameter: Real, recipe: RecipeLike) -> None:
    distribution = bind(recipe, space_of(s=parameter))
    places = grid(2000)
    density = distribution.density(places)
    assert density.mean().item() == pytest.approx(1, abs=2e-3)

    edges = torch.linspace(0, 1, 2001, dtype=torch.float64)
    cdf = torch.cat([torch.zeros(1), density.cumsum(0)]) / density.sum()
    for states in (distribution.sample(2000, generator()), distribution.from_uniform(grid(2000))):
        assert states.shape == (2000, 1)
        assert states.dtype == torch.float64
        test = stats.kstest(states[:, 0].numpy(), lambda x: np.interp(x, edges.numpy(), cdf.numpy()))
        assert test.pvalue > 0.01


@pytest.mark.parametrize(("parameter", "recipe"), DISCRETE_CASES)
def test_samples_of_a_discrete_state_follow_its_probabilities(
    parameter: Integer | Categorical, recipe: RecipeLike
) -> None:
    distribution = bind(recipe, space_of(s=parameter))
    finite = distribution.finite()
    assert finite is not None
    levels, probabilities = finite
    assert (probabilities > 0).all()
    assert probabilities.sum().item() == pytest.approx(1)
    assert distribution.density(grid(20_000)).mean().item() == pytest.approx(1, abs=1e-3)

    lower, upper = parameter.cell(levels[:, 0].numpy())
    torch.testing.assert_close(distribution.density(levels), probabilities / torch.from_numpy(upper - lower))

    counts = [(distribution.sample(2000, generator()) == level).sum().item() for level in levels]
    assert sum(counts) == 2000
    assert stats.chisquare(counts, 2000 * probabilities.numpy()).pvalue > 0.01


def test_densities_are_in_the_units_of_the_user() -> None:
    log_real = bind(lambda state: 1.0, space_of(s=LOG))
    middle = torch.tensor([[0.5]], dtype=torch.float64)  # the value 1, where dv/du = log(100)
    assert log_real.density(middle).item() == pytest.approx(math.log(100) / 9.9, rel=1e-3)
    assert bind(Triangular(1), space_of(s=LOG)).density(middle).item() == pytest.approx(2 / 9.9 * math.log(100))
    log_integer = bind(lambda state: 1.0, space_of(s=Integer(1, 4, log=True))).finite()
    assert log_integer is not None
    assert log_integer[1].tolist() == [0.25] * 4


def test_uniform_is_log_uniform_on_a_log_scale() -> None:
    finite = bind(None, space_of(s=Integer(1, 2, log=True))).finite()
    assert finite is not None
    np.testing.assert_allclose(finite[1], [math.log(3) / math.log(5), math.log(5 / 3) / math.log(5)])


MIXED = space_of(a=LINEAR, n=Integer(1, 4), c=DAYS)


@st.composite
def products(draw: st.DrawFn) -> Product:
    mean, sd, mode = draw(st.floats(0, 8)), draw(st.floats(1, 9)), draw(st.floats(2, 4))
    number = st.sampled_from([Uniform(), Triangular(), Triangular(mode), Normal(mean, sd)])
    weights = st.lists(st.floats(0.01, 9), min_size=3, max_size=3)
    category = weights.map(lambda w: Weights(dict(zip(DAYS.choices, w, strict=True))))
    return Product({"a": draw(number), "n": draw(number), "c": draw(category)})


@settings(max_examples=25, deadline=None)
@given(products())
def test_density_and_quantiles_of_a_product_agree(
    recipe: Product,
) -> None:
    distribution = bind(recipe, MIXED)
    u = sobol(4096, 3, seed=1)
    density = distribution.density(u)
    assert density.mean().item() == pytest.approx(1, abs=0.05)
    states = distribution.from_uniform(u)
    np.testing.assert_array_equal(MIXED.snap_states(states.numpy()), states.numpy())
    # the same expectations, once by states that follow P[s] and once by uniform states and their density
    expected = (density[:, None] * torch.from_numpy(MIXED.snap_states(u.numpy()))).mean(0)
    torch.testing.assert_close(states.mean(0), expected, atol=0.03, rtol=0)


def mean_values(distribution: StateDistribution, space: Space, u: torch.Tensor) -> np.ndarray:
    rows = space.decode_states(distribution.from_uniform(u).numpy())
    return np.mean([[state["a"], state["b"]] for state in rows], axis=0)


def test_quasi_random_points_give_even_states_of_any_density() -> None:
    space = space_of(a=Real(0, 1), b=Real(0, 1))
    distribution = bind(lambda state: 1.5 - state["a"] * state["b"], space)
    expected = (0.75 - 1 / 6) / 1.25  # of both, by symmetry
    np.testing.assert_allclose(mean_values(distribution, space, sobol(256, 2, seed=3)), expected, atol=4e-3)
    assert not distribution.has_quantile


@pytest.mark.parametrize("bound", [None, 1.5])
def test_any_density_of_a_mixed_state_is_sampled(bound: float | None) -> None:
    recipe = Density(lambda state: 1.5 if state["c"] == "sun" and state["n"] > 2 else 0.5, bound=bound)
    states = MIXED.decode_states(bind(recipe, MIXED).sample(1500, generator()).numpy())
    favored = sum(state["c"] == "sun" and state["n"] > 2 for state in states)
    assert stats.binomtest(favored, 1500, 2 * 1.5 / (2 * 1.5 + 10 * 0.5)).pvalue > 0.01


def test_the_sampler_of_the_user_is_used_and_follows_the_generator() -> None:
    def sampler(rng: np.random.Generator, n: int) -> list[dict[str, float]]:
        return [{"s": 2 + 4 * value} for value in rng.beta(2, 1, n)]

    space = space_of(s=LINEAR)
    distribution = bind(Density(lambda state: state["s"] - 2, sampler), space)
    states = distribution.sample(500, generator(5))
    assert stats.kstest(states[:, 0].numpy(), stats.beta(2, 1).cdf).pvalue > 0.01
    assert torch.equal(states, distribution.sample(500, generator(5)))
    assert not torch.equal(states, distribution.sample(500, generator(6)))


@pytest.mark.parametrize("recipe", [None, Triangular(), Density(lambda s: s["s"]), Density(lambda s: s["s"], bound=6)])
def test_sampling_depends_on_the_generator_alone(recipe: RecipeLike) -> None:
    before = torch.get_rng_state()
    distribution = bind(recipe, space_of(s=LINEAR))
    assert torch.equal(distribution.sample(5, generator(1)), distribution.sample(5, generator(1)))
    assert not torch.equal(distribution.sample(5, generator(1)), distribution.sample(5, generator(2)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("recipe", [None, Uniform(), {}, lambda state: 2.0])
def test_no_states_are_one_state(recipe: RecipeLike) -> None:
    distribution = bind(recipe, Space(actions={"x": Real(0, 1)}))
    assert distribution.sample(3, generator()).shape == (3, 0)
    assert distribution.from_uniform(torch.empty(2, 0, dtype=torch.float64)).shape == (2, 0)
    assert distribution.density(torch.empty(2, 5, 0, dtype=torch.float64)).tolist() == [[1.0] * 5] * 2
    finite = distribution.finite()
    assert finite is not None
    assert finite[0].shape == (1, 0)
    assert finite[1].tolist() == [1.0]


def test_finite_lists_all_states_unless_they_are_too_many() -> None:
    space = space_of(n=Integer(1, 3), c=DAYS)
    for recipe in (None, lambda state: 1.0):
        finite = bind(recipe, space).finite()
        assert finite is not None
        decoded = space.decode_states(finite[0].numpy())
        assert decoded == [{"n": n, "c": c} for n in (1, 2, 3) for c in DAYS.choices]
        torch.testing.assert_close(finite[1], torch.full((9,), 1 / 9, dtype=torch.float64))
        assert bind(recipe, space).finite(max_states=8) is None
    tail = bind(Normal(1, 0.01), space_of(s=Integer(1, 9))).finite()
    assert tail is not None
    assert (tail[1] > 0).all()
    assert bind(None, MIXED).finite() is None
    assert bind(Triangular(), space_of(s=Integer(0, 10**12))).finite() is None


def test_the_density_is_zero_outside_the_cube_and_keeps_the_shape() -> None:
    for recipe in (None, lambda state: 1.0):
        density = bind(recipe, MIXED).density(torch.tensor([[[0.5, 0.5, 1.5]], [[0.5, 0.5, 0.5]]]))
        assert density.shape == (2, 1)
        assert bind(recipe, MIXED).density(torch.full((3,), 0.5)).shape == ()
        torch.testing.assert_close(density[:, 0], torch.tensor([0.0, 1.0], dtype=torch.float64))


def test_one_recipe_applies_to_every_parameter_and_a_missing_one_is_uniform() -> None:
    space = space_of(a=LINEAR, b=LINEAR)
    corner = torch.tensor([[0.5, 0.5], [0.25, 0.5]], dtype=torch.float64)
    assert bind(Triangular(), space).density(corner).tolist() == pytest.approx([4.0, 2.0])
    assert bind({"a": Triangular()}, space).density(corner).tolist() == pytest.approx([2.0, 1.0])
    assert bind(None, space).has_quantile


def test_a_narrow_density_warns() -> None:
    with pytest.warns(UserWarning, match=r"so narrow that only \d+ of 8192 quasi-random states carry it"):
        bind(lambda state: float(abs(state["s"] - 4) < 1e-3), space_of(s=LINEAR))


ONE = space_of(demand=LINEAR)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Normal(math.nan, 1), r"`mean` must be a finite number, but got mean=nan\."),
        (lambda: bind(Normal(1e300, 1), ONE), r"'demand' must have some of its weight from"),
        (lambda: bind(Normal(3, 5e-324), ONE), r"'demand' must have a finite density over its range, but got Normal"),
        (lambda: bind(Normal(10**30, 1), ONE), r"'demand' must have some of its weight from"),
        (lambda: Normal(10**400, 1), r"`mean` must be a finite number, but got mean=10"),
        (lambda: Weights({"a": 1e308, "b": 1e308}), r"weights must have a positive and finite sum, but got"),
        (lambda: Normal(0, 0), r"`0 < sd < inf` must hold, but got sd=0\."),
        (lambda: Normal(0, "1"), r"`0 < sd < inf` must hold, but got sd='1'\."),
        (lambda: Triangular("high"), r"`mode` must be a finite number, but got mode='high'\."),
        (lambda: Weights([1, 2]), r"`weights` must be a mapping from values to weights, but got \[1, 2\]\."),
        (lambda: Weights({"a": -1}), r"a weight must be finite and not negative, but got -1 for 'a'\."),
        (
            lambda: Weights({"a": math.nan}),
            r"a weight must be finite and not negative, but got nan for 'a'\.",
        ),
        (lambda: Weights({"a": 0}), r"weights must have a positive and finite sum, but got \{'a': 0\}\."),
        (lambda: Weights({}), r"weights must have a positive and finite sum, but got \{\}\."),
        (lambda: Product([Uniform()]), r"`marginals` must be a mapping from names to recipes, but got"),
        (lambda: Product({"a": "normal"}), r"'a' must be distributed as Uniform, .*, but got 'normal'\."),
        (lambda: Density(3), r"`function` must be callable, but got 3\."),
        (lambda: Density(lambda s: 1, bound=0), r"`0 < bound < inf` must hold, but got bound=0\."),
        (lambda: Density(lambda s: 1, bound="1"), r"`0 < bound < inf` must hold, but got bound='1'\."),
        (lambda: Density(lambda s: 1, sampler=[]), r"`sampler` must be callable, but got \[\]\."),
        (lambda: bind("uniform", ONE), r"must be a recipe, a mapping or a function, but got 'uniform'\."),
        (
            lambda: bind({"demnd": Uniform()}, ONE),
            r"unknown state parameter 'demnd': did you mean 'demand'\?",
        ),
        (
            lambda: bind(Triangular(7), ONE),
            r"`2\.0 <= mode <= 6\.0` must hold for 'demand', but got mode=7\.",
        ),
        (lambda: bind(Triangular(math.nan), ONE), r"`mode` must be a finite number, but got mode=nan\."),
        (lambda: bind(Weights({3: 1}), ONE), r"'demand' is real and cannot have weights of single values"),
        (
            lambda: bind(Normal(0, 1), space_of(c=DAYS)),
            r"'c' is categorical and must be Uniform or have Weights",
        ),
        (
            lambda: bind(Weights({"fri": 1}), space_of(c=DAYS)),
            r"every value with a weight must be valid: 'c' must be one of 'mon', .*, but got 'fri'\.",
        ),
        (
            lambda: bind(lambda s: 3 - s["demand"], ONE),
            r"must be finite and not negative, but got -.* at \{'demand'",
        ),
        (
            lambda: bind(lambda s: math.nan, ONE),
            r"must be finite and not negative, but got nan at \{'demand': ",
        ),
        (
            lambda: bind(lambda s: math.inf, ONE),
            r"must be finite and not negative, but got inf at \{'demand': ",
        ),
        (lambda: bind(lambda s: None, ONE), r"must be finite and not negative, but got None at \{'demand': "),
        (
            lambda: bind(lambda s: 0.0, ONE),
            r"a density must have a positive and finite integral, but got 0\.0\.",
        ),
        (
            lambda: bind(Density(lambda s: s["demand"], bound=3), ONE),
            r"`function\(state\) <= bound` must hold, but got .* > 3 at \{'demand': ",
        ),
        (
            lambda: bind(Density(lambda s: 1.0, bound=1e6), ONE),
            r"rejection must accept at least 0\.001 of its draws, but bound=1000000\.0 gives 1\.0e-06",
        ),
        (
            lambda: bind(Density(lambda s: 1.0, lambda rng, n: []), ONE).sample(2, generator()),
            r"`sampler` must return 2 states when asked for 2, but got 0\.",
        ),
        (
            lambda: bind(Density(lambda s: 1.0, lambda rng, n: None), ONE).sample(2, generator()),
            r"`sampler` must return 2 states when asked for 2, but raised TypeError: 'NoneType' object is not iter",
        ),
    ],
)
def test_bad_distributions_are_refused(make, message) -> None:
    with pytest.raises(SpaceError, match=message):
        make()


def test_a_sampler_out_of_range_is_refused() -> None:
    recipe = Density(lambda s: 1.0, lambda rng, n: [{"demand": 7.0}] * n)
    with pytest.raises(PointError, match=r"`2\.0 <= demand <= 6\.0` must hold, but got demand=7\.0\."):
        bind(recipe, ONE).sample(2, generator())
