"""Every suggestion, every batch and every recommended action of every method is feasible."""

from dataclasses import replace

import pytest
from test_methods_contract import QUICK, reward

from conbo.method_list import Method
from conbo.optimizer import Optimizer
from conbo.proposals.maximizer import Maximizer
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.trials import Trial
from random_limits import broken

LIMITED = Space(
    states={"k": Categorical(["a", "b"]), "m": Integer(1, 4)},
    actions={"x": Real(0.1, 10, log=True), "y": Real(-2, 3), "n": Integer(0, 8)},
    constraints=["x + y + n <= 6", "y <= 0.5 * m - 1", "y >= -1.5"],
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
    optimizer = Optimizer(LIMITED, method=QUICKER[name], initial=4)
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
