"""The sampler in ordinary Optuna studies: its own contract tests, states, storages, threads, and policies."""

import math
import pickle
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase
from optuna.trial import Trial, TrialState

from conbo import AtMost, Categorical, Triangular, Weights, load_policy, open_study
from conbo.errors import ConboError, RewardError, SettingError, SpaceError, StudyError
from conbo.integrations.optuna import ConboSampler, from_optuna, policy
from conbo.integrations.optuna_space import common_distributions, space_of

optuna.logging.set_verbosity(optuna.logging.ERROR)


class TestContract(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    """Optuna's own tests of samplers."""

    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: ConboSampler(states=(), method="pei", seed=0, initial=18)

    def test_conditional_parameter_objective(self, sampler: Callable[[], BaseSampler]) -> None:
        """Optuna wants these to work; here they are refused."""

        def objective(trial: Trial) -> float:
            if trial.suggest_categorical("x", [True, False]):
                return trial.suggest_float("y", 0, 1)
            return trial.suggest_float("z", 0, 1)

        study = optuna.create_study(sampler=sampler())
        with pytest.raises(SpaceError, match="every trial must have the same parameters, but 'y' is in one of"):
            study.optimize(objective, n_trials=10)


class TestContractWithStates(RelativeSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: ConboSampler(states=["x"], method="pei", seed=0, initial=9)


def profit(trial: Trial) -> float:
    demand, stock = trial.suggest_float("demand", 10, 100), trial.suggest_float("stock", 0, 150)
    return -(((stock - demand) / 50) ** 2)


def learned(n: int = 9, sign: int = 1, **settings: Any) -> optuna.Study:
    sampler = ConboSampler(**{"states": ["demand"], "method": "pei", "seed": 1, **settings})
    study = optuna.create_study(direction="maximize" if sign > 0 else "minimize", sampler=sampler)
    study.optimize(lambda trial: sign * profit(trial), n_trials=n)
    return study


def test_a_policy_is_learned_in_both_directions() -> None:
    high, low = learned(), learned(sign=-1)
    assert [trial.params for trial in high.trials] == [trial.params for trial in low.trials]
    best, cost = policy(high).predict({"demand": 60}), policy(low).predict({"demand": 60})
    assert best.action["stock"] == pytest.approx(60, abs=10)
    assert (best.mean, best.action) == (-cost.mean, cost.action)


def test_suggestions_depend_on_seed_number_and_values_alone(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'optuna.db'}"
    whole = learned(5, initial=3)
    for n in (4, 1):  # as in a process that ended, and another one that goes on
        sampler = ConboSampler(["demand"], method="pei", seed=1, initial=3)
        part = optuna.create_study(
            direction="maximize", sampler=sampler, storage=storage, study_name="s", load_if_exists=True
        )
        part.optimize(profit, n_trials=n)
    assert [trial.params for trial in part.trials] == [trial.params for trial in whole.trials]
    other = learned(3, seed=2)
    assert other.trials[0].params != whole.trials[0].params


def test_states_follow_their_distribution_from_the_first_trial_on() -> None:
    weights = Weights({"rain": 1})

    def objective(trial: Trial) -> float:
        weather = trial.suggest_categorical("weather", ["sun", "rain"])
        return trial.suggest_float("x", 0, 1) + (weather == "sun")

    study = optuna.create_study(sampler=ConboSampler({"weather": weights}, seed=0, initial=20))
    study.optimize(objective, n_trials=5)
    assert {trial.params["weather"] for trial in study.trials} == {"rain"}
    narrow = learned(12, states={"demand": Triangular(10)}, initial=12)
    assert sum(trial.params["demand"] < 55 for trial in narrow.trials) >= 8  # three quarters of the probability


def test_pruned_and_failed_trials_have_no_reward() -> None:
    def objective(trial: Trial) -> float:
        value = profit(trial)
        if trial.number == 1:
            raise optuna.TrialPruned
        if trial.number == 2:
            raise ValueError("lost")
        return math.nan if trial.number == 3 else value

    study = optuna.create_study(sampler=ConboSampler(["demand"], method="pei", seed=0, initial=3))
    study.optimize(objective, n_trials=8, catch=(ValueError,))
    kept = from_optuna(study)
    assert len(kept.trials) == 5
    assert kept.direction == "minimize"


def test_infinite_values_count_as_the_worst_of_the_others() -> None:
    study = learned(3)
    study.add_trial(study.trials[0].__class__(**_like(study.trials[0], value=-math.inf)))
    finite = [trial.value for trial in study.trials[:3]]
    assert from_optuna(study).trials[3].reward == min(finite)


def _like(trial: optuna.trial.FrozenTrial, value: float) -> dict[str, Any]:
    names = ("number", "state", "datetime_start", "datetime_complete", "params", "distributions", "user_attrs")
    return {name: getattr(trial, name) for name in names} | {
        "value": value,
        "system_attrs": {},
        "intermediate_values": {},
        "trial_id": 3,
    }


def test_an_enqueued_state_is_dictated_and_an_enqueued_point_is_evaluated() -> None:
    study = learned(7)
    study.enqueue_trial({"demand": 42.0})
    study.enqueue_trial({"demand": 50.0, "stock": 33.0})
    study.optimize(profit, n_trials=2)
    assert study.trials[7].params["demand"] == 42.0
    assert study.trials[8].params == {"demand": 50.0, "stock": 33.0}
    (stored,) = [value for name, value in study.trials[7].system_attrs.items() if name == "conbo:demand"]
    assert stored == 42.0  # which is what others take for pending


def test_trials_in_threads_know_of_each_other() -> None:
    study = learned(6, initial=4)
    both = threading.Barrier(2)

    def together(trial: Trial) -> float:
        value = profit(trial)
        both.wait(60)
        return value

    study.optimize(together, n_trials=4, n_jobs=2)
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)
    points = [tuple(trial.params.values()) for trial in study.trials]
    assert len(set(points)) == 10
    for a, b in zip(points[6::2], points[7::2], strict=True):  # which were suggested at the same time
        assert math.dist((a[0] / 90, a[1] / 150), (b[0] / 90, b[1] / 150)) > 0.01


def test_later_trials_that_are_pending_count_too() -> None:
    study = learned(6, initial=4)
    first, second = study.ask(), study.ask()
    later, earlier = profit(second), profit(first)  # the second one is asked for its parameters first
    assert second.params != first.params
    study.tell(second, later)
    study.tell(first, earlier)
    assert len(from_optuna(study).trials) == 8


def test_choices_and_steps_survive() -> None:
    distributions = {
        "a": CategoricalDistribution([None, True, 2]),
        "b": FloatDistribution(0, 1, step=0.25),
        "c": IntDistribution(1, 9, step=4),
        "d": IntDistribution(1, 1),
    }
    study = optuna.create_study(sampler=ConboSampler(["b"], seed=0, initial=20))
    for _ in range(12):
        trial = study.ask(distributions)
        study.tell(trial, 1.0)
        assert trial.params["b"] in (0, 0.25, 0.5, 0.75, 1)
        assert trial.params["c"] in (1, 5, 9)
    assert {repr(trial.params["a"]) for trial in study.trials} == {"None", "True", "2"}
    space = from_optuna(study).space
    assert (list(space.states), list(space.actions)) == (["b"], ["a", "c"])
    assert space.actions["a"] == Categorical(["None", True, 2])


@pytest.mark.parametrize(
    ("choices", "made"),
    [
        ([1.0, math.inf], [1.0, "inf"]),
        (["a", "\ud800"], ["a", "'\\ud800'"]),
        ([10**200, 1], [repr(10**200), 1]),
        ([None, 4], ["None", 4]),
        ([None, "None"], ["None", "'None'"]),
        ([1, True], ["1", "True"]),
    ],
)
def test_choices_that_conbo_rejects_become_texts(
    choices: list[Any], made: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    study = optuna.create_study(sampler=ConboSampler(states=["s"], method="uniform"))
    study.optimize(lambda trial: trial.suggest_float("s", 0, 1) + bool(trial.suggest_categorical("k", choices)), 3)
    assert {trial.params["k"] for trial in study.trials} <= set(choices)
    assert not caplog.records
    found = policy(study)
    assert found.belief.space.actions["k"] == Categorical(made)
    assert found({"s": 0.5})["k"] in made
    assert f"The choices of 'k' are {made} in conbo" in caplog.text


def test_a_state_with_one_value_is_left_out() -> None:
    study = optuna.create_study(sampler=ConboSampler(states=["shop", "s"], method="uniform", seed=0))
    study.optimize(
        lambda trial: (
            trial.suggest_float("s", 0, 1) * trial.suggest_float("x", 0, 1)
            + len(trial.suggest_categorical("shop", ["A"]))
        ),
        n_trials=5,
    )
    assert len(study.trials) == 5
    assert policy(study)({"s": 0.5}).keys() == {"x"}


def test_steps_survive_a_change_of_ranges() -> None:
    study = optuna.create_study(sampler=ConboSampler(["s"], method="uniform", seed=0, initial=20))
    for low, k_low in ((0.3, 5), (0.1, 1), (0.1, 1), (0.1, 1), (0.1, 1)):
        distributions = {
            "s": FloatDistribution(0, 1),
            "x": FloatDistribution(low, 0.7, step=0.1),
            "k": IntDistribution(k_low, 13, step=4),
        }
        trial = study.ask(distributions)
        study.tell(trial, trial.params["x"])
    for done in study.trials[2:]:  # Optuna replaces suggestions that are not on steps by random values
        assert done.params == {name: done.system_attrs[f"conbo:{name}"] for name in distributions}
    action = policy(study)({"s": 0.5})
    assert all(distributions[name]._contains(value) for name, value in action.items())


@pytest.mark.parametrize(
    ("a", "b", "step"),
    [
        (IntDistribution(0, 12, step=6), IntDistribution(4, 12, step=4), 2),
        (IntDistribution(0, 12, step=4), IntDistribution(1, 13, step=4), 1),
        (FloatDistribution(0, 1, step=0.5), FloatDistribution(0, 1, step=0.25), None),
        (FloatDistribution(0, 1, step=0.5), FloatDistribution(0.1, 1.1, step=0.5), None),
        (FloatDistribution(0, 1, step=0.5), FloatDistribution(0, 1), None),
    ],
)
def test_ranges_with_different_steps(a: Any, b: Any, step: float | None) -> None:
    trials = [optuna.trial.create_trial(value=0, params={"x": each.high}, distributions={"x": each}) for each in (a, b)]
    merged = common_distributions(trials)["x"]
    assert (merged.low, merged.high, merged.step) == (min(a.low, b.low), max(a.high, b.high), step)


def test_known_limits_are_kept_from_the_second_trial_on() -> None:
    study = learned(8, constraints=["stock <= 0.5 * demand"], initial=6)
    assert all(trial.params["stock"] <= 0.5 * trial.params["demand"] + 1e-9 for trial in study.trials[1:])
    assert policy(study)({"demand": 60})["stock"] <= 30 + 1e-9


def test_steps_are_rounded_within_the_known_limits() -> None:
    distributions = {"demand": FloatDistribution(10, 100, step=10), "stock": FloatDistribution(0, 150, step=25)}
    sampler = ConboSampler(["demand"], constraints=["stock <= 0.9 * demand"], method="pei", seed=1, initial=5)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for _ in range(9):
        trial = study.ask(distributions)
        demand, stock = trial.params["demand"], trial.params["stock"]
        assert (demand % 10, stock % 25) == (0, 0)
        assert trial.number == 0 or stock <= 0.9 * demand
        study.tell(trial, -((stock - demand) ** 2))


def test_the_actions_of_a_policy_are_on_steps_too(tmp_path: Path) -> None:
    study = optuna.create_study(direction="maximize", sampler=ConboSampler(["s"], method="pei", seed=0, initial=40))
    for _ in range(24):
        trial = study.ask({"s": FloatDistribution(0, 1), "x": FloatDistribution(0, 1, step=0.25)})
        trial.suggest_int("k", 1, 9, step=4)
        study.tell(trial, -((trial.params["x"] - 0.6 * trial.params["s"]) ** 2) - (trial.params["k"] - 4) ** 2 / 64)
    learned = policy(study)
    learned.save(tmp_path / "policy.json")
    for each in (learned, load_policy(tmp_path / "policy.json")):
        assert each({"s": 0.5}) == {"x": 0.25, "k": 5}
        assert each({"s": 1.0}) == {"x": 0.5, "k": 5}


def broken(trial: optuna.trial.FrozenTrial) -> list[float]:
    """At most half of the demand may be in stock."""
    return [trial.params["stock"] / 50 - 0.5 * trial.params["demand"] / 50, -math.inf]


def fits_halves(learned: Any) -> bool:
    return all(0.35 <= learned({"demand": d})["stock"] / d <= 0.51 for d in (50, 90))


def test_constraints_on_outcomes_are_learned() -> None:
    study = learned(13, constraints_func=broken, initial=12, method="expected-improvement")
    assert all(trial.system_attrs["constraints"] == broken(trial) for trial in study.trials)
    found = policy(study)
    assert fits_halves(found)
    assert found.predict({"demand": 60}).probability >= 0.95 - 1e-6
    kept = from_optuna(study, confidence=0.9)
    assert kept.outcome_constraints == {"constraint_0": AtMost(0.0), "constraint_1": AtMost(0.0)}
    assert kept.trials[3].measured["constraint_0"] == broken(study.trials[3])[0]
    assert kept.trials[3].measured["constraint_1"] == -1.0


def test_constraints_of_another_sampler_are_read_and_trials_without_them_left_out() -> None:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    for i in range(15):
        trial = study.ask({"demand": FloatDistribution(10, 100), "stock": FloatDistribution(0, 150)})
        if i < 14:
            trial.set_constraint("half", trial.params["stock"] / 50 - 0.5 * trial.params["demand"] / 50)
        study.tell(trial, trial.params["stock"])
    assert len(from_optuna(study, states=["demand"]).trials) == 14
    assert fits_halves(policy(study, states=["demand"]))


def test_limits_of_the_sampler_hold_for_states_that_are_named_again() -> None:
    study = learned(9, constraints=["stock <= 0.5 * demand"], method="uniform")
    again = from_optuna(study, states=["demand"])
    assert [str(each) for each in again.space.constraints] == ["stock <= 0.5 * demand"]
    assert float(policy(study, states=["demand"])({"demand": 40})["stock"]) <= 20 + 1e-9


def test_settings_that_optuna_knows_must_not_be_given() -> None:
    with pytest.raises(SettingError, match="`direction` must not be given, because Optuna sets it"):
        from_optuna(learned(2), direction="minimize")
    several = optuna.create_study(directions=["minimize", "maximize"])
    several.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), 2)
    with pytest.raises(SettingError, match="the study must have one objective, but has 2"):
        from_optuna(several, states=[])


