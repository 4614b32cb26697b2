"""Common random numbers: trials with seeds, from the suggestion to the file and back."""

import json
import pickle
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import conbo
from conbo.common_random_numbers import SeedRule
from conbo.errors import SettingError, StudyError, TrialError
from conbo.plots.view import view_of
from conbo.reports import html
from conbo.spaces import Real, Space
from conbo.study import Study
from conbo.study.worker_process import load_and_evaluate

SPACE = Space({"s": Real(0, 1)}, {"x": Real(0, 1)})
MODEL = conbo.GaussianProcess(profile="matern52", main_effects="none", members=2)


def simulated(state: dict[str, Any], action: dict[str, Any], seed: int) -> float:
    """A reward whose noise is nearly the same for all actions of a seed."""
    day = np.random.default_rng(seed).normal(size=2)
    return float(-((action["x"] - state["s"]) ** 2) + day[0] + 0.1 * day[1] * action["x"])


def without_seed(state: dict[str, Any], action: dict[str, Any]) -> float:
    return -((action["x"] - state["s"]) ** 2)


def new_study(**settings: Any) -> Study:
    return Study(**{"space": SPACE, "method": "uniform", "common_random_numbers": True, **settings})


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(2)])
def test_the_objective_is_called_with_the_seed_of_the_trial(executor: ThreadPoolExecutor | None) -> None:
    study = new_study()
    study.run(simulated, evaluations=8, executor=executor, progress=False)
    assert [trial.reward for trial in study.trials] == [simulated(*trial.arguments) for trial in study.trials]
    told = load_and_evaluate(pickle.dumps(simulated), *study.trials[0].arguments)  # as in a process of our own
    assert told == study.trials[0].outcomes
    assert [row["seed"] for row in study.observations] == [trial.seed for trial in study.trials]


def test_the_initial_design_shares_seeds_and_new_ones_follow() -> None:
    study = new_study(initial=6)
    study.run(simulated, evaluations=9, progress=False)
    assert [trial.seed for trial in study.trials] == [0, 1, 0, 1, 0, 1, 2, 3, 4]
    listed = new_study(seeds=[20, 7, 30], initial=4)
    listed.run(simulated, evaluations=9, progress=False)
    assert Counter(trial.seed for trial in listed.trials) == {20: 3, 7: 3, 30: 3}


def test_new_seeds_of_a_batch_may_be_shared() -> None:
    assert SeedRule().filled([0, 1, 4], [None, -2, 1, -3, -2]) == [2, 3, 1, 5, 3]
    assert SeedRule((5, 6)).filled([5, 5, 6], [-2, None, -2]) == [6, 5, 6]


def test_seeds_are_stored_and_resumed(tmp_path: Path) -> None:
    storage = tmp_path / "study.db"
    study = new_study(seeds=[3, 2**63 - 1], storage=storage)
    study.tell(study.ask(), 1.0)
    study.enqueue({"s": 0.5}, {"x": 0.5}, seed=2**63 - 1)
    again = conbo.open_study(storage)
    assert again.common_random_numbers
    assert again.trials == study.trials
    assert again.trials[1].seed == 2**63 - 1
    assert new_study(seeds=[3, 2**63 - 1], storage=storage).trials == study.trials
    with pytest.raises(StudyError, match="common_random_numbers: True → none"):
        Study(SPACE, method="uniform", storage=storage)
    with pytest.raises(StudyError, match="seeds"):
        new_study(seeds=[3, 4], storage=storage)


def test_seeds_may_be_integers_of_numpy(tmp_path: Path) -> None:
    study = new_study(seeds=list(np.arange(3)), storage=tmp_path / "study.db")
    study.add_trial({"s": 0.5}, {"x": 0.5}, 1.0, seed=np.uint8(2))  # type: ignore[arg-type]
    study.enqueue({"s": 0.5}, {"x": 0.5}, seed=np.int64(1))  # type: ignore[arg-type]
    assert [type(trial.seed) for trial in study.trials] == [int, int]
    again = new_study(seeds=[0, 1, 2], storage=tmp_path / "study.db")
    assert [trial.seed for trial in again.trials] == [2, 1]


