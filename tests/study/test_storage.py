"""A stored study: created, resumed, opened, listed; what is kept of it, and what is refused."""

import json
import math
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conbo import GaussianProcess, open_study, optimizer, study_names
from conbo.errors import RewardError, SettingError, StorageError, StudyError, TrialError
from conbo.method_table import METHODS
from conbo.proposals.uniform import UniformProposal
from conbo.spaces import Categorical, Integer, Real, Space
from conbo.state_distributions import Density, Normal, Triangular, Weights
from conbo.study import Study
from conbo.study.stored import open_stored
from conbo.trials import Trial

SPACE = Space(states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "n": Integer(1, 5)})


def objective(state: dict[str, Any], action: dict[str, Any]) -> float:
    return float(-((action["x"] - state["s"]) ** 2) - 0.1 * abs(action["n"] - 3))


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return str(tmp_path / "study.db")


def stored(storage: str, evaluations: int = 0, **settings: Any) -> Study:
    study = Study(**{"space": SPACE, "method": "uniform", "storage": storage, **settings})
    if evaluations:
        study.run(objective, evaluations, progress=False)
    return study


@dataclass(frozen=True)
class LimitedProposal(UniformProposal):
    limit: float


# Create, resume, open


def test_a_study_goes_on_where_it_stopped(storage: str) -> None:
    stored(storage, 5)
    resumed = stored(storage, 9)
    in_memory = Study(SPACE, method="uniform")
    in_memory.run(objective, 9, progress=False)
    assert resumed.trials == in_memory.trials


def test_fits_and_suggestions_are_those_of_a_study_that_never_stopped(storage: str) -> None:
    for evaluations in (3, 5, 6, 9):
        stored(storage, evaluations, method="expected-improvement", initial=4)
    in_memory = Study(SPACE, method="expected-improvement", initial=4)
    in_memory.run(objective, 9, progress=False)
    assert open_study(storage).trials == in_memory.trials


def test_rewards_and_points_are_kept_to_the_last_digit(storage: str) -> None:
    study = stored(storage)
    rewards = [0.1, 1 / 3, -0.0, 5e-324, 1e300, math.pi * 1e-200]
    asked = study.ask(len(rewards))
    for trial, reward in zip(asked, rewards, strict=True):
        study.tell(trial, reward, noise=abs(reward))
    kept = open_study(storage).trials
    assert [trial.reward for trial in kept] == rewards
    assert [trial.noise for trial in kept] == [abs(reward) for reward in rewards]
    assert [(t.state, t.action) for t in kept] == [(t.state, t.action) for t in asked]
    assert [type(value) for value in kept[0].action.values()] == [float, int]


def test_choices_of_any_type_come_back_as_they_were(storage: str) -> None:
    choices = ("ä\0'\"", "", 1, 2.5, False)
    space = Space(states={"k": Categorical(choices)}, actions={"x": Real(0, 1)})
    study = stored(storage, space=space)
    for choice in choices:
        study.ask(state={"k": choice})
    states = [trial.state["k"] for trial in open_study(storage).trials]
    assert [(type(state), state) for state in states] == [(type(choice), choice) for choice in choices]
    assert open_study(storage).space == space


def test_several_studies_in_one_database(storage: str) -> None:
    stored(storage, 2, name="north")
    stored(storage, 3, name="south", seed=7)
    assert study_names(storage) == ["north", "south"]
    assert [len(open_study(storage, name).trials) for name in ("north", "south")] == [2, 3]
    south = open_study(storage, "south")
    assert (south.name, south.seed, south.method, south.direction) == ("south", 7, "uniform", "maximize")
    with pytest.raises(
        StudyError, match=r"there is no study 'west' in the database '.*study.db': there are 'north', 'south'"
    ):
        open_study(storage, "west")


def test_opening_takes_two_transactions(storage: str) -> None:
    stored(storage, 2)
    records, settings = open_stored(storage, "default")
    assert records.n_transactions == 2
    assert settings["method"] == "uniform"


def test_opening_creates_nothing(storage: str, tmp_path: Path) -> None:
    for attempt in (lambda: open_study(storage), lambda: study_names(storage)):
        with pytest.raises(StorageError, match=r"there is no database '.*study.db'"):
            attempt()
    assert list(tmp_path.iterdir()) == []
    sqlite3.connect(storage).execute("CREATE TABLE mine (x)").connection.close()
    assert study_names(storage) == []
    with pytest.raises(StudyError, match=r"there is no study 'default' in the database .*: there is none"):
        open_study(storage)