def test_constraints_that_cannot_be() -> None:
    with pytest.raises(SettingError, match="`outcome_constraints` need a method whose policy follows the model"):
        ConboSampler(["demand"], constraints_func=broken, method="knn")
    with pytest.raises(SettingError, match="`0 < confidence < 1` must hold"):
        ConboSampler(["demand"], confidence=2)
    with pytest.raises(RewardError, match="`constraints_func` must return no NaN, but got"):
        learned(2, constraints_func=lambda trial: [math.nan])


def test_what_cannot_be() -> None:
    with pytest.raises(SettingError, match="`states` must be names of parameters, or a mapping from these, but got"):
        ConboSampler("demand")
    with pytest.raises(SettingError, match="`seed` must be an integer of at least 0, but got seed=-1"):
        ConboSampler(["demand"], seed=-1)
    with pytest.raises(SpaceError, match="a state must be a parameter of the trials, but got 'demnd': did you mean"):
        learned(3, states=["demnd"])
    with pytest.raises(SpaceError, match="at least one parameter must be an action, but got the states demand, stock"):
        learned(3, states=["demand", "stock"])
    assert space_of({"x": FloatDistribution(1, 1)}, ()) is None
    study = optuna.create_study()
    with pytest.raises(SettingError, match="`states` must be given unless the study's sampler is a ConboSampler"):
        policy(study)
    with pytest.raises(ConboError, match="a policy needs at least one completed trial"):
        policy(study, states=["demand"])


def test_trials_of_another_sampler() -> None:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(profit, n_trials=20)
    mine = from_optuna(study, states={"demand": Triangular()}, seed=3)
    assert (mine.seed, mine.direction, len(mine.trials)) == (3, "maximize", 20)
    assert mine.trials[4].reward == study.trials[4].value
    assert policy(study, states=["demand"])({"demand": 60})["stock"] == pytest.approx(60, abs=10)


def test_a_stored_study_gets_the_trials_once(tmp_path: Path) -> None:
    study, storage = learned(3), tmp_path / "study.db"
    from_optuna(study, storage=storage)
    with pytest.raises(StudyError, match="the study 'default' must be new, but has trials already: choose another"):
        from_optuna(study, storage=storage)
    assert len(open_study(storage).trials) == 3
    assert len(from_optuna(study, storage=storage, name="again").trials) == 3


def test_a_sampler_can_be_pickled() -> None:
    sampler = pickle.loads(pickle.dumps(learned(7).sampler))
    study = optuna.create_study(sampler=sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.optimize(profit, n_trials=2)
    assert len(study.trials) == 2
