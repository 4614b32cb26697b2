import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from conbo.errors import RewardError, TrialError
from conbo.trials import Trial

RUNNING = Trial(3, {"s": 1.0}, {"x": 2})


@pytest.mark.parametrize(
    "reward",
    [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), np.array([2.0]), torch.tensor(2.0), Fraction(2)],
    ids=repr,
)
def test_one_finite_number_of_any_kind(reward: Any) -> None:
    told = RUNNING.told(reward)
    assert (told.status, told.reward) == ("completed", 2.0)
    assert type(told.reward) is float


@pytest.mark.parametrize(
    "reward",
    [
        float("nan"),
        float("inf"),
        -np.inf,
        None,
        "2",
        True,
        [2.0],
        np.array([1.0, 2.0]),
        torch.zeros(2),
        10**400,
    ],
    ids=lambda reward: repr(reward)[:20],
)
def test_all_else_is_refused(reward: Any) -> None:
    with pytest.raises(RewardError, match="a reward must be one finite number, but got"):
        RUNNING.told(reward)


def test_bad_noise() -> None:
    with pytest.raises(RewardError, match="`noise >= 0` must hold for the variance of a reward, but got noise=-1"):
        RUNNING.told(1.0, noise=-1)
    with pytest.raises(RewardError, match="a noise must be one finite number, but got nan"):
        RUNNING.told(1.0, noise=float("nan"))


def test_what_was_told_stays_told() -> None:
    told = RUNNING.told(1.5, noise=0.1)
    assert told.told(1.5, noise=0.1) == told
    with pytest.raises(TrialError, match=r"trial 3 was told reward=1.5 before and cannot be told 2.0 now"):
        told.told(2.0, noise=0.1)
    with pytest.raises(TrialError, match=r"trial 3 was told noise=0.1 before and cannot be told None now"):
        told.told(1.5)
    with pytest.raises(TrialError, match=r"trial 3 was told reward=1.5 and cannot fail any more"):
        told.failed()


@pytest.mark.parametrize("reward", [1.7e308, -1.7e308, 1.01e300])
def test_a_reward_that_is_too_large_to_reckon_with_is_refused(reward: float) -> None:
    with pytest.raises(RewardError, match=r"`abs\(reward\) <= 1e\+300` must hold, but got reward=-?1\.[0-9]+e\+30"):
        RUNNING.told(reward)
    assert RUNNING.told(math.copysign(1e300, reward)).status == "completed"


def test_what_has_failed_stays_failed() -> None:
    failed = RUNNING.failed("power cut")
    assert (failed.status, failed.error, failed.reward) == ("failed", "power cut", None)
    assert failed.failed("again") == failed
    with pytest.raises(TrialError, match=r"trial 3 has failed and cannot be told a reward, but got 1.0"):
        failed.told(1.0)
