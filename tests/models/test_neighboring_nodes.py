"""What maximizers at neighboring nodes say about each other, in torch and by the compiled loops."""

import pytest
import torch
from torch import Tensor

from conbo.acquisition.convex_integral import quantile_nodes
from conbo.models import compiled
from conbo.models.action_functions import ActionFunctions, Maxima, state_functions
from conbo.models.neighboring_nodes import neighbor_similarity, shared_between_nodes
from random_beliefs import belief_with, posterior_of, product_kernel, reals, tensor, uniform

NODES = quantile_nodes(5)


@pytest.fixture(params=[True, False], ids=["compiled", "torch"])
def _available(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "AVAILABLE", request.param)


def functions(profile: str = "matern52") -> ActionFunctions:
    space = reals(1, 2)
    posterior = posterior_of(belief_with(space, product_kernel(space, profile=profile)))
    return state_functions(posterior, uniform(1, 1))


def maxima_with(mean: Tensor, slope: Tensor) -> Maxima:
    rows, q = mean.shape
    return Maxima(uniform(rows, q, 2), mean, slope, uniform(rows, q, 7, seed=1))


def likeness_along(places: list[float]) -> Tensor:
    """Of maximizers that move along one action."""
    actions = torch.stack([tensor(places), torch.zeros(len(places), dtype=torch.float64)], -1)
    return neighbor_similarity(functions(), actions[None, None], NODES)[0, 0]


@pytest.mark.usefixtures("_available")
def test_every_node_takes_the_line_that_is_highest_there() -> None:
    mean, slope = uniform(30, 5), 2 * uniform(30, 5, seed=1) - 1
    before = maxima_with(mean, slope)

    after = shared_between_nodes(before, NODES)

    values = mean[:, None] + NODES[:, None] * slope[:, None]
    torch.testing.assert_close(after.mean + NODES * after.slope, values.amax(-1), rtol=0, atol=1e-12)
    winner = values.argmax(-1)
    assert torch.equal(after.actions, before.actions.gather(1, winner[..., None].expand(-1, -1, 2)))
    assert torch.equal(after.correlation, before.correlation.gather(1, winner[..., None].expand(-1, -1, 7)))


@pytest.mark.usefixtures("_available")
def test_nodes_whose_own_lines_are_highest_keep_them() -> None:
    slope = tensor([[-1.0, -0.5, 0.0, 0.5, 1.0]])
    before = maxima_with(-slope.square(), slope)  # tangents of a parabola, as good as at their nodes

    assert shared_between_nodes(before, slope[0] * 2) is before


@pytest.mark.usefixtures("_available")
def test_likeness_is_the_correlation_of_neighbors_that_move_steadily() -> None:
    places = (0.2 * NODES).tolist()

    apart = tensor(places).diff().square()

    expected = (1 + apart.sqrt() + apart / 3) * torch.exp(-apart.sqrt())
    torch.testing.assert_close(likeness_along(places), expected)


@pytest.mark.usefixtures("_available")
def test_a_jump_is_a_corner_however_near_it_ends() -> None:
    likeness = likeness_along([0.0, 0.0, 0.0, 3.0, 3.0])

    assert likeness.tolist() == [1.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("profile", ["matern52", "squared-exponential"])
def test_the_compiled_loop_and_torch_give_the_same_likeness(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    actions = uniform(6, 20, 5, 2) ** 4 * 3  # some stand still, some jump

    quick = neighbor_similarity(functions(profile), actions, NODES)
    monkeypatch.setattr(compiled, "AVAILABLE", False)
    torch.testing.assert_close(quick, neighbor_similarity(functions(profile), actions, NODES), rtol=1e-10, atol=1e-12)
    assert float(quick.amin()) == 0 < float(quick.amax())
