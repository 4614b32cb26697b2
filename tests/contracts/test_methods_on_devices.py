"""Every method suggests valid float64 points on whatever device its belief is."""

import pytest
import torch

from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.columns import Columns
from conbo.models.exact import condition
from conbo.models.kernels import Factor
from conbo.models.main_effects import MainEffectsKernel
from conbo.models.mixture import Mixture
from conbo.models.output_maps import LowTail
from conbo.models.transformed import TransformedPosterior
from conbo.observations import Observations
from conbo.spaces import Categorical, Integer, Real, Space
from contracts.test_methods_contract import QUICK
from random_beliefs import heteroscedastic_noise, product_kernel, tensor, uniform, warped

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
FINITE = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1), "n": Integer(1, 8)})
FINITE_ACTIONS = Space(
    states={"k": Categorical(["a", "b"])}, actions={"c": Categorical(["u", "v"]), "n": Integer(1, 8)}
)
CONTINUOUS = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "n": Integer(1, 8)})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", QUICK)
def test_suggestions_stay_on_the_device(name: str, device: str) -> None:
    method = QUICK[name]
    space = FINITE_ACTIONS if method.needs_finite_actions else FINITE if method.needs_finite_states else CONTINUOUS
    if method.states_as_actions:
        space = space.with_states_as_actions()
    rows = torch.from_numpy(space.snap(torch.rand(9, 3, generator=torch.Generator().manual_seed(1)).double().numpy()))
    rewards = torch.sin(5 * rows).sum(-1)
    observed = Observations(rows.to(device), rewards.to(device), pending=rows[:0].to(device))
    belief = fit_belief(space, bind(None, space), observed, GaussianProcess())
    points = method.proposal.propose(belief, 2, torch.Generator().manual_seed(2)).points
    assert points.shape == (2, 3)
    assert points.dtype == torch.float64
    assert points.device.type == device
    torch.testing.assert_close(points.cpu(), torch.from_numpy(space.snap(points.cpu().numpy())))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["conbo", "conbo-pes", "peqi", "ps-bax"])
def test_every_part_of_a_mixture_stays_there_too(name: str, device: str) -> None:
    rows = torch.from_numpy(CONTINUOUS.snap(uniform(20, 3, seed=1).numpy()))
    rewards, product = torch.sin(5 * rows).sum(-1), product_kernel(CONTINUOUS)
    effects = MainEffectsKernel(product, Factor(Columns((0,)), tensor([0.7])), 0.6, 0.4)
    noise = heteroscedastic_noise(CONTINUOUS).to(torch.device(device))
    here = Observations(rows.to(device), rewards.to(device), pending=rows[:0].to(device))
    kernels = warped(product).to(here.points.device), effects.to(here.points.device)
    first, second = (condition(kernel, 0.0, noise, here.points, here.rewards) for kernel in kernels)
    mapped = TransformedPosterior(first, LowTail(pivot=0.5, width=0.3))
    weights = tensor([0.5, 0.3, 0.2]).to(device)
    belief = Belief(CONTINUOUS, bind(None, CONTINUOUS), here, Mixture((first, second, mapped), weights), 0.0, 1.0)

    points = QUICK[name].proposal.propose(belief, 2, torch.Generator().manual_seed(2)).points

    assert points.shape == (2, 3)
    assert points.dtype == torch.float64
    assert points.device.type == device
