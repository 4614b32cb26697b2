"""Fits in steps and factors in blocks: what is remembered is what would be found again, to the last bit."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models import fit as fit_module
from conbo.models.exact import ExactPosterior
from conbo.models.factored import factored
from conbo.models.fit_memory import FitMemory, fit_key
from conbo.models.schedule import block_ends, fitted_rewards
from conbo.observations import Observations
from random_beliefs import product_kernel, reals, uniform

SPACE = reals(1, 2)


def rewards_at(points: Tensor) -> Tensor:
    return torch.sin(5 * points[:, 0] + 3 * points[:, 1]) + points[:, 2] ** 2


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule that begins early: 32, 40, 50, … rewards, and blocks of 8."""
    for name, value in {"EVERY_REWARD": 32, "STEP_SHARE": 4, "SHORT_BLOCK": 8, "LONG_BLOCK": 16}.items():
        monkeypatch.setattr(f"conbo.models.schedule.{name}", value)


def test_the_schedule_grows_in_steps_and_is_never_far_behind() -> None:
    steps = [fitted_rewards(n) for n in range(20_000)]
    assert steps[:264] == list(range(264))
    assert all(later >= earlier for earlier, later in pairwise(steps[264:]))
    assert all(0.87 * n <= step <= n for n, step in enumerate(steps))
    assert len(set(steps[264:])) < 50


@pytest.mark.parametrize("n", [0, 1, 263, 264, 300, 1500, 5000])
def test_blocks_end_in_order_at_the_last_row(n: int) -> None:
    ends = block_ends(n)
    assert ends[-1] == n
    assert all(first < last for first, last in pairwise(ends))
    assert fitted_rewards(n) in ends
    # one more reward leaves all whole blocks as they are, unless it makes a step
    if n and fitted_rewards(n + 1) == fitted_rewards(n):
        assert block_ends(n + 1)[: len(ends) - 1] == ends[:-1]


@pytest.mark.usefixtures("short_steps")
def test_a_factor_that_grew_is_the_one_that_is_made_anew() -> None:
    kernel, points = product_kernel(SPACE), uniform(60, 3)
    variances, grown = torch.full((60,), 1e-3, dtype=torch.float64), None
    for n in range(30, 61):
        grown = factored(kernel, points[:n], variances[:n], grown)
        anew = factored(kernel, points[:n], variances[:n])
        assert torch.equal(grown.factor, anew.factor)
    here = kernel.scaled(points)
    covariance = kernel.covariance(here, here) + variances.diag()
    torch.testing.assert_close(anew.factor, torch.linalg.cholesky(covariance), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 20, 58])
def test_a_factor_of_the_same_rewards_rounds_alike(n: int) -> None:
    """The memory layout matters, too: with another one, solutions differ in the last bit."""
    kernel, points, variances = product_kernel(SPACE), uniform(n, 3), torch.full((n,), 1e-3, dtype=torch.float64)
    first = factored(kernel, points, variances)
    again = factored(kernel, points, variances, first)
    right = uniform(n, 5)
    solved = [torch.linalg.solve_triangular(each.factor, right, upper=False) for each in (first, again)]
    assert torch.equal(*solved)
    assert again.factor.stride() == first.factor.stride()


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize("row", [3, 45])
def test_a_factor_of_other_points_or_noise_is_not_continued(row: int) -> None:
    kernel, points = product_kernel(SPACE), uniform(60, 3)
    variances = torch.full((60,), 1e-3, dtype=torch.float64)
    for moved, noise in ((1.0, 1e-3), (0.0, 1e-2)):
        other, others = points.clone(), variances.clone()
        other[row] += 0.1 * moved
        others[row] = noise
        earlier = factored(kernel, other[:58], others[:58])
        assert torch.equal(
            factored(kernel, points, variances, earlier).factor, factored(kernel, points, variances).factor
        )


@pytest.mark.usefixtures("short_steps")
def test_rounding_that_makes_a_block_indefinite_is_met_with_jitter() -> None:
    kernel, points = product_kernel(SPACE), uniform(10, 3).repeat(6, 1)
    result = factored(kernel, points, torch.zeros(60, dtype=torch.float64))
    assert 0 < result.jitter < 1e-6
    again = factored(kernel, points, torch.zeros(60, dtype=torch.float64), result)
    assert torch.equal(again.factor, result.factor)


def belief_of(n: int, memory: FitMemory | None, model: GaussianProcess) -> Belief:
    points = uniform(80, 3)[:n]
    observations = Observations(points, 3 + 2 * rewards_at(points), points[:0])
    return fit_belief(SPACE, bind(None, SPACE), observations, model, memory)


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize(
    "model",
    [
        GaussianProcess("matern52", input_warping="none", members=1),
        GaussianProcess("matern52", noise="small", members=1),
    ],
)
def test_one_fit_serves_many_rewards_and_changes_nothing(
    model: GaussianProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, real = [], fit_module.fit
    monkeypatch.setattr(fit_module, "fit", lambda *args, **kw: fits.append(len(args[1])) or real(*args, **kw))
    memory = FitMemory()
    for n in (30, 33, 36, 40, 41):
        remembered, anew = belief_of(n, memory, model), belief_of(n, None, model)
        assert (remembered.shift, remembered.scale) == (anew.shift, anew.scale)
        first, second = remembered.posterior, anew.posterior
        assert isinstance(first, ExactPosterior)
        assert isinstance(second, ExactPosterior)
        assert torch.equal(first.factor, second.factor)
        assert torch.equal(first.weights, second.weights)
    # with memory 30, 32 and 40, each once; without it, every time
    assert sorted(fits) == [30, 30, 32, 32, 32, 32, 40, 40]


class Notes(dict[str, str]):
    """A shelf that is a dict."""

    def read_fit(self, key: str) -> str | None:
        return self.get(key)

    def write_fit(self, key: str, text: str) -> None:
        self[key] = text


@pytest.mark.usefixtures("short_steps")
def test_a_shelf_shares_fits_between_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    fits, real = [], fit_module.fit
    monkeypatch.setattr(fit_module, "fit", lambda *args, **kw: fits.append(len(args[1])) or real(*args, **kw))
    shelf, model = Notes(), GaussianProcess()
    made = belief_of(40, FitMemory(shelf), model).posterior
    taken = belief_of(40, FitMemory(shelf), model).posterior  # as another process would
    assert len(fits) == len(shelf) == 1
    points = uniform(20, 3, seed=3)
    assert torch.equal(made.mean(points), taken.mean(points))
    assert torch.equal(made.variance(points), taken.variance(points))
    (key,) = shelf
    shelf[key] = shelf[key].replace("0", "1", 1)
    assert torch.equal(made.mean(points), belief_of(40, FitMemory(shelf), model).posterior.mean(points))
    assert len(fits) == 2  # what is damaged is not used


def test_keys_tell_settings_and_data_apart() -> None:
    points = uniform(4, 2)
    moved = points.clone()
    moved[2, 1] += 1e-15
    keys = [
        fit_key(["a"], points, None),
        fit_key(["b"], points, None),
        fit_key(["a"], moved, None),
        fit_key(["a"], points, points),
        fit_key(["a"], points.reshape(2, 4), None),
    ]
    assert len(set(keys)) == 5
    assert fit_key(["a"], points.clone(), None) == keys[0]
