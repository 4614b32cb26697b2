"""An Ax experiment whose trials conbo suggests, and reads back."""

import logging
from pathlib import Path
from typing import Any

import pytest
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from conbo.errors import SettingError
from conbo.integrations.ax import AxBridge
from conbo.spaces import Categorical, Integer, Real

pytestmark = pytest.mark.filterwarnings("ignore")  # Ax warns about itself
logging.getLogger("ax").setLevel(logging.ERROR)

PARAMETERS = [
    RangeParameterConfig("demand", (10, 100), "float"),
    RangeParameterConfig("stock", (0, 150), "float"),
]


def new_client(parameters: Any = PARAMETERS, objective: str = "profit", constraints: list[str] | None = None) -> Client:
    client = Client()
    client.configure_experiment(parameters=parameters, parameter_constraints=constraints)
    client.configure_optimization(objective=objective)
    return client


def profit(parameters: dict[str, Any]) -> float:
    return -(((parameters["stock"] - parameters["demand"]) / 50) ** 2)


@pytest.mark.parametrize("sign", [1, -1])
def test_ax_runs_what_conbo_suggests_and_conbo_learns_from_it(sign: int) -> None:
    client = new_client(objective="profit" if sign > 0 else "-profit")
    bridge = AxBridge(client, states=["demand"], method="pei", initial=6)
    for _ in range(4):
        for index, parameters in bridge.get_next_trials(2).items():
            client.complete_trial(index, raw_data={"profit": sign * profit(parameters)})
    assert bridge.policy()({"demand": 60})["stock"] == pytest.approx(60, abs=10)
    trials = bridge.study.trials
    assert [trial.status for trial in trials] == ["completed"] * 8
    arms = [trial.arms[0].parameters for trial in client._experiment.trials.values()]
    assert arms == [{**trial.state, **trial.action} for trial in trials]
    assert bridge.study.direction == ("maximize" if sign > 0 else "minimize")


def test_results_that_were_there_and_results_of_others_count() -> None:
    client = new_client()
    first = client.attach_trial({"demand": 20.0, "stock": 30.0})
    client.complete_trial(first, raw_data={"profit": (40.0, 2.0)})
    client.attach_trial({"demand": 50.0, "stock": 30.0})  # is running
    bridge = AxBridge(client, states=["demand"])
    (told,) = bridge.study.trials
    assert (told.state, told.action, told.reward, told.noise) == ({"demand": 20.0}, {"stock": 30.0}, 40.0, 4.0)
    client.complete_trial(1, raw_data={"profit": (50.0, 1.0)})
    bridge.sync()
    bridge.sync()  # changes nothing
    assert [trial.reward for trial in bridge.study.trials] == [40.0, 50.0]
    client.complete_trial(client.attach_trial({"demand": 60.0, "stock": 30.0}), raw_data={"profit": 3.0})
    bridge.sync()  # leaves out the trial without a sem
    assert [trial.reward for trial in bridge.study.trials] == [40.0, 50.0]


def test_a_stored_study_and_a_saved_experiment_go_on_after_a_restart(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"states": ["demand"], "storage": tmp_path / "study.db", "seed": 3}
    client = new_client()
    bridge = AxBridge(client, **settings)
    (first, told), (second, asked) = bridge.get_next_trials(2).items()
    client.complete_trial(first, raw_data={"profit": 1.0})
    others = [client.attach_trial({"demand": 50.0, "stock": 30.0}) for _ in range(2)]  # at the same point
    client.complete_trial(others[1], raw_data={"profit": 2.0})
    bridge.sync()
    client.save_to_json_file(str(tmp_path / "experiment.json"))

    client = Client.load_from_json_file(str(tmp_path / "experiment.json"))
    again = AxBridge(client, **settings)
    assert [(trial.status, trial.reward) for trial in again.study.trials] == [
        ("completed", 1.0),
        ("running", None),
        ("completed", 2.0),
    ]
    client.complete_trial(second, raw_data={"profit": 3.0})
    client.complete_trial(others[0], raw_data={"profit": 4.0})
    again.sync()
    trials = again.study.trials
    assert [trial.reward for trial in trials] == [1.0, 3.0, 2.0, 4.0]
    assert [{**trial.state, **trial.action} for trial in trials[:2]] == [told, asked]