def test_a_path_a_url_and_a_path_object_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    stored(str(path), 2)
    assert open_study(path).trials == open_study(f"sqlite:///{path}").trials


def test_the_seed_and_the_design_s_size_need_not_be_repeated(storage: str) -> None:
    stored(storage, 2, seed=5, initial=3)
    resumed = stored(storage, 4)
    assert resumed.seed == 5
    again = Study(SPACE, method="uniform", seed=5, initial=3)
    again.run(objective, 4, progress=False)
    assert resumed.trials == again.trials


def density(state: dict[str, Any]) -> float:
    return float(1 + state["s"])


def other_density(state: dict[str, Any]) -> float:
    return float(2 - state["s"])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"space": Space(states=SPACE.states, actions={**SPACE.actions, "x": Real(0, 2)})},
            "space.actions.x.high: 1.0 → 2.0",
        ),
        ({"space": Space(states=SPACE.states, actions={"x": Real(0, 1)})}, "space.actions: x, n → x"),
        ({"direction": "minimize"}, "direction: 'maximize' → 'minimize'"),
        ({"method": "pei"}, "method: 'uniform' → 'pei'"),
        ({"seed": 1}, "seed: 0 → 1"),
        ({"initial": 7}, "initial: 8 → 7"),
        (
            {"model": GaussianProcess(profile="squared-exponential")},
            "model.profile: 'matern52' → 'squared-exponential'",
        ),
        ({"state_distribution": {"s": Triangular(mode=0.5)}}, "state_distribution.s.type: 'uniform' → 'triangular'"),
        ({"state_distribution": density}, "state_distribution.function: none → 'function .*density'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_settings_are_shown(storage: str, settings: dict[str, Any], line: str) -> None:
    stored(storage, 2)
    with pytest.raises(StudyError, match=rf"begun with other settings \(stored → given\):(.|\n)*  {line}") as raised:
        stored(storage, **settings)
    assert "open_study" in str(raised.value)
    assert len(open_study(storage).trials) == 2


def test_a_model_that_is_not_given_is_the_stored_one(storage: str) -> None:
    smooth = GaussianProcess("squared-exponential")
    stored(storage, 4, method="pei", model=smooth, initial=3)
    suggested = stored(storage, method="pei").ask()
    assert suggested == open_study(storage).trials[-1]
    for model, same in ((smooth, True), (None, False)):  # that of the method would suggest another point
        study = Study(SPACE, method="pei", model=model, initial=3)
        study.run(objective, 4, progress=False)
        assert (study.ask() == suggested) is same


def test_the_same_settings_in_other_words(storage: str) -> None:
    weights, normal = Weights({"b": 1, "a": 3}), Normal(mean=0.2, sd=1)
    space = Space(states={"k": Categorical(["a", "b"]), "s": Real(0, 1)}, actions={"x": Real(0, 1)})
    stored(storage, space=space, state_distribution={"s": normal, "k": weights}, method=METHODS["uniform"])
    again = {"k": Weights({"a": 3, "b": 1}), "s": Normal(mean=0.2, sd=1.0)}
    stored(storage, space=space, state_distribution=again)
    trial = open_study(storage).ask()
    assert trial == Study(space, method="uniform", state_distribution=again).ask()


def test_functions_and_methods_of_one_s_own_must_be_given_again(storage: str) -> None:
    method = replace(METHODS["uniform"], name="mine")
    stored(storage, 1, state_distribution=Density(density), method=method)
    assert len(stored(storage, 2, state_distribution=density, method=method).trials) == 2
    with pytest.raises(StudyError, match="the study's method 'mine' is not one of conbo's: open it with Study"):
        open_study(storage)
    with pytest.raises(StudyError, match=r"function: 'function .*density' → 'function .*other_density'"):
        stored(storage, state_distribution=other_density, method=method)
    stored(storage, name="dense", state_distribution=density)
    with pytest.raises(StudyError, match="the study's state distribution is a function: open it with Study"):
        open_study(storage, "dense")
    stored(storage, name="modeled", model=lambda *_: None)
    with pytest.raises(StudyError, match="the study's model is a function: open it with Study"):
        open_study(storage, "modeled")


@pytest.mark.parametrize("name", ["", None, "a\0b"])
def test_bad_names(storage: str, name: Any) -> None:
    with pytest.raises(SettingError, match="`name` must be a non-empty string, but got"):
        stored(storage, name=name)


@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_browsers_take_out_of_addresses(storage: str, name: str) -> None:
    with pytest.raises(SettingError, match=r"`name` must not be '\.' or '\.\.', which no web address can hold"):
        stored(storage, name=name)


def test_a_name_that_cannot_be_encoded(storage: str) -> None:
    with pytest.raises(SettingError, match=r"`name` must be text that can be encoded in UTF-8, but got 'a\\udc80'"):
        stored(storage, name="a\udc80")
    stored(storage)
    with pytest.raises(StudyError, match=r"there is no study 'a\\udc80'"):
        open_study(storage, "a\udc80")


def test_a_name_that_is_too_long(storage: str) -> None:
    stored(storage, name="x" * 200)
    with pytest.raises(SettingError, match="`name` must have at most 200 characters, but got 201: 'xx"):
        stored(storage, name="x" * 201)


# Several objects for one study see each other


def test_what_one_says_the_other_knows(storage: str) -> None:
    one, other = stored(storage), stored(storage)
    first = one.ask()
    second = other.ask()
    assert (first.number, second.number) == (0, 1)
    assert first.action != second.action
    other.tell(first.number, 1.5)
    one.fail(second, "lost")
    assert one.trials == other.trials
    assert [trial.status for trial in one.trials] == ["completed", "failed"]
    one.tell(first, 1.5)
    with pytest.raises(TrialError, match=r"trial 0 was told reward=1.5 before and cannot be told 1.6 now"):
        one.tell(first, 1.6)
    with pytest.raises(TrialError, match=r"trial 1 has failed and cannot be told a reward, but got 1.0"):
        other.tell(1, 1.0)
    with pytest.raises(TrialError, match=r"trial 0 was told reward=1.5 and cannot fail any more"):
        other.fail(0)
    with pytest.raises(TrialError, match="unknown trial 2: known are 0 to 1"):
        other.tell(2, 1.0)


def test_noise_is_for_all_or_for_none_whoever_tells(storage: str) -> None:
    one, other = stored(storage), stored(storage)
    one.ask(3)
    one.tell(0, 1.0)
    with pytest.raises(RewardError, match=r"with every reward or with none, but got noise=0.1 for trial 1"):
        other.tell(1, 1.0, noise=0.1)
    one.tell(1, 2.0)
    assert [trial.status for trial in other.trials] == ["completed", "completed", "running"]


def test_what_is_recorded_beside_the_results(storage: str) -> None:
    study = stored(storage, 2)
    trial = study.trials[1]
    assert trial.worker is not None
    assert (trial.attempts, trial.late, trial.leased) == (1, None, False)
    assert trial.started is not None
    assert trial.finished is not None
    assert trial.started <= trial.finished
    assert trial.started.tzinfo is not None
    by_hand = study.ask()
    assert (by_hand.finished, by_hand.leased) == (None, False)


def test_errors_with_odd_characters_are_kept(storage: str) -> None:
    study = stored(storage)
    study.fail(study.ask(), "nul \0, half a character \ud800, ü")
    assert open_study(storage).trials[0].error == "nul \\0, half a character \\ud800, ü"


def test_new_choices_reach_all_who_work_on_the_study(storage: str) -> None:
    space = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})
    one = stored(storage, space=space)
    other = open_study(storage)
    one.ask(4)
    one.add_choices("k", ["c"])
    assert other.space.states["k"] == Categorical(["a", "b", "c"])
    assert other.ask(state={"k": "c"}).number == 4
    assert other.trials == one.trials == open_study(storage).trials
    assert [row["state"]["k"] for row in other.best_observed()] == ["a", "b", "c"]
    with pytest.raises(StudyError, match=r"space.states.k.choices: \['a', 'b', 'c'\] → \['a', 'b'\]"):
        stored(storage, space=space)


