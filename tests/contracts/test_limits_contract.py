"""Every suggestion, every batch and every recommended action of every method is feasible."""

import warnings
from dataclasses import replace

import pytest
from test_methods_contract import QUICK, reward

from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.method_list import Method
from conbo.optimizer import Optimizer
from conbo.proposals.maximizer import Maximizer
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.trials import Trial
from random_limits import broken, limited_space

LIMITED = Space(
    states={"k": Categorical(["a", "b"]), "m": Integer(1, 4)},
    actions={"x": Real(0.1, 10, log=True), "y": Real(-2, 3), "n": Integer(0, 8)},
    constraints=["x + y + n <= 6", "y <= 0.5 * m - 1", "y >= -1.5"],
)
LIMITED_INTEGERS = Space(
    LIMITED.states, {"x": Integer(1, 10, log=True), "y": Integer(-2, 3), "n": Integer(0, 8)}, LIMITED.constraints
)


def less_thorough(method: Method) -> Method:
    proposal = method.proposal
    if isinstance(proposal, Maximizer):
        proposal = replace(proposal, screened=16, starts=2, finalists=1, iterations=4)
    return replace(method, proposal=proposal)


QUICKER = {name: less_thorough(method) for name, method in QUICK.items()}


def assert_feasible(trials: list[Trial]) -> None:
    for trial in trials:
        assert not broken(LIMITED, trial.state, trial.action)


@pytest.mark.parametrize("name", QUICKER)
def test_all_that_a_method_says_is_feasible(name: str) -> None:
    space = LIMITED_INTEGERS if QUICKER[name].needs_finite_actions else LIMITED
    optimizer = Optimizer(space, method=QUICKER[name], initial=4)
    for n in (4, 2):
        trials = optimizer.ask(n)
        assert_feasible(trials)
        for trial in trials:
            optimizer.tell(trial, reward(trial))
    (dictated,) = optimizer.ask(1, state={"k": "a", "m": 1})
    assert_feasible([dictated])
    assert dictated.state == {"k": "a", "m": 1}
    policy = optimizer.policy()
    for m in range(1, 5):
        assert not broken(LIMITED, {"m": m}, policy({"k": "b", "m": m}))


ONE = GaussianProcess("matern52", main_effects="none", input_warping="none", output_warping="none", members=1)
INITIAL, BATCH, BATCHES = 10, 30, 3


def optimizer_of(seed: int) -> Optimizer:
    """A random space with one method after the other, as far as these take its states."""
    space, name = limited_space(seed), list(QUICKER)[seed % len(QUICKER)]
    try:
        return Optimizer(space, method=QUICKER[name], initial=INITIAL, seed=seed, model=ONE)
    except SettingError:  # it takes finitely many states or actions only
        return Optimizer(space, method=QUICKER["conbo"], initial=INITIAL, seed=seed, model=ONE)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_none_of_10_000_suggestions_is_infeasible(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # redundant constraints, and states without a feasible action
        optimizer = optimizer_of(seed)
        for n in (INITIAL, *[BATCH] * BATCHES):
            trials = optimizer.ask(n)
            assert [found for trial in trials for found in broken(optimizer.space, trial.state, trial.action)] == []
            for trial in trials:
                values = [value for value in trial.point.values() if not isinstance(value, str)]
                optimizer.tell(trial, sum(float(value) for value in values))
