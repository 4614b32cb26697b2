import pickle
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from scipy.special import expit, logit

from conbo.errors import PointError
from conbo.problems import Problem, cifar_cnn_table, opportunity_cost
from conbo.problems.cifar_cnn_surrogate import (
    GUESSING,
    Kernel,
    Surrogate,
    cross_validated,
    describe,
    features,
    load_surrogate,
    point_numbers,
    surrogate_problem,
)
from conbo.problems.cifar_cnn_training import DATA_SETS, cifar_cnn_space
from conbo.quasi_random import sobol

STATES = [{"classes": name} for name in DATA_SETS]
ONE_MEGABYTE = 1_000_000


def true_logit(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return 3.0 + 0.2 * states - 2 * (actions[:, 3] - 0.3 - 0.1 * states) ** 2 - actions[:, 0] ** 2


@pytest.fixture(scope="module")
def small() -> Surrogate:
    """A surrogate of a known function, with every tenth point repeated."""
    generator = np.random.default_rng(0)
    rows = np.concatenate([np.arange(300), np.repeat(np.arange(0, 300, 10), 3)])
    actions, states = sobol(300, 7, 1).numpy()[rows], (np.arange(300) % 5)[rows]
    accuracies = expit(true_logit(states, actions) + 0.1 * generator.standard_normal(len(rows)))
    weights = np.concatenate([[np.log(0.1**2)], np.zeros(19)])
    never = np.concatenate([[-50.0], np.zeros(19)])
    lengthscales = np.array([1.0, 9.0, 9.0, 1.0, 9.0, 9.0, 9.0])
    kernel = Kernel(lengthscales, 1.0, 0.3, 0.3, 2.0, noise_weights=weights, collapse_weights=never)
    coefficients = kernel.coefficients(states, actions, accuracies)
    table = np.column_stack([accuracies - 0.1, accuracies])
    return Surrogate(kernel, states, actions, table, np.ones(len(rows)), coefficients, actions[:5], 60, 15)


def test_the_regression_finds_the_function(small: Surrogate) -> None:
    states, actions = np.arange(200) % 5, sobol(200, 7, 2).numpy()
    error = small.logit_mean(states, actions) - true_logit(states, actions)
    assert np.sqrt(np.mean(error**2)) < 0.06


def test_the_prediction_is_the_mean_of_the_gaussian_process(small: Surrogate) -> None:
    """By conditioning in another way: the joint covariance of table and point, inverted as a whole."""
    states, actions = np.append(small.states, 3), np.vstack([small.actions, np.full(7, 0.4)])
    joint = small.kernel.covariance(states, actions, states, actions) + np.diag(
        small.kernel.noise_variance(states, actions)
    )
    precision = np.linalg.inv(joint)
    expected = 2.0 - precision[-1, :-1] @ (logit(small.rewards) - 2.0) / precision[-1, -1]
    assert small.logit_mean(states[-1:], actions[-1:])[0] == pytest.approx(expected, abs=1e-8)


def test_the_kernel_is_trend_plus_difference() -> None:
    kernel = Kernel(np.full(7, 2.0), 0.5, 0.2, 0.1, 0.0, np.zeros(20), np.zeros(20))
    actions = np.zeros((2, 7))
    actions[1, 0] = 2.0  # one lengthscale apart
    covariance = kernel.covariance(np.array([0, 1]), actions, np.array([0, 0]), actions)
    matern = (1 + 5**0.5 + 5 / 3) * np.exp(-(5**0.5))
    assert covariance == pytest.approx(np.array([[0.8, 0.7 * matern + 0.1], [0.5 * matern, 0.5]]))


def test_the_mean_reward_is_that_of_many_evaluations(small: Surrogate) -> None:
    action = cifar_cnn_space().decode_actions(np.full((1, 7), 0.4))[0]
    collapsing = replace(small.kernel, collapse_weights=np.concatenate([[logit(0.3)], np.zeros(19)]))
    for kernel, chance in ((small.kernel, 0.0), (collapsing, 0.3)):
        problem, generator = surrogate_problem(replace(small, kernel=kernel)), np.random.default_rng(1)
        rewards = np.array([problem.evaluate(STATES[2], action, generator) for _ in range(2000)])
        assert problem.mean_reward is not None
        estimate = problem.mean_reward(STATES[2], action, 1, 0)
        assert estimate.standard_error == 0.0
        assert rewards.mean() == pytest.approx(estimate.mean, abs=4 * rewards.std() / 2000**0.5)
        assert np.mean(rewards == GUESSING) == pytest.approx(chance, abs=0.045)
        assert logit(rewards[rewards != GUESSING]).std() == pytest.approx(0.1, rel=0.1)


def test_collapsed_trainings_do_not_bend_the_regression(small: Surrogate) -> None:
    accuracies = small.rewards.copy()
    accuracies[:10] = 0.49
    kept = small.kernel.coefficients(small.states[10:], small.actions[10:], accuracies[10:])
    coefficients = small.kernel.coefficients(small.states, small.actions, accuracies)
    assert np.all(coefficients[:10] == 0)
    assert coefficients[10:] == pytest.approx(kept)


def test_cross_validation_keeps_repeats_together(small: Surrogate) -> None:
    points = point_numbers(small)
    assert points.max() + 1 == 300
    predictions = cross_validated(small)
    for number in range(300):
        assert np.ptp(predictions[points == number]) == pytest.approx(0.0, abs=1e-9)
    error = predictions - logit(small.rewards)
    assert 0.1 < np.sqrt(np.mean(error**2)) < 0.16  # the noise, and a little more


def test_features_are_the_data_set_the_hyperparameters_and_their_squares() -> None:
    row = features(np.array([3]), np.array([[0.0, 0.5, 1.0, 0.5, 0.5, 0.5, 0.75]]))[0]
    assert row.tolist() == [1, *[0, 0, 0, 1, 0], *[-1, 0, 1, 0, 0, 0, 0.5], *[1, 0, 1, 0, 0, 0, 0.25]]


# The table of the package


@pytest.fixture(scope="module")
def problem() -> Problem:
    return cifar_cnn_table()


def test_the_table_is_small_and_holds_what_it_says() -> None:
    path = resources.files("conbo.problems") / "data" / "cifar_cnn_table.npz"
    assert len(path.read_bytes()) < ONE_MEGABYTE
    table = load_surrogate()
    assert len(table.states) > 2000
    assert set(table.states) == set(range(len(DATA_SETS)))
    assert table.actions.min() >= 0
    assert table.actions.max() <= 1
    assert table.accuracies.shape[1] == 10
    assert table.accuracies[:, 0].mean() < table.rewards.mean()
    recomputed = table.kernel.coefficients(table.states, table.actions, table.rewards)
    assert recomputed == pytest.approx(table.coefficients, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("state", STATES, ids=DATA_SETS)
def test_no_action_is_better_than_the_optimal_one(problem: Problem, state: dict[str, str]) -> None:
    assert problem.optimal_reward is not None
    number, surrogate = DATA_SETS.index(state["classes"]), load_surrogate()
    best = problem.optimal_reward(state)
    near = surrogate.best_actions[number] + 0.02 * np.random.default_rng(0).standard_normal((500, 7))
    many = problem.space.snap_actions(np.vstack([sobol(2048, 7, 9).numpy(), near, surrogate.actions]))
    assert surrogate.mean(np.full(len(many), number), many).max() <= best + 1e-6
    observed = surrogate.rewards[surrogate.states == number].max()
    assert observed - 0.03 < best < observed


def test_the_optimal_policy_costs_nothing(problem: Problem) -> None:
    assert problem.optimal_action is not None
    assert opportunity_cost(problem, problem.optimal_action) == pytest.approx(0.0, abs=1e-9)
    assert 0.001 < opportunity_cost(problem, lambda state: problem.space.decode_actions(np.full((1, 7), 0.5))[0]) < 0.1


def test_it_can_be_sent_to_another_process(problem: Problem) -> None:
    sent, action = pickle.loads(pickle.dumps(problem)), problem.space.decode_actions(np.full((1, 7), 0.3))[0]
    generators = np.random.default_rng(1), np.random.default_rng(1)
    assert sent.evaluate(STATES[0], action, generators[0]) == problem.evaluate(STATES[0], action, generators[1])


def test_wrong_points(problem: Problem) -> None:
    with pytest.raises(PointError, match="'classes' must be one of"):
        problem.evaluate({"classes": "cat"}, {}, np.random.default_rng(0))
    assert problem.mean_reward is not None
    action = problem.space.decode_actions(np.full((1, 7), 0.3))[0]
    with pytest.raises(PointError, match="'learning_rate'"):
        problem.mean_reward(STATES[0], {**action, "learning_rate": "high"}, 1, 0)


def test_the_report_names_its_errors(small: Surrogate) -> None:
    report = describe(small)
    assert "390 trainings measured on a GPU, 0 of them collapsed" in report
    assert "each 2 epochs, 60 images for training and 15 for validation" in report
    assert "error of the surrogate in 10-fold cross-validation" in report
