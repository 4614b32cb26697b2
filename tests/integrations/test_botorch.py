"""The conditional knowledge gradient as BoTorch has acquisition functions, and its test functions as problems."""

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin, BraninCurrin, Hartmann
from torch import Tensor

from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.belief import Belief
from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.integrations.botorch import ConditionalKnowledgeGradient, problem_of
from conbo.models.botorch_model import BotorchPosterior
from conbo.observations import Observations
from conbo.problems import branin, opportunity_cost
from conbo.spaces import Integer, Real, Space
from conbo.state_distributions import Weights

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")

STATES = {1: 1.0, 2: 2.0, 3: 1.0, 4: 3.0}
SPACE = Space(states={"s": Integer(1, 4)}, actions={"x": Real(0, 1)})


def data(n: int = 10, d: int = 2) -> tuple[Tensor, Tensor]:
    points = torch.rand(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return points, torch.sin(6 * points[:, :1]) * points[:, 1:2] - (points[:, 1:2] - points[:, :1]) ** 2


def gaussian_process(points: Tensor, outcomes: Tensor, **settings: object) -> SingleTaskGP:
    """With the lengthscales that a fit might give."""
    model = SingleTaskGP(points, outcomes, outcome_transform=None, **settings)  # type: ignore[arg-type]
    model.covar_module.lengthscale = 0.4
    model.likelihood.noise = 1e-2
    return model.eval().requires_grad_(False)


def ours(model: SingleTaskGP, points: Tensor) -> Tensor:
    """The values of points (n, d) by conbo's own acquisition on the same model."""
    posterior = BotorchPosterior(model, (0, 0), 1, float(model.likelihood.noise))
    observations = Observations(points[:1], points[:1, 0], pending=points[:0])
    belief = Belief(SPACE, bind(Weights(STATES), SPACE), observations, posterior, 0.0, 1.0)
    acquisition = ConBO(HybridKG()).build(belief, torch.Generator().manual_seed(1))
    with torch.no_grad():
        return acquisition(points)


def listed() -> tuple[Tensor, Tensor]:
    finite = bind(Weights(STATES), SPACE).finite()
    assert finite is not None
    return finite


def test_values_are_those_of_conbo_on_the_same_model() -> None:
    model, (states, weights) = gaussian_process(*data()), listed()
    candidates = torch.rand(6, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    acquisition = ConditionalKnowledgeGradient(model, [0], states, weights=weights)
    expected = ours(model, candidates)
    with torch.no_grad():
        torch.testing.assert_close(acquisition(candidates[:, None]), expected, rtol=0, atol=1e-6)
    followed = acquisition(candidates[:, None].requires_grad_(True))  # the torch way instead of the compiled one
    torch.testing.assert_close(followed.detach(), expected, rtol=0, atol=1e-6)
    assert expected.min() > 0
    with torch.no_grad():  # any shape of batches, as of other acquisition functions of BoTorch
        together = acquisition(candidates.reshape(2, 3, 1, 2))
    torch.testing.assert_close(together, expected.reshape(2, 3), rtol=0, atol=1e-6)


def test_gradients() -> None:
    points, outcomes = data(8, 3)
    model = gaussian_process(points, outcomes)
    acquisition = ConditionalKnowledgeGradient(model, [1], torch.tensor([[0.2], [0.9]], dtype=torch.float64), n_z=3)
    candidates = torch.tensor([[[0.3, 0.4, 0.6]], [[0.9, 0.1, 0.2]]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(acquisition, (candidates,), eps=1e-5, atol=1e-6, rtol=1e-3, fast_mode=True)


def test_units_columns_and_transforms_do_not_matter() -> None:
    """The same model with other units, other columns and a negated outcome has the same values."""
    points, outcomes = data()
    states = torch.tensor([[0.1], [0.6]], dtype=torch.float64)
    candidates = torch.tensor([[[0.3, 0.7]], [[0.8, 0.2]]], dtype=torch.float64)
    plain = ConditionalKnowledgeGradient(gaussian_process(points, outcomes), [0], states)
    low, high = torch.tensor([-5.0, 10.0], dtype=torch.float64), torch.tensor([5.0, 40.0], dtype=torch.float64)
    bounds = torch.stack([low, high])

    def moved(rows: Tensor) -> Tensor:
        return low + rows.flip(-1) * (high - low)

    other = gaussian_process(moved(points), -outcomes, input_transform=Normalize(2, bounds=bounds))
    negative = ScalarizedPosteriorTransform(torch.tensor([-1.0], dtype=torch.float64))
    acquisition = ConditionalKnowledgeGradient(
        other, [1], 10 + 30 * states, bounds=bounds, posterior_transform=negative
    )
    # the lengthscales of the columns are the same, and the prior mean is zero
    torch.testing.assert_close(acquisition(moved(candidates)), plain(candidates), rtol=1e-5, atol=0)


def test_optimize_acqf_finds_its_maximum() -> None:
    model, (states, weights) = gaussian_process(*data()), listed()
    acquisition = ConditionalKnowledgeGradient(model, [0], states, weights=weights, n_actions=16)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    options = {"maxiter": 5, "seed": 0}
    point, value = optimize_acqf(acquisition, bounds, q=1, num_restarts=1, raw_samples=16, options=options)
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 5, dtype=torch.float64)] * 2)
    assert point.shape == (1, 2)
    with torch.no_grad():
        assert value > acquisition(grid[:, None]).max() * 0.99


def test_states_may_be_drawn_from_a_distribution() -> None:
    model = gaussian_process(*data())
    uniform = torch.distributions.Uniform(torch.zeros(1).double(), torch.ones(1).double())
    before = torch.get_rng_state()
    first, second = (ConditionalKnowledgeGradient(model, [0], uniform, n_states=5) for _ in range(2))
    assert first.states.shape == (5, 1)
    assert torch.equal(first.states, second.states)
    assert torch.equal(torch.get_rng_state(), before)


def test_settings_are_checked() -> None:
    model, states = gaussian_process(*data()), torch.rand(3, 1, dtype=torch.float64)
    for settings, message in (
        ({"n_z": 4}, "`n_z` must be odd and at least 3"),
        ({"n_actions": 0}, "`n_actions >= 1` must hold, but got 0"),
        ({"state_dims": [2]}, "`state_dims` must name some of the columns 0 to 1 once"),
        ({"state_dims": [0, 1], "state_distribution": torch.rand(3, 2)}, "`state_dims` must name some of the columns"),
        ({"state_distribution": states[:, 0]}, r"the states must be of shape \(m, 1\), but got \(3,\)"),
        ({"state_distribution": 1 + states}, "the states must lie within the bounds"),
        ({"weights": -torch.ones(3)}, "`weights` must be 3 numbers of at least 0"),
        ({"bounds": torch.ones(2, 2)}, "`bounds` must be two rows, the first below the second"),
    ):
        with pytest.raises(SettingError, match=message):
            ConditionalKnowledgeGradient(
                **{"model": model, "state_dims": [0], "state_distribution": states, **settings}  # type: ignore[arg-type]
            )
    two = SingleTaskGP(data()[0], torch.cat([data()[1]] * 2, -1))
    with pytest.raises(SettingError, match="needs a `posterior_transform`, but got none for 2 outputs"):
        ConditionalKnowledgeGradient(two, [0], states)
    acquisition = ConditionalKnowledgeGradient(model, [0], states)
    with pytest.raises(UnsupportedError, match="does not account for pending points"):
        acquisition.set_X_pending(states)
    with pytest.raises(AssertionError, match="Expected X to be `batch_shape x q=1 x d`"):
        acquisition(torch.rand(1, 2, 2, dtype=torch.float64))


@pytest.mark.parametrize("negate", [False, True])
def test_branin_of_botorch_is_our_branin(negate: bool) -> None:
    problem, known = problem_of(Branin(negate=negate), state_dims=[0]), branin()
    assert problem.optimal_reward is not None
    assert known.optimal_reward is not None
    generator = np.random.default_rng(0)
    for s, x in ((-5.0, 0.0), (2.5, 7.0), (10.0, 15.0)):
        reward = problem.evaluate({"x0": s}, {"x1": x}, generator)
        assert reward == pytest.approx(known.evaluate({"s": s}, {"x": x}, generator))
        assert problem.optimal_reward({"x0": s}) == pytest.approx(known.optimal_reward({"s": s}), abs=1e-6)


def test_a_noisy_function_of_several_inputs() -> None:
    function = Hartmann(dim=3, noise_std=0.5)
    problem = problem_of(function, state_dims=[1])
    assert (list(problem.space.states), list(problem.space.actions)) == (["x1"], ["x0", "x2"])
    assert problem.noise == 0.5
    best = dict(zip(("x0", "x1", "x2"), function.optimizers[0].tolist(), strict=True))
    assert problem.optimal_action is not None
    found = problem.optimal_action({"x1": best["x1"]})
    assert found == pytest.approx({"x0": best["x0"], "x2": best["x2"]}, abs=1e-3)
    assert opportunity_cost(problem, problem.optimal_action, n_states=1) == pytest.approx(0)


def test_functions_that_are_no_problems() -> None:
    with pytest.raises(SettingError, match="`function` must have one outcome and continuous inputs"):
        problem_of(BraninCurrin(), state_dims=[0])
    with pytest.raises(SettingError, match="`state_dims` must name some of the inputs 0 to 1, but got"):
        problem_of(Branin(), state_dims=[0, 1])