def test_files_have_a_column_for_the_seed(tmp_path: Path) -> None:
    study, path = new_study(), tmp_path / "trials.csv"
    study.run(simulated, evaluations=4, progress=False)
    study.to_csv(path)
    copy = new_study()
    assert copy.import_csv(path) == 4
    assert [trial.arguments for trial in copy.trials] == [trial.arguments for trial in study.trials]
    assert copy.add_trials(study.observations) == 4
    path.write_text("s,x,reward\n0.5,0.5,1\n")
    with pytest.raises(StudyError, match="for every parameter, the seed and the reward, but has none for 'seed'"):
        copy.import_csv(path)
    path.write_text("s,x,seed,reward\n0.5,0.5,1.5,1\n")
    with pytest.raises(StudyError, match=r"a seed must be a whole number from 0 to 2\*\*63 - 1, but got '1.5'"):
        copy.import_csv(path)


def test_what_goes_wrong_is_said() -> None:
    study = new_study(seeds=[1, 2])
    with pytest.raises(TrialError, match="must have a seed from 0 to"):
        study.add_trial({"s": 0.5}, {"x": 0.5}, 1.0)
    with pytest.raises(TrialError, match="must be one of the 2 that the study lists, but got seed=3"):
        study.add_trial({"s": 0.5}, {"x": 0.5}, 1.0, seed=3)
    with pytest.raises(TrialError, match="must have no seed unless the study has `common_random_numbers`"):
        Study(SPACE).add_trial({"s": 0.5}, {"x": 0.5}, 1.0, seed=3)
    with pytest.raises(SettingError, match="must be a function of state, action and seed"):
        study.run(without_seed, progress=False)
    earlier = Study(SPACE)
    earlier.add_trial({"s": 0.5}, {"x": 0.5}, 1.0)
    for wrong, message in (
        ({"common_random_numbers": 1}, "must be True or False"),
        ({"seeds": []}, "must be a list of whole numbers"),
        ({"seeds": [1, 1]}, "must name every seed once"),
        ({"seeds": [1, np.int64(1)]}, "must name every seed once"),
        ({"seeds": [-1]}, "must hold for every seed, but got -1"),
        ({"seeds": [np.int64(-1)]}, "must hold for every seed, but got "),
        ({"seeds": [np.uint64(2**63)]}, "must hold for every seed, but got "),
        ({"seeds": [np.True_]}, "must hold for every seed, but got "),
        ({"seeds": [np.float64(1)]}, "must hold for every seed, but got "),
        ({"space": Space({"seed": Real(0, 1)}, {"x": Real(0, 1)})}, "no parameter must be named 'seed'"),
        ({"model": lambda x, y, z: None}, "must go with a built-in model"),
        ({"prior": earlier}, "must go without a `prior`"),
        ({"reward_range": (0, 1)}, "must go without a `reward_range`"),
    ):
        with pytest.raises(SettingError, match=message):
            new_study(**wrong)


@pytest.fixture(scope="module")
def learned() -> Study:
    """A study of which a model knows the seeds."""
    study = new_study(method="conbo", model=MODEL, initial=12, seed=1)
    study.run(simulated, evaluations=15, progress=False)
    return study


def test_a_used_seed_is_chosen_where_rewards_of_a_seed_have_much_in_common(learned: Study) -> None:
    # a seed that was never used would bring a whole new day's luck
    assert any(trial.seed in range(4) for trial in learned.trials[12:])
    assert [trial.seed for trial in learned.trials[:12]] == [0, 1, 2, 3] * 3


def test_used_seeds_are_chosen_with_learned_limits_and_after_failures_too() -> None:
    study = new_study(method="conbo", model=MODEL, initial=12, seed=1, outcome_constraints={"load": conbo.AtMost(0.6)})
    for _ in range(12):
        trial = study.ask()
        state, action, seed = trial.arguments
        study.tell(trial, simulated(state, action, seed), outcomes={"load": action["x"]})
    for _ in range(2):
        study.fail(study.ask(), "it diverged")
    failed = study.trials[12:]
    trial = study.ask()
    assert [one.seed in range(4) for one in (*failed, trial)] == [True, True, True]


