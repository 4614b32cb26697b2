"""Mistakes that could pass without a word get one: an error or a warning that names the rule."""

import warnings
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from conbo.bound_states import bind
from conbo.errors import ConboError, RewardError, SettingError, SpaceError, StudyError, TrialError
from conbo.optimizer import Optimizer
from conbo.spaces import Categorical, Integer, Point, Real, Space
from conbo.state_distributions import Density, Normal, Weights
from conbo.study import Study
from conbo.trials import outcomes_of

SPACE = Space(states={"demand": Real(10, 100)}, actions={"stock": Real(0, 150)})


@pytest.mark.parametrize("make", [Study, Optimizer])
def test_a_trial_of_another_study_is_refused(make: Any) -> None:
    mine, other = make(SPACE, seed=1, method="uniform"), make(SPACE, seed=2, method="uniform")
    (own,), (foreign,) = mine.ask(1), other.ask(1)
    for say in (lambda: mine.tell(foreign, 1.0), lambda: mine.fail(foreign)):
        with pytest.raises(TrialError, match=r"trial 0 must be one of this study, where it is at \{'demand'"):
            say()
    mine.tell(own, 1.0)
    assert mine.trials[0].reward == 1.0


def test_a_normal_outside_the_range_is_warned_about() -> None:
    with pytest.warns(
        UserWarning, match=r"Normal\(mean=400, sd=15\) has nearly nothing of its weight on 'demand' from"
    ):
        bind({"demand": Normal(400, 15)}, SPACE)
    with pytest.warns(UserWarning, match=r"has 1\.6% of its weight on 'demand' from 10 to 100: is it meant\?"):
        bind({"demand": Normal(132, 15)}, SPACE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bind({"demand": Normal(100, 15)}, SPACE)  # half of it


def test_weights_that_leave_out_a_choice_are_warned_about() -> None:
    space = Space(states={"ward": Categorical(["A", "B", "C"]), "day": Integer(1, 7)}, actions={"x": Real(0, 1)})
    with pytest.warns(UserWarning, match="the weights of 'ward' leave out 'C', so that P\\[s\\] has no such state"):
        bind({"ward": Weights({"A": 1, "B": 2})}, space)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bind({"ward": Weights({"A": 1, "B": 2, "C": 0}), "day": Weights({1: 1, 2: 1})}, space)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a CSV file with a line of column names, but it is empty"),
        ("\n\n", "must be a CSV file with a line of column names, but it is empty"),
        ("demand;stock;reward\n20;30;1,5\n", "must be a CSV file with commas, but its first line has semicolons"),
        ("demand\tstock\treward\n20\t30\t1.5\n", "must be a CSV file with commas, but its first line has tabs"),
        ("demand,stock,reward\n20,30,1.5\n\n20,30,much\n", r"\n  line 4: a reward must be one finite number"),
        ('demand,stock,reward,note\n20,30,1,"two\nlines"\n20,30,much,\n', r"\n  line 4: a reward must be"),
    ],
)
def test_files_that_are_no_results_say_what_they_are(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "results.csv").write_text(text)
    study = Study(SPACE)
    with pytest.raises(StudyError, match=message):
        study.import_csv(tmp_path / "results.csv")
    assert study.trials == ()


@pytest.mark.parametrize("name", ["number", "reward", "status"])
def test_reserved_names_are_refused_by_the_space(name: str) -> None:
    for roles in ({"actions": {name: Real(0, 1)}}, {"states": {name: Real(0, 1)}, "actions": {"x": Real(0, 1)}}):
        with pytest.raises(SpaceError, match=f"must not be named like a column of the trials, but got '{name}'"):
            Space(**roles)  # type: ignore[arg-type]


def test_an_objective_that_cannot_be_called_with_state_and_action() -> None:
    study = Study(SPACE, method="uniform")
    for objective in (lambda state: 1.0, lambda state, action, more: 1.0):
        with pytest.raises(
            SettingError, match=r"`objective` must be a function of state and action, but got .* argument"
        ):
            study.run(objective, 4, progress=False)
    assert study.trials == ()


def test_a_decorated_objective_is_called_as_its_decorator_says() -> None:
    def profit(demand: float, stock: float, price: float) -> float:
        return price * min(demand, stock)

    @wraps(profit)
    def objective(state: Point, action: Point) -> float:
        return profit(float(state["demand"]), float(action["stock"]), price=2.0)

    assert Study(SPACE, method="uniform").run(objective, 2, progress=False).completed == 2


def test_a_density_that_raises_or_returns_nothing() -> None:
    with pytest.raises(
        SpaceError, match=r"must have a value for every state, but raised KeyError: 'demnad' at \{'demand"
    ):
        bind(Density(lambda state: state["demnad"]), SPACE)  # type: ignore[arg-type, return-value]
    with pytest.raises(SpaceError, match="a density must be finite and not negative, but got None at"):
        bind(Density(lambda state: None), SPACE)  # type: ignore[arg-type, return-value]


def broken_model(points: object, rewards: object, noise: object) -> object:
    raise ZeroDivisionError("no lengthscale")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (broken_model, "that returns a BoTorch model, but raised ZeroDivisionError: no lengthscale"),
        (lambda points, rewards, noise: None, "that returns a BoTorch model, but returned None."),
        (lambda points: points, r"that returns a BoTorch model, but raised TypeError: .*positional argument"),
    ],
)
def test_a_model_that_raises_or_returns_nothing(model: Any, message: str) -> None:
    study = Study(SPACE, method="uniform", model=model)
    study.tell(study.ask(), 1.0)
    with pytest.raises(ConboError, match=message):
        study.policy()


async def slow(state: dict[str, Any], action: dict[str, Any]) -> float:
    return 1.0


class Slow:
    async def __call__(self, state: dict[str, Any], action: dict[str, Any]) -> float:
        return 1.0


@pytest.mark.parametrize("objective", [slow, Slow()])
def test_an_async_objective_is_refused_at_once(objective: Any) -> None:
    study = Study(SPACE)
    with pytest.raises(SettingError, match=r"must return its result and not be async: wrap it with asyncio\.run"):
        study.run(objective, 3, progress=False)
    assert study.trials == ()


def test_a_coroutine_is_no_reward() -> None:
    with pytest.raises(RewardError, match=r"not be async: wrap it with asyncio\.run, but it returned something"):
        outcomes_of(slow({}, {}))
