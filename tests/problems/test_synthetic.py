import pickle
from collections.abc import Callable

import numpy as np
import pytest

from conbo.errors import SettingError
from conbo.problems.problem import Problem, opportunity_cost, policy_reward
from conbo.problems.synthetic import branin, branin_grid, falling_importance, hartmann6, rosenbrock
from conbo.state_distributions import Triangular, Uniform
from random_beliefs import uniform

# botorch's dependency still calls torch.jit.script when it is imported
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("s", "x"), [(-np.pi, 12.275), (np.pi, 2.275), (3 * np.pi, 2.475)])
def test_branin_is_best_at_its_three_optima(s: float, x: float) -> None:
    problem = branin()
    assert problem.optimal_reward({"s": s}) == pytest.approx(-0.397887, abs=1e-6)
    assert problem.optimal_action({"s": s})["x"] == pytest.approx(x, abs=1e-3)
    assert problem.evaluate({"s": s}, {"x": x}, rng()) == pytest.approx(-0.397887, abs=1e-5)


def test_branin_has_its_best_action_at_the_border_where_the_valley_leaves_the_range() -> None:
    assert branin().optimal_action({"s": -5.0}) == {"x": 15.0}


def test_rosenbrock_is_as_in_the_book() -> None:
    problem = rosenbrock()
    assert problem.optimal_reward({"s": 1.0}) == 0
    assert problem.optimal_action({"s": -1.5}) == {"x": 2.25}
    assert problem.optimal_reward({"s": -1.5}) == -6.25
    assert problem.evaluate({"s": 1.0}, {"x": 1.5}, rng()) == -25
    assert policy_reward(problem, problem.optimal_action) == pytest.approx(-(1 + 4 / 3), abs=1e-3)


def test_hartmann6_is_best_at_its_optimum() -> None:
    problem = hartmann6()
    assert problem.space.n_state_dims == 0
    assert problem.space.action_names == ("x1", "x2", "x3", "x4", "x5", "x6")
    assert problem.optimal_reward({}) == pytest.approx(3.32237, abs=1e-5)
    assert problem.mean_reward({}, problem.optimal_action({}), 1, 0).mean == problem.optimal_reward({})
    assert opportunity_cost(problem, lambda state: dict.fromkeys(problem.space.action_names, 0.5)) > 1


@pytest.mark.parametrize("make", [branin, rosenbrock])
@pytest.mark.parametrize("law", ["uniform", "triangular"])
@pytest.mark.parametrize("width", [0.0, 0.3, 1.0])
def test_the_optimal_policy_costs_nothing_and_any_other_something(make, law: str, width: float) -> None:
    problem = make(width=width, state_distribution=law)
    assert opportunity_cost(problem, problem.optimal_action) == 0
    assert opportunity_cost(problem, lambda state: {"x": 4.5}) > 0


@pytest.mark.parametrize("make", [branin, rosenbrock])
def test_no_action_beats_the_optimal_one(make) -> None:
    problem = make()
    for state in problem.space.decode_states(rng().random((20, 1))):
        rewards = [
            problem.mean_reward(state, action, 1, 0).mean
            for action in problem.space.decode_actions(np.linspace(0, 1, 501)[:, None])
        ]
        assert max(rewards) <= problem.optimal_reward(state)
        assert max(rewards) == pytest.approx(problem.optimal_reward(state), abs=0.01)


@pytest.mark.parametrize(
    ("problem", "low", "high"),
    [(branin(), -5, 10), (branin(0.5), -1.25, 6.25), (rosenbrock(), -2, 2), (rosenbrock(0.25), -0.5, 0.5)],
)
def test_the_width_shrinks_the_state_around_its_center(problem: Problem, low: float, high: float) -> None:
    assert (problem.space.states["s"].low, problem.space.states["s"].high) == (low, high)


@pytest.mark.parametrize(("make", "center"), [(branin, 2.5), (rosenbrock, 0.0)])
def test_width_zero_fixes_the_state_at_its_center(make, center: float) -> None:
    fixed, full = make(width=0), make()
    assert fixed.space.n_state_dims == 0
    assert fixed.optimal_action({}) == full.optimal_action({"s": center})
    assert fixed.evaluate({}, {"x": 1.0}, rng()) == full.evaluate({"s": center}, {"x": 1.0}, rng())


