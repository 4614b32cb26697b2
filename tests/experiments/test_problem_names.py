from pathlib import Path

import numpy as np
import pytest

from conbo.errors import SettingError
from conbo.experiments.problem_names import BUILT_IN, load_problem
from conbo.state_distributions import Triangular

OWN = Path(__file__).parent / "own_problems.py"


def test_a_name_is_a_built_in_problem():
    assert load_problem("branin").name == "branin"
    assert {"branin", "rosenbrock", "hartmann6", "ambulances", "assemble_to_order", "branin_global"} <= set(BUILT_IN)


def test_settings_follow_a_colon():
    problem = load_problem("branin:width=0.5,state_distribution=triangular,noise=2")
    assert (problem.space.states["s"].low, problem.space.states["s"].high) == (-1.25, 6.25)
    assert isinstance(problem.state_distribution, Triangular)
    assert problem.noise == 2


def test_a_problem_of_ones_own_comes_from_a_file():
    assert load_problem(f"{OWN}:noisy").name == "noisy"
    assert load_problem(f"{OWN}:with_optimum").name == "known"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("brainin", "unknown problem 'brainin': did you mean 'branin'?"),
        ("branin:0.5", "settings must read `name=value`, but got '0.5'"),
        ("branin:breadth=1", "'branin' does not take the settings of 'branin:breadth=1'"),
        ("branin:width=2", "`0 <= width <= 1` must hold"),
        ("nowhere.py:problem", "file must exist, but 'nowhere.py' does not"),
        (f"{OWN}:nothing", "it has no 'nothing'"),
        (f"{OWN}:not_a_problem", "must be a Problem, or a function without arguments that returns one, but is 3.14"),
        (f"{OWN}:built_in", "must be a Problem, or a function without arguments that returns one, but is <built-in"),
        (f"{OWN}:objective", "must be a Problem, or a function without arguments that returns one, but is <function"),
    ],
)
def test_what_is_wrong_with_a_name_is_told(text, message):
    with pytest.raises(SettingError, match=message.replace("?", r"\?")):
        load_problem(text)


@pytest.mark.parametrize(("name", "best"), [("branin_global", -0.397887), ("rosenbrock_global", 0.0)])
def test_global_problems_have_no_states_and_know_their_best_point(name, best):
    problem = load_problem(name)
    assert problem.space.n_state_dims == 0
    assert problem.space.n_action_dims == 2
    assert problem.optimal_reward({}) == pytest.approx(best, abs=1e-6)
    assert problem.evaluate({}, problem.optimal_action({}), np.random.default_rng(0)) == pytest.approx(best, abs=1e-6)
    rng = np.random.default_rng(1)
    for _ in range(200):
        action = {n: rng.uniform(p.low, p.high) for n, p in problem.space.actions.items()}
        assert problem.mean_reward({}, action, 1, 0).mean <= best + 1e-6