def test_a_saved_experiment_has_fewer_decimals_and_its_trials_are_still_known(tmp_path: Path) -> None:
    client, place = new_client(), str(tmp_path / "study.db")
    bridge = AxBridge(client, states=["demand"], method="uniform", seed=0, storage=place)
    for _ in range(4):
        for index, parameters in bridge.get_next_trials().items():
            client.complete_trial(index, raw_data={"profit": profit(parameters) / 7})
    bridge.sync()
    client.save_to_json_file(str(tmp_path / "experiment.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "experiment.json"))
    again = AxBridge(loaded, states=["demand"], method="uniform", seed=0, storage=place)
    assert len(again.study.trials) == 4
    again.get_next_trials()
    assert [trial.number for trial in again.study.trials] == [0, 1, 2, 3, 4]


def test_equal_points_are_told_apart_by_their_rewards() -> None:
    client = new_client()
    for earned in (1.0, 1.0 + 1e-6, 3.0):
        client.complete_trial(client.attach_trial({"demand": 50.0, "stock": 30.0}), raw_data={"profit": earned})
    bridge = AxBridge(client, states=["demand"], method="uniform")
    assert bridge._matches() == {0: 0, 1: 1, 2: 2}
    client.complete_trial(client.attach_trial({"demand": 50.0, "stock": 30.0}), raw_data={"profit": 2.0})
    bridge.sync()
    assert [trial.reward for trial in bridge.study.trials] == [1.0, 1.0 + 1e-6, 3.0, 2.0]


def test_a_dictated_state_and_trials_that_fail() -> None:
    client = new_client()
    bridge = AxBridge(client, states=["demand"])
    ((first, parameters),) = bridge.get_next_trials(state={"demand": 42}).items()
    assert parameters["demand"] == 42
    ((second, _),) = bridge.get_next_trials().items()
    client.mark_trial_failed(first, "the machine broke")
    client.mark_trial_abandoned(second)
    bridge.sync()
    assert [(trial.status, trial.error) for trial in bridge.study.trials] == [
        ("failed", "the machine broke"),
        ("failed", ""),
    ]
    assert [trial.teaches_failure for trial in bridge.study.trials] == [True, False]


def test_results_without_a_number_or_outside_the_space_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    client = new_client()
    bridge = AxBridge(client, states=["demand"], method="uniform")
    (suggested,) = bridge.get_next_trials()
    client.complete_trial(suggested, raw_data={"profit": float("nan")})
    for stock, earned in ((30.0, float("inf")), (151.0, 1.0)):
        client.complete_trial(client.attach_trial({"demand": 50.0, "stock": stock}), raw_data={"profit": earned})
    client.complete_trial(client.attach_trial({"demand": 50.0, "stock": 30.0}), raw_data={"profit": (1.0, 1e200)})
    bridge.sync()
    bridge.sync()
    assert [(trial.status, trial.error) for trial in bridge.study.trials] == [
        ("failed", "the mean of 'profit' is nan"),
    ]
    assert [record.getMessage() for record in caplog.records if record.name == "conbo"] == [
        "Nothing is learned from trial 1 of Ax, because the mean of 'profit' is inf",
        "Nothing is learned from trial 2 of Ax, because it is outside the space: `0.0 <= stock <= 150.0` must hold, "
        "but got stock=151.0.",
        "Nothing is learned from trial 3 of Ax, because the variance of 'profit' is inf",
    ]


def test_a_sem_that_only_some_trials_have_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    client = new_client()
    bridge = AxBridge(client, states=["demand"], method="uniform")
    for k in range(4):
        for index in bridge.get_next_trials(1):
            client.complete_trial(index, raw_data={"profit": (1.0, 2.0) if k == 1 else 1.0})
    bridge.sync()
    assert [trial.status for trial in bridge.study.trials] == ["completed", "failed", "completed", "completed"]
    assert not bridge.study.trials[1].teaches_failure
    assert caplog.text.count("Nothing is learned from trial 1 of Ax, because 'profit' has a sem") == 1
    again = AxBridge(client, states=["demand"], method="uniform")
    assert len(again.study.trials) == 3
    assert "Nothing is learned from trial 1 of Ax, because 'profit' has a sem" in caplog.text


def test_parameters_of_all_kinds_and_constraints() -> None:
    parameters = [
        *PARAMETERS,
        RangeParameterConfig("n", (1, 8), "int"),
        RangeParameterConfig("rate", (1e-4, 1), "float", scaling="log"),
        ChoiceParameterConfig("mode", ["a", "b"], "str"),
        ChoiceParameterConfig("only", ["here"], "str"),
    ]
    bridge = AxBridge(new_client(parameters, constraints=["stock <= 2*demand"]), states=["demand"])
    space = bridge.study.space
    assert space.states == {"demand": Real(10, 100)}
    assert dict(space.actions) == {
        "stock": Real(0, 150),
        "n": Integer(1, 8),
        "rate": Real(1e-4, 1, log=True),
        "mode": Categorical(["a", "b"]),
    }
    for tried in bridge.get_next_trials(5).values():
        assert tried["only"] == "here"
        assert float(tried["stock"]) <= 2 * float(tried["demand"]) + 1e-9


def test_experiments_that_cannot_be() -> None:
    with pytest.raises(SettingError, match="`direction` must not be given, because Ax sets it"):
        AxBridge(new_client(), states=["demand"], direction="minimize")
    with pytest.raises(SettingError, match="a state must be a parameter of the experiment, but got 'demnd': did you"):
        AxBridge(new_client(), states=["demnd"])
    with pytest.raises(SettingError, match="the experiment must have one objective, but has 'a, b'"):
        AxBridge(new_client(objective="a, b"), states=["demand"])
    client = Client()
    client.configure_experiment(parameters=PARAMETERS)
    with pytest.raises(SettingError, match="the experiment must have an objective, but has none"):
        AxBridge(client, states=["demand"])
    client.configure_optimization(objective="profit", outcome_constraints=["wait <= 3"])
    with pytest.raises(SettingError, match="the experiment must have no outcome constraints"):
        AxBridge(client, states=["demand"])
