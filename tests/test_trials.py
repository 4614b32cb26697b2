import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from conbo.errors import RewardError, TrialError
from conbo.trials import Outcomes, Trial, outcomes_of

RUNNING = Trial(3, {"s": 1.0}, {"x": 2})


@pytest.mark.parametrize(
    "reward",
    [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), np.array([2.0]), torch.tensor(2.0), Fraction(2)],
    ids=repr,
)
def test_one_finite_number_of_any_kind(reward: Any) -> None:
    told = RUNNING.told(Outcomes(reward))
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
        RUNNING.told(Outcomes(reward))


def test_bad_noise() -> None:
    with pytest.raises(RewardError, match="`noise >= 0` must hold for the variance of a reward, but got noise=-1"):
        RUNNING.told(Outcomes(1.0, noise=-1))
    with pytest.raises(RewardError, match="a noise must be one finite number, but got nan"):
        RUNNING.told(Outcomes(1.0, noise=float("nan")))


def test_what_was_told_stays_told() -> None:
    told = RUNNING.told(Outcomes(1.5, noise=0.1))
    assert told.told(Outcomes(1.5, noise=0.1)) == told
    with pytest.raises(TrialError, match=r"trial 3 was told reward=1.5 before and cannot be told 2.0 now"):
        told.told(Outcomes(2.0, noise=0.1))
    with pytest.raises(TrialError, match=r"trial 3 was told noise=0.1 before and cannot be told None now"):
        told.told(Outcomes(1.5))
    with pytest.raises(TrialError, match=r"trial 3 was told reward=1.5 and cannot fail any more"):
        told.failed()


@pytest.mark.parametrize("reward", [1.7e308, -1.7e308, 1.01e300])
def test_a_reward_that_is_too_large_to_reckon_with_is_refused(reward: float) -> None:
    with pytest.raises(RewardError, match=r"`abs\(reward\) <= 1e\+300` must hold, but got reward=-?1\.[0-9]+e\+30"):
        RUNNING.told(Outcomes(reward))
    assert RUNNING.told(Outcomes(math.copysign(1e300, reward))).status == "completed"


def test_what_has_failed_stays_failed() -> None:
    failed = RUNNING.failed("power cut")
    assert (failed.status, failed.error, failed.reward) == ("failed", "power cut", None)
    assert failed.failed("again") == failed
    with pytest.raises(TrialError, match=r"trial 3 has failed and cannot be told a reward, but got 1.0"):
        failed.told(Outcomes(1.0))


# Outcomes beside the reward


def test_measured_values_are_plain_and_part_of_what_was_told() -> None:
    told = RUNNING.told(Outcomes(1.5, measured={"wait": np.float32(4.5), "n": 3}))
    assert told.measured == {"wait": 4.5, "n": 3.0}
    assert {type(value) for value in told.measured.values()} == {float}
    assert RUNNING.measured == {}
    assert told.told(Outcomes(1.5, None, {"n": 3, "wait": 4.5})) == told
    assert told != RUNNING.told(Outcomes(1.5))
    with pytest.raises(
        TrialError, match=r"trial 3 was told measured=\{'wait': 4.5, 'n': 3.0\} before and cannot be told"
    ):
        told.told(Outcomes(1.5, None, {"wait": 4.5}))


def test_outcomes_do_not_change_with_the_mapping_that_they_were_made_of() -> None:
    wait = {"wait": 4.2}
    outcomes = Outcomes(1.0, measured=wait)
    wait["wait"] = 7.0
    assert outcomes.measured == {"wait": 4.2}
    assert pickle.loads(pickle.dumps(outcomes)) == outcomes


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (4.2, r"outcomes must be a mapping from names to numbers, but got 4\.2\."),
        ({"": 1.0}, "the name of an outcome must be a non-empty string, but got ''"),
        ({3: 1.0}, "the name of an outcome must be a non-empty string, but got 3"),
        ({"w" * 201: 1.0}, "the name of an outcome must have at most 200 characters, but got 201: 'www"),
        ({"a\nb": 1.0}, r"the name of an outcome must have no control characters, but got 'a\\nb'"),
        ({"a\ud800": 1.0}, r"the name of an outcome must have no control characters, but got 'a\\ud800'"),
        ({"noise": 1.0}, "an outcome beside the reward must not be named 'reward' or 'noise', but got 'noise'"),
        ({"wait": math.nan}, "a value of the outcome 'wait' must be one finite number, but got nan"),
        ({"wait": "4.2"}, "a value of the outcome 'wait' must be one finite number, but got '4.2'"),
        ({"wait": None}, "a value of the outcome 'wait' must be one finite number, but got None"),
        ({str(i): 1.0 for i in range(101)}, "there must be at most 100 outcomes beside the reward, but got 101"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_bad_outcomes(measured: Any, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        Outcomes(1.0, measured=measured)


def test_names_of_any_script() -> None:
    names = ("Wartezeit, größte", "待機時間", " a:b=c ", "w" * 200)
    assert tuple(Outcomes(1.0, measured=dict.fromkeys(names, 1.0)).measured) == names


def test_what_an_objective_may_return() -> None:
    assert outcomes_of(1.5) == outcomes_of({"reward": 1.5}) == Outcomes(1.5)
    assert outcomes_of({"wait": 2, "noise": 0.1, "reward": 1.5}) == Outcomes(1.5, 0.1, {"wait": 2.0})
    assert outcomes_of({"reward": 1.5, "noise": None}) == Outcomes(1.5)
    rule = "an objective must return a number or a mapping with 'reward', but got"
    with pytest.raises(RewardError, match=rule + r" \{'wait': 2\}\."):
        outcomes_of({"wait": 2})
    with pytest.raises(RewardError, match="a reward must be one finite number, but got None"):
        outcomes_of({"reward": None, "wait": 2})
