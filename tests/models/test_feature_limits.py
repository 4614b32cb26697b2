"""Climbs within limits end where a general solver ends, by both implementations."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from conbo.models import compiled
from conbo.models.action_functions import ActionFunctions, state_functions
from conbo.models.exact import ExactPosterior
from conbo.models.feature_limits import FeatureShapes
from conbo.models.kernels import ProductKernel
from conbo.models.warp import Warp
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import belief_with, points_in, posterior_of, product_kernel, tensor

STATES = {"s": Real(0, 1)}
SPACES = {
    "linear": Space(STATES, {"x": Real(0, 1), "y": Real(-2, 2)}, ["x + y <= 0.9", "y <= 2 * s - 0.5", "x - y <= 1.5"]),
    "log": Space(STATES, {"x": Real(0.1, 10, log=True), "y": Real(0, 1)}, ["x + 3 * y <= 4", "x >= s"]),
    "equality": Space(STATES, {"x": Real(0, 1), "y": Real(0, 1), "z": Real(0, 1)}, ["x + y + z == 1 + 0.5 * s"]),
    "category": Space(STATES, {"c": Categorical([*"uv"]), "x": Real(0, 1), "y": Real(0, 1)}, ["x + y <= 0.7"]),
}
WARPS = {"plain": 0.0, "warped": 0.6}


def functions_of(space: Space, warp: float) -> tuple[ActionFunctions, ExactPosterior, Tensor]:
    kernel = product_kernel(space, 0.5, 0.4)
    if warp:
        numbers = tensor([0.0 if count else warp for count in space.action_categories])
        kernel = ProductKernel(kernel.states, kernel.actions, 1.0).warped(Warp(numbers, -numbers))
    posterior = posterior_of(belief_with(space, kernel, n=25))
    states = tensor([[0.2], [0.5], [0.9]])
    functions = state_functions(posterior, states)
    limits = FeatureShapes(space, kernel.actions).of_states(states)
    fields = {name: getattr(functions, name) for name in functions.__dataclass_fields__}
    return ActionFunctions(**(fields | {"limits": limits})), posterior, states


def starts_of(space: Space, functions: ActionFunctions, q: int = 40) -> Tensor:
    actions = points_in(space, 3 * q, seed=3)[:, space.n_state_dims :]
    return functions.factor.scaled(actions).unflatten(0, (3, q))


@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("kind", SPACES)
def test_the_best_climb_ends_at_the_best_feasible_action(kind: str, warp: str) -> None:
    space = SPACES[kind]
    functions, posterior, states = functions_of(space, WARPS[warp])
    maxima = functions.maximize(starts_of(space, functions), torch.zeros(1, dtype=torch.float64), 30)
    best = maxima.mean.argmax(-1)
    for row, state in enumerate(states):
        action = functions.factor.unscaled(maxima.actions[row, best[row]])
        point = torch.cat([state, action]).numpy()
        assert space.contains(point[None]).all()
        assert space.feasible_set is not None
        limits = space.feasible_set.limits
        assert limits is not None

        def loss(u: np.ndarray, state: Tensor = state) -> float:
            return -float(posterior.mean(torch.cat([state, torch.from_numpy(u)])[None]))

        def slack(u: np.ndarray, state: Tensor = state, limits=limits) -> np.ndarray:  # type: ignore[no-untyped-def]
            return limits.slack(np.concatenate([state.numpy(), u])[None])[0] + 1e-9

        bounds = [
            (u, u) if count else (0, 1) for u, count in zip(action.tolist(), space.action_categories, strict=True)
        ]
        found = minimize(
            loss, action.numpy(), bounds=bounds, constraints={"type": "ineq", "fun": slack}, method="SLSQP"
        )
        assert -found.fun <= float(maxima.mean[row, best[row]]) + 1e-5


@pytest.mark.skipif(not compiled.AVAILABLE, reason="needs Numba")
@pytest.mark.parametrize("warp", WARPS)
@pytest.mark.parametrize("kind", SPACES)
def test_torch_and_compiled_loops_climb_alike(kind: str, warp: str) -> None:
    functions, _, _ = functions_of(SPACES[kind], WARPS[warp])
    starts, z = starts_of(SPACES[kind], functions, 12), torch.zeros(3, 12, dtype=torch.float64)
    assert functions.limits is not None
    starts, _ = functions.limits.project(starts)  # the nearest feasible points are nearest in different units
    one, other = functions._maximize_compiled(starts, z, 20, True), functions._maximize_torch(starts, z, 20, True)
    # from a few starts the two go to different hills, and along a bent limit they converge slowly
    np.testing.assert_allclose(one.mean.amax(-1), other.mean.amax(-1), atol=1e-3)
    assert functions.limits.contains(one.actions).all()
    assert functions.limits.contains(other.actions).all()


def test_integers_of_the_best_action_are_feasible_and_as_good_as_all_others() -> None:
    space = Space(STATES, {"n": Integer(0, 12), "m": Integer(0, 12)}, ["n + m <= 11", "n <= 10 * s + 2"])
    belief = belief_with(space, product_kernel(space, 0.5, 0.4), n=25)
    states = tensor([[0.05], [0.5], [1.0]])
    pool = points_in(space, 60, seed=1)[:, 1:]
    best = belief.search(pool).best(states)
    grid = [(n, m) for n in range(13) for m in range(13)]
    for state, action, mean in zip(
        space.decode_states(states), space.decode_actions(best.actions), best.mean, strict=True
    ):
        assert space.is_feasible(state, action)
        allowed = [{"n": n, "m": m} for n, m in grid if space.is_feasible(state, {"n": n, "m": m})]
        points = np.concatenate([space.encode_states([state] * len(allowed)), space.encode_actions(allowed)], axis=1)
        assert float(mean) >= float(belief.posterior.mean(torch.from_numpy(points)).amax()) - 1e-9


def test_climbs_do_not_change_where_they_start() -> None:
    inside = Space(STATES, {"x": Real(0, 1), "y": Real(0, 1)}, feasible=lambda state, action: action["x"] < 0.8)
    for space in (inside, SPACES["linear"]):
        functions, _, _ = functions_of(space, 0.0)
        assert functions.limits is not None
        starts = functions.limits.project(starts_of(space, functions))[0]
        before = starts.clone()
        ends = functions._maximize_torch(starts, torch.zeros(starts.shape[:2], dtype=torch.float64), 5, False).actions
        assert torch.equal(starts, before)
        assert not torch.equal(ends, before)


@pytest.mark.parametrize(
    "compiles", [pytest.param(True, marks=pytest.mark.skipif(not compiled.AVAILABLE, reason="needs Numba")), False]
)
@pytest.mark.parametrize("warp", WARPS)
def test_held_integers_stay_and_count_in_the_limits(warp: str, compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionFunctions, "_is_compiled", lambda self, actions: compiles)
    actions = {"n": Integer(0, 3), "x": Real(0.1, 10, log=True), "y": Real(0, 1)}
    space = Space(STATES, actions, ["n + x + 5 * y <= 7", "x - 2 * n <= 2"])
    functions, posterior, states = functions_of(space, WARPS[warp])
    rounded = functions.holding((0,))
    assert rounded.limits is not None
    starts = rounded.limits.snapped(starts_of(space, functions, 60))
    ends = rounded.maximize(starts, torch.zeros(1, dtype=torch.float64), 40)

    there = functions.factor.unscaled(ends.actions)
    torch.testing.assert_close(there[..., 0], functions.factor.unscaled(starts)[..., 0], rtol=0, atol=1e-12)
    assert rounded.limits.contains(ends.actions).all()
    fine = torch.linspace(0, 1, 121, dtype=torch.float64)
    for row, state in enumerate(states):
        for n in np.unique(there[row, :, 0].numpy()):
            grid = torch.cartesian_prod(state, tensor([n]), fine, fine)
            feasible = grid[torch.from_numpy(space.contains(grid.numpy()))]
            best = ends.mean[row][(there[row, :, 0] - n).abs() < 1e-9].amax()
            assert float(best) >= float(posterior.mean(feasible).amax()) - 1e-3
