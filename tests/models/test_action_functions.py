"""Many functions of the action: their values by the posterior, their maxima by two implementations."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from conbo.models import compiled, compiled_ascent
from conbo.models.action_functions import (
    ActionFunctions,
    Maxima,
    look_ahead_functions,
    state_functions,
    state_rows,
)
from conbo.models.exact import ExactPosterior
from conbo.models.kernels import Kernel
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
)

MIXED = Space(
    states={"s": Real(0, 1), "k": Categorical([*"ab"])},
    actions={"x": Real(0, 1), "n": Integer(1, 6), "c": Categorical([*"uvw"])},
)
CATEGORIES = Space(states={"k": Categorical([*"abc"])}, actions={"x": Real(0, 1), "y": Real(0, 1)})
KERNELS: dict[str, tuple[Space, Kernel]] = {
    "matern": (reals(1, 2), product_kernel(reals(1, 2), 0.4, [0.3, 0.8], 1.7)),
    "squared exponential": (
        reals(1, 2),
        product_kernel(reals(1, 2), 0.4, [0.3, 0.8], 1.7, "squared-exponential"),
    ),
    "no states": (reals(0, 3), product_kernel(reals(0, 3), actions=[0.2, 0.4, 0.7])),
    "mixed": (MIXED, product_kernel(MIXED, [0.5, 0.9], [0.4, 0.6, 1.1], 0.8)),
    "only categories": (
        Space(states={"k": Categorical([*"ab"])}, actions={"c": Categorical([*"uvw"])}),
        product_kernel(Space(states={"k": Categorical([*"ab"])}, actions={"c": Categorical([*"uvw"])})),
    ),
    "trend": (CATEGORIES, trend_kernel(CATEGORIES, [0.4, 0.6])),
}
NODES = tensor([-2.0, -0.7, 0.0, 0.7, 2.0])


def setting(name: str, r: int = 6, m: int = 4, n: int = 20) -> tuple[ExactPosterior, Tensor, Tensor]:
    """A posterior, r candidates, and m states for each of them."""
    space, kernel = KERNELS[name]
    posterior = posterior_of(belief_with(space, kernel, n=n, constant=0.3))
    states = points_in(space, r * m, seed=8)[:, : space.n_state_dims]
    return posterior, points_in(space, r, seed=7), states.unflatten(0, (r, m))


def functions_of(name: str, **sizes: int) -> ActionFunctions:
    posterior, candidates, states = setting(name, **sizes)
    return look_ahead_functions(posterior, posterior.look_ahead(candidates), state_rows(posterior, states))


def starts_for(name: str, rows: int, q: int = len(NODES), seed: int = 9) -> Tensor:
    space, kernel = KERNELS[name]
    actions = points_in(space, rows * q, seed=seed)[:, space.n_state_dims :]
    return kernel.actions.scaled(actions).unflatten(0, (rows, q))


def climb(functions: ActionFunctions, starts: Tensor, z: Tensor, steps: int, available: bool) -> Maxima:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "AVAILABLE", available)
        return functions.maximize(starts, z, steps, keep_correlation=True)


@pytest.mark.parametrize("name", KERNELS)
def test_values_are_the_posterior_mean_and_the_look_ahead_slope(name: str) -> None:
    space, kernel = KERNELS[name]
    posterior, candidates, states = setting(name)
    ahead = posterior.look_ahead(candidates)
    functions = look_ahead_functions(posterior, ahead, state_rows(posterior, states))
    actions = points_in(space, 7, seed=3)[:, space.n_state_dims :]
    features = kernel.actions.scaled(actions)

    at_mean, at_slope, correlation = functions.at(features.expand(24, 7, -1))
    for ours, reference in zip(functions.lines_at(features.expand(24, 7, -1)), (at_mean, at_slope), strict=True):
        torch.testing.assert_close(ours, reference)
    pooled = functions.pooled(kernel.actions.correlation(posterior.actions, features), features)

    for row in range(24):
        candidate, state = row // 4, states[row // 4, row % 4]
        points = torch.cat([state.expand(7, -1), actions], -1)
        expected = posterior.mean(points), posterior.look_ahead_slopes(candidates[[candidate]], points)[0]
        for ours, theirs in zip((at_mean[row], at_slope[row]), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
        for ours, theirs in zip((pooled[0][row], pooled[1][row]), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    torch.testing.assert_close(correlation[0], kernel.actions.correlation(features, posterior.actions))


@pytest.mark.parametrize("name", KERNELS)
def test_state_functions_are_the_posterior_mean(name: str) -> None:
    space, kernel = KERNELS[name]
    posterior, points, _ = setting(name)
    d_s = space.n_state_dims

    functions = state_functions(posterior, points[:, :d_s])
    mean, slope, _ = functions.at(kernel.actions.scaled(points[:, None, d_s:]))

    torch.testing.assert_close(mean[:, 0], posterior.mean(points), rtol=0, atol=1e-9)
    assert not slope.any()


@pytest.mark.parametrize("steps", [0, 1, 4, 25])
@pytest.mark.parametrize("name", KERNELS)
def test_compiled_loops_and_torch_take_the_same_steps(name: str, steps: int) -> None:
    functions = functions_of(name)
    starts = starts_for(name, 24)

    torch_maxima = climb(functions, starts, NODES, steps, available=False)
    compiled_maxima = climb(functions, starts, NODES, steps, available=True)

    torch.testing.assert_close(
        compiled_maxima.mean + NODES * compiled_maxima.slope,
        torch_maxima.mean + NODES * torch_maxima.slope,
        rtol=0,
        atol=1e-8,
    )
    torch.testing.assert_close(compiled_maxima.actions, torch_maxima.actions, rtol=0, atol=1e-4)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
@pytest.mark.parametrize("name", KERNELS)
def test_climbs_go_uphill_stay_in_the_box_and_keep_categories(name: str, compiled: bool) -> None:
    space, kernel = KERNELS[name]
    functions = functions_of(name)
    starts = starts_for(name, 24)
    before_mean, before_slope, _ = functions.at(starts)
    before = before_mean + NODES * before_slope
    last = before
    for steps in (1, 3, 8):
        maxima = climb(functions, starts, NODES, steps, compiled)
        value = maxima.mean + NODES * maxima.slope
        assert float((value - last).amin()) >= -1e-12
        last = value

    mean, slope, correlation = functions.at(maxima.actions)
    torch.testing.assert_close(maxima.mean, mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(maxima.slope, slope, rtol=0, atol=1e-9)
    torch.testing.assert_close(maxima.correlation, correlation, rtol=0, atol=1e-9)
    lower, upper, free = functions.box
    assert ((maxima.actions >= lower - 1e-12) & (maxima.actions <= upper + 1e-12)).all()
    assert torch.equal(maxima.actions[..., ~free], starts[..., ~free])
    if free.any():
        assert float((value - before).amax()) > 0.01
    points = kernel.actions.columns.points(maxima.actions / kernel.actions.feature_scales)
    for column, count in enumerate(space.action_categories):
        if count:
            inside = (points[..., column] * count) % 1
            torch.testing.assert_close(inside, torch.full_like(inside, 0.5))


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "torch"])
def test_climbs_end_where_the_projected_gradient_vanishes(compiled: bool) -> None:
    functions = functions_of("matern")
    starts = starts_for("matern", 24)

    x = climb(functions, starts, NODES, 40, compiled).actions.requires_grad_(True)
    mean, slope, _ = functions.at(x)
    (gradient,) = torch.autograd.grad((mean + NODES * slope).sum(), x)

    lower, upper, _ = functions.box
    outward = ((x <= lower) & (gradient < 0)) | ((x >= upper) & (gradient > 0))
    assert float(torch.where(outward, 0.0, gradient).abs().amax()) < 1e-5
    assert outward.any()
    assert not outward.all()


def test_maxima_from_the_best_of_a_grid_are_no_worse_than_a_finer_one() -> None:
    space = reals(1, 1)
    posterior = posterior_of(belief_with(space, product_kernel(space, 0.4, 0.15), n=30))
    states = uniform(10, 1, seed=1)
    functions = state_functions(posterior, states)
    factor = posterior.kernel.actions
    coarse, fine = (torch.linspace(0, 1, k, dtype=torch.float64)[:, None] for k in (41, 4001))
    grid = factor.scaled(coarse)
    values, _ = functions.pooled(factor.correlation(posterior.actions, grid), grid)

    maxima = functions.maximize(grid[values.argmax(-1)][:, None], tensor([0.0]), 10)

    finer = factor.scaled(fine)
    best = functions.pooled(factor.correlation(posterior.actions, finer), finer)[0].amax(-1)
    assert float((maxima.mean[:, 0] - best).amin()) > -1e-9
    assert float((maxima.mean[:, 0] - best).amax()) < 1e-4
    assert maxima.correlation.shape == (10, 1, 0)


def test_a_row_does_not_depend_on_the_others_nor_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    functions = functions_of("matern")
    starts = starts_for("matern", 24)
    monkeypatch.setattr(compiled_ascent, "WORK_PER_THREAD", 10**12)
    alone = functions.maximize(starts, NODES, 5)
    monkeypatch.setattr(compiled_ascent, "WORK_PER_THREAD", 1)
    monkeypatch.setattr(compiled_ascent, "available_threads", lambda: 3)
    together = functions.maximize(starts, NODES, 5)

    assert torch.equal(alone.actions, together.actions)
    assert torch.equal(alone.mean, together.mean)
    assert torch.equal(alone.slope, together.slope)


def test_z_may_differ_from_row_to_row() -> None:
    functions = functions_of("matern")
    starts = starts_for("matern", 24)
    z = torch.randn(24, 5, generator=generator(), dtype=torch.float64)

    maxima = functions.maximize(starts, z, 30)

    for row in (0, 11, 23):
        same = functions.maximize(starts, z[row], 30)
        torch.testing.assert_close(maxima.mean[row], same.mean[row])


WITHOUT_NUMBA = """
import sys, warnings
sys.modules["numba"] = None  # importing it now raises ImportError
warnings.simplefilter("error")
import torch
from conbo.models import compiled
from conbo.models.action_functions import state_functions
from conbo.models.columns import Columns
from conbo.models.kernels import Factor, ProductKernel
from conbo.models.exact import condition
assert not compiled.AVAILABLE
one = torch.tensor([0.3], dtype=torch.float64)
factor = Factor(Columns((0,)), one)
points = torch.linspace(0, 1, 12, dtype=torch.float64).reshape(6, 2)
posterior = condition(ProductKernel(factor, factor), 0.0, 0.01, points, points.sum(-1))
functions = state_functions(posterior, one[None])
print(float(functions.maximize(torch.ones(1, 1, 1, dtype=torch.float64), one, 9).mean))
"""


def test_without_numba_the_library_goes_on_in_torch() -> None:
    result = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, check=True)

    space = reals(1, 1)
    points = torch.linspace(0, 1, 12, dtype=torch.float64).reshape(6, 2)
    from conbo.models.exact import condition

    posterior = condition(product_kernel(space, 0.3, 0.3), 0.0, 0.01, points, points.sum(-1))
    functions = state_functions(posterior, tensor([[0.3]]))
    expected = functions.maximize(torch.ones(1, 1, 1, dtype=torch.float64), tensor([0.3]), 9).mean
    assert float(result.stdout) == pytest.approx(float(expected), abs=1e-9)
