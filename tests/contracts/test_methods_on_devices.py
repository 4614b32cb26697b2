"""Every method suggests valid float64 points on whatever device its belief is."""

import pytest
import torch

from conbo.belief import fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.exact import ExactPosterior
from conbo.models.noise import VaryingNoise
from conbo.observations import Observations
from conbo.spaces import Categorical, Integer, Real, Space
from contracts.test_methods_contract import QUICK

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
FINITE = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1), "n": Integer(1, 8)})
CONTINUOUS = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "n": Integer(1, 8)})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", QUICK)
def test_suggestions_stay_on_the_device(name: str, device: str) -> None:
    method = QUICK[name]
    space = FINITE if method.needs_finite_states else CONTINUOUS
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
def test_bent_actions_and_noise_that_varies_stay_there_too(name: str, device: str) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = torch.from_numpy(CONTINUOUS.snap(torch.rand(120, 3, generator=generator).double().numpy()))
    noise = 0.01 * torch.exp(4 * rows[:, 0]) * torch.randn(120, generator=generator)
    rewards = torch.tanh(10 * rows[:, 1]) * torch.sin(3 * rows[:, 0]) + rows[:, 2] + noise
    observed = Observations(rows.to(device), rewards.to(device), pending=rows[:0].to(device))
    belief = fit_belief(CONTINUOUS, bind(None, CONTINUOUS), observed, GaussianProcess())
    assert isinstance(belief.posterior, ExactPosterior)
    assert isinstance(belief.posterior.noise, VaryingNoise)
    assert belief.posterior.kernel.actions.warp is not None
    points = QUICK[name].proposal.propose(belief, 2, torch.Generator().manual_seed(2)).points
    assert points.shape == (2, 3)
    assert points.dtype == torch.float64
    assert points.device.type == device