def test_new_choices_with_new_weights(storage: str) -> None:
    space = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})
    one = stored(storage, space=space, state_distribution={"k": Weights({"a": 1, "b": 1})})
    other = open_study(storage)
    with pytest.raises(SettingError, match="`state_distribution` must be given with new choices of 'k'"):
        one.add_choices("k", ["c"])
    one.add_choices("k", ["c"], {"k": Weights({"c": 1})})
    assert {trial.state["k"] for trial in other.ask(5)} == {"c"}


def test_choices_that_are_too_many_for_the_method_are_refused(storage: str) -> None:
    space = Space(states={"s": Integer(1, 1000)}, actions={"x": Categorical(range(100))})
    study = stored(storage, space=space, method="gp-c-ocba")
    with pytest.raises(SettingError, match="at most 100,000 pairs"):
        study.add_choices("x", ["more"])
    assert study.space == open_study(storage).space == space


def test_only_what_changed_is_read_again(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study = stored(storage, 20)
    read = []
    monkeypatch.setattr(
        json, "loads", lambda text, loads=json.loads, **hooks: read.append(text) or loads(text, **hooks)
    )
    study.ask()
    assert len(study.trials) == 21
    assert len(read) <= 6


@pytest.mark.parametrize("widened", [False, True])
def test_an_interrupted_reading_is_repeated(storage: str, widened: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one = stored(storage, space=Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)}))
    one.ask(4)
    other, check, interrupts = open_study(storage), optimizer.check_trial, [KeyboardInterrupt]
    if widened:
        assert len(other.trials) == 4
        one.add_choices("k", ["c"])
    one.ask(4)

    def interrupted_once(trial: Trial, *arguments: Any) -> None:
        if trial.number == 2 and interrupts:
            raise interrupts.pop()
        check(trial, *arguments)

    monkeypatch.setattr(optimizer, "check_trial", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        other.trials  # noqa: B018
    assert other.trials == one.trials
    assert other.space == one.space


def test_a_seed_of_any_size_is_kept(storage: str) -> None:
    seed = 2**127 + 1
    first = Study(SPACE, seed=seed, method="uniform", storage=storage).ask()
    again = open_study(storage)
    assert (again.seed, again.trials) == (seed, (first,))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"seed": 2**5000}, r"`seed` must be a whole number from 0 to 2\*\*4096, but got 1412467032"),
        ({"seed": 10**5000}, r"`seed` must be a whole number from 0 to 2\*\*4096, but got a whole number of thousands"),
        ({"initial": 2**70}, "`initial` must be a whole number from 1 to 9223372036854775807, but got 1180591620"),
    ],
    ids=["a seed", "a seed of 5001 digits", "a design"],
)
def test_what_could_not_be_read_back_is_not_stored(storage: str, setting: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        stored(storage, **setting)
    assert stored(storage).trials == ()


@pytest.mark.parametrize("limit", [math.inf, math.nan])
def test_a_method_of_one_s_own_may_have_numbers_that_are_not_finite(storage: str, limit: float) -> None:
    method = replace(METHODS["uniform"], name="mine", proposal=LimitedProposal(limit))
    stored(storage, 1, method=method)
    assert len(stored(storage, 2, method=method).trials) == 2
    with pytest.raises(StudyError, match=rf"method.proposal.limit: '{limit}' → 1.0"):
        stored(storage, method=replace(method, proposal=LimitedProposal(1.0)))


def test_numbers_of_numpy_are_stored_as_those_of_python(storage: str) -> None:
    states = {"n": Integer(1, 3), "s": Real(0, 100), "t": Real(0, 100)}
    values, counts = np.unique([1, 2, 2, 3], return_counts=True)
    distribution = {
        "n": Weights(dict(zip(values, counts, strict=True))),
        "s": Normal(np.int64(50), np.int64(10)),
        "t": Triangular(np.int64(50)),
    }
    space = Space(states=states, actions={"x": Real(1, 10, log=np.True_)})
    trial = stored(storage, space=space, state_distribution=distribution).ask()
    plain = {"n": Weights({1: 1, 2: 2, 3: 1}), "s": Normal(50, 10), "t": Triangular(50)}
    space = Space(states=states, actions={"x": Real(1, 10, log=True)})
    assert stored(storage, space=space, state_distribution=plain).trials == (trial,)
    assert open_study(storage).space == space


def test_an_exception_is_a_reason_to_fail(storage: str) -> None:
    study = stored(storage)
    trial = study.ask()
    study.fail(trial, ValueError("too hot"))  # type: ignore[arg-type]
    assert open_study(storage).trials[0].error == "too hot"


def test_without_a_reason_a_trial_is_canceled(storage: str) -> None:
    study = stored(storage)
    study.fail(study.ask(), None)  # type: ignore[arg-type]
    (trial,) = open_study(storage).trials
    assert (trial.status, trial.error, trial.teaches_failure) == ("failed", "", False)
