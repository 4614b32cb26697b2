"""A study on a GPU computes what it computes on the CPU, and nothing is left behind when a posterior moves."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from conbo.acquisition.improvement import ExpectedImprovement
from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.models.log_posterior import LogPosterior
from conbo.models.moving import moved, usable_device
from conbo.models.posterior import Posterior
from conbo.observations import Observations
from conbo.policies.policy import load_policy
from conbo.spaces import Space
from conbo.study import Study, open_study
from contracts.test_posteriors_contract import CASES, REALS
from kernel_family_cases import FAMILIES, data
from random_beliefs import (
    belief_with,
    generator,
    heteroscedastic_noise,
    points_in,
    product_kernel,
    reals,
    uniform,
    warped,
)

CPU = torch.device("cpu")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_GPU)]
EXACT = [
    "matern",
    "squared exponential",
    "no states",
    "warped",
    "heteroscedastic",
    "main effects warped",
    "trend",
]
BUILT_IN = [name for name in CASES if not name.startswith(("BoTorch", "approximate"))]


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = value if isinstance(value, tuple | list) else ()
    if is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    return [tensor for part in parts for tensor in tensors_of(part)]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_posterior_moves_as_a_whole(name: str) -> None:
    posterior = CASES[name]().posterior
    there = tensors_of(moved(posterior, torch.device("meta")))
    assert len(there) == len(tensors_of(posterior)) >= 5
    assert {tensor.device.type for tensor in there} == {"meta"}


def test_an_approximate_posterior_moves_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conbo.models.approximate.MOST_EXACT", 9)
    monkeypatch.setattr("conbo.models.approximate.INDUCING_POINTS", 12)
    there = tensors_of(moved(CASES["approximate trend"]().posterior, torch.device("meta")))
    assert len(there) >= 15
    assert {tensor.device.type for tensor in there} == {"meta"}


@pytest.mark.parametrize("name", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(SettingError, match=f"`device` must be one that torch can use here, but got '{name}'"):
        usable_device(name)
    study = Study(REALS, initial=2, device=name)
    with pytest.raises(SettingError, match=f"but got '{name}'"):
        study.policy()


def on(device: str) -> Belief:
    kernel = warped(product_kernel(REALS, 0.4, [0.3, 0.8], 1.7))
    return belief_with(REALS, kernel, n=40, noise=heteroscedastic_noise(REALS)).to(torch.device(device))


@pytest.mark.parametrize("device", DEVICES)
def test_moments_and_values_are_those_of_the_cpu(device: str) -> None:
    here, there, points = on("cpu"), on(device), points_in(REALS, 12, seed=3)
    assert there.device.type == device
    ours, theirs = here.posterior.moments(points), there.posterior.moments(points.to(device))
    for field in fields(ours):
        mine, other = getattr(ours, field.name), getattr(theirs, field.name)
        torch.testing.assert_close(other.cpu(), mine, rtol=0, atol=1e-6)
    for recipe in (ConBO(HybridKG()), ExpectedImprovement()):
        first = recipe.build(here, generator())(points)
        second = recipe.build(there, generator())(points.to(device))
        torch.testing.assert_close(second.cpu(), first, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*EXACT, "mixture"])
def test_a_local_search_sees_the_function_of_the_cpu(name: str, device: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="conbo")
    here = CASES[name]()
    there, starts = here.to(torch.device(device)), points_in(here.space, 4, seed=3)
    ours, theirs = (
        ConBO(HybridKG()).build(belief, generator()).local(starts.to(belief.device)) for belief in (here, there)
    )
    rows = torch.arange(4)
    for step in range(5):  # on a GPU, the first call computes, the second records, and the others replay
        rows = rows if step < 3 else rows[1:]
        points = here.snap((starts[rows] + 0.02 * step).clamp(0, 1))
        both = ours(points, rows), theirs(points.to(device), rows.to(device))
        for mine, other in zip(*both, strict=True):
            assert other.device.type == device
            torch.testing.assert_close(other.cpu(), mine, rtol=1e-6, atol=1e-6)
    assert "not recorded" not in caplog.text


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_likelihood_is_that_of_the_cpu(name: str, device: str) -> None:
    space, family = FAMILIES[name]
    points, rewards = data(space, n=30)
    for noise in ("moderate", "varying"):
        here, there = (LogPosterior(family, p, rewards, noise) for p in (points, points.to(device)))
        starts = here.prior.starts()
        for mine, other in zip(here(starts), there(starts), strict=True):
            assert other.device == CPU
            torch.testing.assert_close(other, mine, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [20, 60])
def test_a_fit_stays_on_the_device(n: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conbo.models.approximate.MOST_EXACT", 50)
    monkeypatch.setattr("conbo.models.approximate.INDUCING_POINTS", 25)
    points = uniform(n, 3)
    observed = Observations(points, torch.sin(5 * points).sum(-1), points[:0])

    def posterior(where: str) -> Posterior:
        told = observed.to(torch.device(where))
        return fit_belief(REALS, bind(None, REALS), told, GaussianProcess("matern52")).posterior

    there = uniform(9, 3, seed=4)
    mean = posterior(device).mean(there.to(device))
    assert mean.device.type == device
    torch.testing.assert_close(mean.cpu(), posterior("cpu").mean(there), rtol=0, atol=2e-3)  # fits end near each other


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("space", [reals(1, 2), reals(0, 2)], ids=["states", "no states"])
def test_a_study_on_a_device(space: Space, device: str, tmp_path: Path) -> None:
    storage = tmp_path / "study.db"
    study = Study(space, initial=4, seed=1, storage=storage, device=device)
    for _ in range(6):
        trial = study.ask()
        study.tell(trial, sum(trial.action.values()) - sum(trial.state.values()))
    state = dict.fromkeys(space.states, 0.5)
    policy = study.policy()
    assert policy.belief.device == CPU
    assert space.validate_action(policy(state)) == policy(state)
    assert abs(policy.predict(state).mean) < 10
    assert study.policy_value() == pytest.approx(open_study(storage).policy_value(), abs=0.1)
    assert study.summary().evaluations == 6
    study.ask(state=state)
    policy.save(tmp_path / "policy.json")
    assert load_policy(tmp_path / "policy.json")(state) == pytest.approx(policy(state), abs=1e-3)
    with storage.open("rb") as file:
        assert b"device" not in file.read()