def test_noise_is_the_standard_deviation_of_a_reward() -> None:
    problem, generator = branin(noise=2.0), rng()
    rewards = [problem.evaluate({"s": 0.0}, {"x": 0.0}, generator) for _ in range(2000)]
    mean = problem.mean_reward({"s": 0.0}, {"x": 0.0}, 10, 0)
    assert np.mean(rewards) == pytest.approx(mean.mean, abs=0.15)
    assert np.std(rewards) == pytest.approx(2.0, abs=0.1)
    assert mean.standard_error == 0
    assert problem.noise == 2.0


def test_the_state_distribution_is_chosen_by_name() -> None:
    assert branin().state_distribution == Uniform()
    assert rosenbrock(state_distribution="triangular").state_distribution == Triangular()


@pytest.mark.parametrize("make", [branin, rosenbrock, hartmann6])
def test_a_problem_can_be_sent_to_another_process(make) -> None:
    problem = make()
    sent = pickle.loads(pickle.dumps(problem))
    state = {"s": 1.0} if problem.space.states else {}
    assert sent.optimal_reward(state) == problem.optimal_reward(state)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: branin(width=1.5), r"`0 <= width <= 1` must hold, but got width=1\.5\."),
        (lambda: rosenbrock(width=float("nan")), r"`0 <= width <= 1` must hold, but got width=nan\."),
        (lambda: branin(noise=-1), r"`0 <= noise < inf` must hold, but got noise=-1\."),
        (
            lambda: branin(state_distribution="normal"),
            r"`state_distribution` must be one of 'uniform', 'triangular', but got 'normal'\.",
        ),
    ],
)
def test_bad_settings_are_refused(make, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.parametrize("make", [branin, rosenbrock])
@pytest.mark.parametrize("distortion", ["exponential", "cube", "clip"])
def test_a_distorted_reward_is_told_in_the_same_order_and_scored_in_its_own_units(
    make: Callable[..., Problem], distortion: str
) -> None:
    plain, told = make(), make(distortion=distortion)
    points = uniform(300, 2, seed=1).numpy()
    states, actions = plain.space.decode_states(points[:, :1]), plain.space.decode_actions(points[:, 1:])
    pairs = list(zip(states, actions, strict=True))
    rewards = np.array([plain.evaluate(state, action, rng()) for state, action in pairs])
    seen = np.array([told.evaluate(state, action, rng()) for state, action in pairs])
    order = rewards.argsort()
    assert (np.diff(seen[order]) >= 0).all()
    assert 0.25 < (seen == seen.min()).mean() < 0.42 if distortion == "clip" else len(set(seen)) == 300
    assert told.mean_reward is not None
    assert [told.mean_reward(s, a, 1, 0).mean for s, a in pairs[:5]] == pytest.approx(rewards[:5])


def test_an_unknown_distortion_is_named() -> None:
    with pytest.raises(SettingError, match="`distortion` must be one of 'none', 'exponential'"):
        branin(distortion="log")  # type: ignore[arg-type]


def test_branin_at_integers_has_the_best_of_all_16_actions() -> None:
    problem, plain = branin_grid(), branin()
    states = problem.space.decode_states(problem.space.states["s"].levels()[:, None])
    assert [state["s"] for state in states] == list(range(-5, 11))
    for state in states:
        rewards = [plain.mean_reward(state, {"x": x}, 1, 0).mean for x in range(16)]
        assert problem.optimal_action(state) == {"x": int(np.argmax(rewards))}
        assert problem.optimal_reward(state) == max(rewards)
    assert opportunity_cost(problem, problem.optimal_action) == 0
    assert opportunity_cost(problem, lambda state: {"x": 4}) > 0
    with pytest.raises(SettingError, match=r"`0 <= noise < inf` must hold, but got noise=-1"):
        branin_grid(noise=-1)


def test_many_actions_matter_less_and_less() -> None:
    problem = falling_importance(noise=0.0)
    state = {"s1": 0.2, "s2": 0.9}
    assert problem.optimal_action is not None
    best = problem.optimal_action(state)
    assert len(best) == 14
    assert problem.evaluate(state, best, rng()) == 0.0
    losses = [-problem.evaluate(state, {**best, name: best[name] + 0.1}, rng()) for name in best]  # type: ignore[operator]
    assert losses == pytest.approx([0.01 * 0.75**i for i in range(14)])
    with pytest.raises(SettingError, match="`1 <= n_actions <= 100` must hold, but got n_actions=0"):
        falling_importance(n_actions=0)