def test_the_policy_is_right_in_spite_of_the_luck_of_the_day(learned: Study) -> None:
    policy = learned.policy()
    errors = [abs(policy({"s": s})["x"] - s) for s in (0.25, 0.5, 0.75)]
    assert max(errors) < 0.2


def test_a_batch_has_seeds_too(learned: Study) -> None:
    asked = learned.ask(3)
    assert all(isinstance(trial.seed, int) for trial in asked)
    for trial in asked:
        learned.fail(trial)


def test_such_a_policy_can_be_saved(learned: Study, tmp_path: Path) -> None:
    learned.policy().save(tmp_path / "policy.json")
    record = json.loads((tmp_path / "policy.json").read_text())
    assert record["seeds"]["values"] == [trial.seed for trial in learned.trials if trial.status == "completed"]
    loaded = conbo.load_policy(tmp_path / "policy.json")
    state = {"s": 0.4}
    assert loaded.predict(state).mean == pytest.approx(learned.policy().predict(state).mean, abs=1e-9)


def test_the_report_shows_the_seeds(learned: Study) -> None:
    table = html._table(view_of(learned))
    assert table["columns"][:6] == ["number", "s", "x", "seed", "reward", "status"]
    assert [row[3] for row in table["rows"]] == [trial.seed for trial in learned.trials]


def test_policy_and_rule_are_validated_with_the_same_fresh_seeds(learned: Study) -> None:
    called: list[tuple[float, int]] = []

    def recorded(state: dict[str, Any], action: dict[str, Any], seed: int) -> float:
        called.append((state["s"], seed))
        return simulated(state, action, seed)

    learned.validate(recorded, evaluations=8)
    assert set(Counter(called).values()) == {2}
    assert not {seed for _, seed in called} & {trial.seed for trial in learned.trials}


def test_a_validation_draws_listed_seeds_at_random_because_the_mean_is_over_all_of_them() -> None:
    few, many = new_study(seeds=range(10, 16)), new_study(seeds=range(1000))
    for study in (few, many):
        study.run(simulated, 4, progress=False)

    def seeds_of(study: Study, states: int) -> list[int]:
        called: list[int] = []

        def recorded(state: dict[str, Any], action: dict[str, Any], seed: int) -> float:
            called.append(seed)
            return simulated(state, action, seed)

        study.validate(recorded, 2 * states, progress=False)
        return called

    assert Counter(seeds_of(few, 12)) == dict.fromkeys(range(10, 16), 4)  # used or not, all equally often
    drawn = set(seeds_of(many, 40))
    assert len(drawn) == 40
    assert 300 < np.mean(list(drawn)) < 700  # four standard errors about the mean of the list
    assert drawn != set(seeds_of(many, 40))  # each validation draws anew


def test_a_program_is_given_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from conbo.cli import main

    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(
        'storage = "study.db"\nmethod = "uniform"\ncommon_random_numbers = true\n'
        '[states]\ns = { type = "real", low = 0, high = 1 }\n[actions]\nx = { type = "real", low = 0, high = 1 }\n'
    )

    def call(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == code, result.output
        return result.output

    program = f"{sys.executable} -c 'print({{seed}} + 100)'"
    assert "must have {seed}" in call("run", "--command", f"{sys.executable} -c 'print({{x}})'", "-n", "3", code=1)
    call("run", "--command", program, "-n", "3")
    trials = conbo.open_study("study.db").trials
    assert [trial.reward for trial in trials] == [100 + (trial.seed or 0) for trial in trials]
    asked = json.loads(call("ask", "--json"))
    assert isinstance(asked["seed"], int)
    assert "seed=" in call("ask")
    assert call("export").splitlines()[0] == "number,s,x,seed,reward,status,error"
