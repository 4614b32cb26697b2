"""A covariance or a Hessian that is not finite is found wherever a factorization decides."""

from dataclasses import dataclass
from math import inf, nan

import pytest
import torch
from torch import Tensor

from conbo.acquisition.expected_max import expected_gain
from conbo.errors import ConboError
from conbo.models import compiled, exact_rough_gains
from conbo.models.action_functions import newton_step, state_functions
from conbo.models.exact_rough_gains import RoughGains
from conbo.models.factorization import cholesky, factorize
from conbo.models.fit import fit
from conbo.models.kernel_families import ProductFamily, Pullback
from conbo.models.log_posterior import LogPosterior
from conbo.models.structures import Structures
from conbo.search import likely_peaks
from kernel_family_cases import columns, data
from random_beliefs import belief_with, generator, posterior_of, product_kernel, reals, tensor, uniform

NOT_FINITE = [nan, inf, -inf]


def definite(n: int, seed: int = 0) -> Tensor:
    """A covariance matrix whose entries are all different."""
    root = uniform(n, n, seed=seed)
    return root @ root.mT + torch.eye(n, dtype=torch.float64)


@pytest.mark.parametrize("entry", NOT_FINITE)
@pytest.mark.parametrize("n", [1, 2, 3, 40, 300])  # libraries factorize large matrices block by block
def test_an_entry_that_is_not_finite_is_found_in_any_place(n: int, entry: float) -> None:
    corners = {(0, 0), (n - 1, 0), (n - 1, n - 1), (n // 2, n // 2), (n - 1, n // 2), (n // 2, 0)}
    matrix = definite(n)
    for row, column in sorted(corners):
        broken = matrix.clone()
        broken[row, column] = entry

        factors, failed = factorize(torch.stack([matrix, broken, matrix]))

        assert failed.tolist() == [False, True, False], (row, column)
        torch.testing.assert_close(factors[[0, 2]] @ factors[[0, 2]].mT, torch.stack([matrix, matrix]))
        assert factorize(broken)[1].item()


def test_every_place_of_a_small_matrix() -> None:
    places = [(row, column) for row in range(5) for column in range(row + 1)]
    for entry in NOT_FINITE:
        broken = definite(5).repeat(len(places), 1, 1)
        for k, (row, column) in enumerate(places):
            broken[k, row, column] = entry
        assert factorize(broken)[1].all()


def test_only_the_lower_triangle_is_read() -> None:
    matrix = definite(4)
    other = matrix.clone()
    other[0, 3] = nan
    assert not factorize(other)[1].item()
    torch.testing.assert_close(factorize(other)[0], factorize(matrix)[0])


def test_a_matrix_that_is_not_positive_definite_has_no_factor() -> None:
    assert factorize(tensor([[[1.0, 2.0], [2.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]))[1].all()
    assert factorize(torch.zeros(2, 0, 0, dtype=torch.float64))[1].tolist() == [False, False]


@pytest.mark.parametrize("entry", NOT_FINITE)
@pytest.mark.parametrize("place", [(0, 0), (2, 1), (4, 4)])
def test_a_covariance_that_is_not_finite_is_refused(place: tuple[int, int], entry: float) -> None:
    matrix = definite(5)
    matrix[place] = entry
    with pytest.raises(ConboError, match="must be finite"):
        cholesky(matrix)


@dataclass(frozen=True)
class Breaking(ProductFamily):
    """Covariances have a broken entry where the first lengthscale is below e^`limit`."""

    entry: float = nan
    limit: float = inf

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        covariance, pullback = super().covariance(parameters, points)
        covariance[parameters[:, 0] < self.limit, 3, 2] = self.entry
        return covariance, pullback


SPACE = reals(1, 2)


@pytest.mark.parametrize("entry", NOT_FINITE)
def test_parameters_of_a_broken_covariance_are_impossible(entry: float) -> None:
    points, rewards = data(SPACE)
    whole = LogPosterior(ProductFamily(*columns(SPACE)), points, rewards, "moderate")
    starts = whole.prior.starts()
    limit = float(starts[:, 0].median()) + 1e-9
    broken = LogPosterior(Breaking(*columns(SPACE), entry=entry, limit=limit), points, rewards, "moderate")

    sick = starts[:, 0] < limit
    values = broken(starts)[0]

    assert sick.any()
    assert not sick.all()
    assert (values[sick] == -inf).all()
    torch.testing.assert_close(values[~sick], whole(starts)[0][~sick])
    assert torch.isfinite(broken.curvature(starts)).all()


@pytest.mark.parametrize("entry", NOT_FINITE)
def test_a_fit_goes_round_parameters_that_break_the_covariance(entry: float) -> None:
    points, rewards = data(SPACE)
    (best,) = fit(Structures((ProductFamily(*columns(SPACE)),)), points, rewards)
    limit = float(best.kernel.states.lengthscales.log()) - 0.1
    (result,) = fit(Structures((Breaking(*columns(SPACE), entry=entry, limit=limit),)), points, rewards)

    assert float(result.kernel.states.lengthscales.log()) >= limit
    assert result.objective == pytest.approx(best.objective, abs=0.1)


@pytest.mark.parametrize("entry", NOT_FINITE)
def test_a_fit_without_any_finite_covariance_is_refused(entry: float) -> None:
    points, rewards = data(SPACE)
    with pytest.raises(ConboError, match="must be finite"):
        fit(Structures((Breaking(*columns(SPACE), entry=entry),)), points, rewards)


@pytest.mark.parametrize("entry", NOT_FINITE)
@pytest.mark.parametrize("place", [(0, 0), (1, 0), (1, 1)])
def test_a_newton_step_from_a_broken_hessian_is_none(place: tuple[int, int], entry: float) -> None:
    hessian = -definite(2).repeat(3, 1, 1, 1)
    hessian[1, 0, place[0], place[1]] = hessian[1, 0, place[1], place[0]] = entry
    x, gradient = torch.full((3, 1, 2), 0.5, dtype=torch.float64), torch.ones(3, 1, 2, dtype=torch.float64)
    box = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.bool)

    step, length = newton_step(x, gradient, hessian, *box, torch.ones(3, 1, dtype=torch.float64))

    assert not step[1].any()
    assert float(length[1]) == 0
    assert (length[[0, 2]] > 0.1).all()
    assert torch.isfinite(step).all()


@pytest.mark.parametrize("entry", NOT_FINITE)
@pytest.mark.parametrize("kind", ["compiled", "torch"])
def test_a_climb_on_a_broken_function_stays_where_it_is(
    kind: str, entry: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "compiled" and not compiled.AVAILABLE:
        pytest.skip("needs the extra `fast`")
    monkeypatch.setattr(compiled, "AVAILABLE", kind == "compiled")
    posterior = posterior_of(belief_with(SPACE, product_kernel(SPACE, 0.4, [0.3, 0.8]), n=10))
    functions = state_functions(posterior, uniform(3, 1, seed=1))
    starts = posterior.kernel.actions.scaled(0.2 + 0.6 * uniform(3, 4, 2, seed=2))
    whole = functions.maximize(starts, tensor(0.0), 5)
    functions.mean_weights[1, 4] = entry

    broken = functions.maximize(starts, tensor(0.0), 5)

    assert torch.equal(broken.actions[1], starts[1])
    assert torch.equal(broken.actions[[0, 2]], whole.actions[[0, 2]])
    assert torch.equal(broken.mean[[0, 2]], whole.mean[[0, 2]])
    assert (whole.actions != starts).any(-1).all()


@pytest.mark.parametrize("entry", NOT_FINITE)
def test_a_best_action_without_curvature_does_not_bend(entry: float, monkeypatch: pytest.MonkeyPatch) -> None:
    belief = belief_with(SPACE, product_kernel(SPACE, 0.4, [0.3, 0.8]), n=10)
    posterior = posterior_of(belief)
    states, candidates = uniform(6, 1, seed=1), uniform(5, 3, seed=2)
    best = belief.search(uniform(40, 2, seed=3)).best(states)
    whole = RoughGains(posterior, None, states, best, expected_gain)(candidates)
    inside = ((best.actions > 0) & (best.actions < 1)).all(-1)  # others do not bend anyway
    sick = int(inside.int().argmax())

    def factorize_broken(bowls: Tensor) -> tuple[Tensor, Tensor]:
        broken = bowls.clone()
        broken[sick, 1, 0] = broken[sick, 0, 1] = entry
        return factorize(broken)

    monkeypatch.setattr(exact_rough_gains, "factorize", factorize_broken)
    broken = RoughGains(posterior, None, states, best, expected_gain)(candidates)

    assert torch.isfinite(broken).all()
    assert inside.any()
    assert (broken[:, sick] < whole[:, sick]).any()
    others = [k for k in range(6) if k != sick]
    assert torch.equal(broken[:, others], whole[:, others])


@pytest.mark.parametrize("entry", NOT_FINITE)
def test_peaks_of_a_broken_covariance_are_drawn_one_by_one(entry: float, monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = posterior_of(belief_with(reals(1, 1), product_kernel(reals(1, 1)), n=8))
    pool, states = torch.linspace(0, 1, 21, dtype=torch.float64)[:, None], tensor([[0.2], [0.5], [0.8]])
    normals = torch.randn(21, 200, generator=generator(), dtype=torch.float64)
    whole = likely_peaks.likely_peaks(posterior, pool, states, normals, 4)
    unbroken = likely_peaks.joint_moments

    def joint_moments(*arguments: object) -> tuple[Tensor, Tensor]:
        mean, covariance = unbroken(*arguments)  # type: ignore[arg-type]
        covariance[1, 7, 3] = entry
        mean[1, 16] = 100.0
        return mean, covariance

    monkeypatch.setattr(likely_peaks, "joint_moments", joint_moments)
    broken = likely_peaks.likely_peaks(posterior, pool, states, normals, 4)

    assert float(broken[1, 0]) == float(pool[16])
    assert torch.equal(broken[[0, 2]], whole[[0, 2]])
