"""Trials that come from elsewhere are checked before an optimizer goes on from them."""

from dataclasses import replace

import pytest

from conbo import Integer, Optimizer, Real, Space
from conbo.errors import ConboError, PointError, RewardError, TrialError
from conbo.trials import Outcomes, Trial

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "n": Integer(1, 5)})


def trials() -> list[Trial]:
    optimizer = Optimizer(SPACE, method="uniform")
    for trial in optimizer.ask(4):
        optimizer.tell(trial, float(trial.number))
    return list(optimizer.trials)


def test_trials_are_restored_as_they_were() -> None:
    optimizer = Optimizer(SPACE, method="uniform")
    optimizer.restore(trials())
    assert optimizer.trials == tuple(trials())
    optimizer.restore([])
    assert optimizer.trials == ()


@pytest.mark.parametrize(
    ("number", "changes", "kind", "message"),
    [
        (2, {"number": 1}, TrialError, "trials must be numbered 0, 1, 2, …, but got 1 in place of 2"),
        (2, {"number": 3}, TrialError, "trials must be numbered 0, 1, 2, …, but got 3 in place of 2"),
        (1, {"state": {"s": 2}}, PointError, r"trial 1: `0\.0 <= s <= 1\.0` must hold, but got s=2"),
        (
            1,
            {"action": {"x": 0.5}},
            PointError,
            "trial 1: action must give every parameter a value, but 'n' is missing",
        ),
        (3, {"outcomes": None}, RewardError, "trial 3: a completed trial must have a reward, but got none"),
    ],
)
def test_trials_that_cannot_be(number: int, changes: dict[str, object], kind: type[ConboError], message: str) -> None:
    damaged = trials()
    damaged[number] = replace(damaged[number], **changes)  # type: ignore[arg-type]
    with pytest.raises(kind, match=message):
        Optimizer(SPACE, method="uniform").restore(damaged)


def test_trials_stay_as_they_were_if_others_cannot_be_restored() -> None:
    optimizer, known = Optimizer(SPACE, method="uniform"), trials()
    optimizer.restore(known)
    with pytest.raises(PointError):
        optimizer.restore([known[0], replace(known[1], state={"s": 2.0})])
    assert list(optimizer.trials) == known


def test_a_trial_before_the_others_is_missing() -> None:
    with pytest.raises(TrialError, match="trial 0 must come before trial 2, but is missing"):
        Optimizer(SPACE, method="uniform").adopt(trials()[2:])


def test_noise_of_some_trials_only() -> None:
    damaged = trials()
    damaged[2] = replace(damaged[2], outcomes=Outcomes(2.0, noise=0.1))
    optimizer = Optimizer(SPACE, method="uniform")
    optimizer.restore(damaged)
    with pytest.raises(RewardError, match="`noise` must be given with every reward or with none"):
        optimizer.policy()
