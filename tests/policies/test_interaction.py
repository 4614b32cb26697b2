"""A policy that cannot depend on the state says so."""

import warnings
from collections.abc import Callable

import pytest
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from conbo.belief import ModelLike
from conbo.gaussian_process import GaussianProcess
from conbo.policies.interaction import NoInteractionWarning
from conbo.spaces import Categorical, Real, Space
from conbo.study import Study

REALS = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1)})
CATEGORIES = Space(states={"s": Categorical([0.0, 0.4, 1.0])}, actions={"x": Real(0, 1)})


def additive(s: float, x: float) -> float:
    return 3 * s - (x - 0.4) ** 2


def interacting(s: float, x: float) -> float:
    return -((x - s) ** 2)


def additive_model(points: Tensor, rewards: Tensor, noise: Tensor | None) -> SingleTaskGP:
    kernels = [ScaleKernel(RBFKernel(active_dims=(i,))) for i in range(2)]
    return SingleTaskGP(points, rewards, noise, covar_module=kernels[0] + kernels[1], outcome_transform=None)


def study_of(space: Space, reward: Callable[[float, float], float], model: ModelLike | None = None) -> Study:
    study = Study(space, method="uniform", model=model)
    study.run(lambda s, x: reward(float(s["s"]), float(x["x"])), evaluations=40, progress=False)
    return study


@pytest.mark.parametrize(
    ("space", "reward", "model"),
    [
        (REALS, additive, GaussianProcess()),
        (REALS, interacting, additive_model),
        (REALS, lambda s, x: 1.0, GaussianProcess()),
        (REALS, lambda s, x: x, GaussianProcess()),
    ],
    ids=["additive rewards", "additive model", "constant rewards", "no effect of states"],
)
def test_one_warning_without_interaction(
    space: Space, reward: Callable[[float, float], float], model: ModelLike
) -> None:
    study = study_of(space, reward, model)
    with pytest.warns(NoInteractionWarning, match="The policy is the same for every state") as caught:
        policy = study.policy()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    actions = [float(policy({"s": s})["x"]) for s in (0.0, 0.4, 1.0)]
    assert max(actions) - min(actions) < 0.01


@pytest.mark.parametrize("space", [REALS, CATEGORIES], ids=["reals", "categories"])
def test_no_warning_with_interaction(space: Space) -> None:
    study = study_of(space, interacting)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.policy()


def test_no_warning_with_a_single_state() -> None:
    study = study_of(Space({"s": Categorical([0.5])}, REALS.actions), lambda s, x: x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.policy()


def test_no_warning_if_limits_depend_on_the_state() -> None:
    study = study_of(Space(REALS.states, REALS.actions, constraints=["x <= 0.2 + 0.5 * s"]), lambda s, x: x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = study.policy()
    assert [float(policy({"s": s})["x"]) for s in (0.2, 0.8)] == pytest.approx([0.3, 0.6], abs=0.01)


def test_no_warning_without_states() -> None:
    study = Study(Space(actions={"x": Real(0, 1)}), method="uniform")
    study.run(lambda s, x: 1.0, evaluations=5, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.policy()
