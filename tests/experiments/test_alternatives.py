from collections import Counter

import numpy as np
import pytest

from conbo.errors import SettingError, TrialError
from conbo.experiments.alternatives import best_grid, final_costs, in_words
from conbo.experiments.botorch_contextual import BotorchContextual
from conbo.experiments.entering import contestant
from conbo.experiments.grid_search import GridSearch, InterpolatedActions, NearestState, can_interpolate, state_grid
from conbo.experiments.paper_figures import FIGURES
from conbo.experiments.problem_names import load_problem
from conbo.experiments.run_file import Checkpoint, Run, RunSettings
from conbo.experiments.scoring import Scoring, scorer
from conbo.experiments.state_search import best_observed
from conbo.experiments.summary import compare
from conbo.method_table import METHODS

SETTINGS = RunSettings("branin", "", "", 0, 6, 1, 2, 16, 1)
BRANIN = load_problem("branin")


def played(entry, problem, evaluations, settings=SETTINGS):
    """A contestant after so many evaluations, one at a time."""
    player = contestant(entry, problem, settings, evaluations)
    generator = np.random.default_rng(0)
    while len(player.trials) < evaluations:
        (trial,) = player.ask(1)
        player.tell(trial, problem.evaluate(trial.state, trial.action, generator))
    return player


def test_a_grid_takes_equal_shares_of_the_states():
    assert state_grid(BRANIN, 4)[:, 0] == pytest.approx([1 / 8, 3 / 8, 5 / 8, 7 / 8])
    plane = state_grid(load_problem("ambulances"), 9)
    assert plane.shape == (9, 2)
    assert [len(np.unique(column)) for column in plane.T] == [3, 3]
    assert len(state_grid(load_problem("cifar_cnn_table"), 5)) == 5  # all there are
    with pytest.raises(SettingError, match="a whole number of states a side, but got k=3"):
        state_grid(load_problem("ambulances"), 3)


def test_actions_between_states_are_the_nearest_or_linear():
    space, grid = BRANIN.space, np.array([[0.75], [0.25]])  # in no order
    actions = np.array([[1.0], [0.0]])
    states = space.decode_states([[0.0], [0.3], [0.5], [0.6], [1.0]])
    nearest = [action["x"] / 15 for action in NearestState(space, grid, actions).many(states)]
    linear = [action["x"] / 15 for action in InterpolatedActions(space, grid, actions).many(states)]
    assert nearest[:2] + nearest[3:] == [0.0, 0.0, 1.0, 1.0]
    assert linear == pytest.approx([0.0, 0.1, 0.5, 0.7, 1.0])
    assert can_interpolate(space, grid)
    assert not can_interpolate(space, grid[:1])
    assert not can_interpolate(load_problem("cifar_cnn_table").space, grid)


def test_two_states_are_interpolated_on_a_plane():
    problem = load_problem("ambulances")
    grid = state_grid(problem, 4)
    actions = np.repeat(grid.sum(1, keepdims=True) / 2, problem.space.n_action_dims, axis=1)
    middle = problem.space.decode_states(grid.mean(0, keepdims=True))
    found = problem.space.encode_actions(InterpolatedActions(problem.space, grid, actions).many(middle))
    assert found[0] == pytest.approx(np.full(problem.space.n_action_dims, grid.mean()))


def test_each_state_of_a_grid_is_a_search_of_its_own():
    class Counting:
        def suggest(self, tried, seed):
            self.tried = list(tried)
            return {"x": 7.0}

        best = staticmethod(best_observed)

    player = GridSearch("optuna", 3).enter(BRANIN, SETTINGS, 30)
    player._search = search = Counting()
    for number in range(15):
        (trial,) = player.ask(1)
        assert trial.number == number
        player.tell(trial, float(number))
        if number >= 12:  # four quasi-random actions in each of three states
            assert [reward for _, reward in search.tried] == [float(n) for n in range(number % 3, number, 3)]
    states = [trial.state["s"] for trial in player.trials]
    assert states[:3] == states[3:6] == states[12:]
    assert len({trial.action["x"] for trial in player.trials[:12]}) == 12
    assert len(player.policies()) == 2
    with pytest.raises(TrialError, match="trial 15 must be told next, but got trial 3"):
        player.tell(player.trials[3], 0.0)


def test_a_grid_with_states_that_were_not_tried_yet_has_the_nearest_ones_policy():
    player = GridSearch("optuna", 12).enter(BRANIN, SETTINGS, 40)
    for trial in player.ask(6):
        player.tell(trial, 1.0)
    assert len(player.policies()) == 1


@pytest.mark.filterwarnings("ignore")  # as the runner does
@pytest.mark.parametrize("library", ["optuna", "ax"])
def test_other_libraries_suggest_and_recommend_actions_of_a_state(library):
    pytest.importorskip(library)
    player = played(GridSearch(library, 1), BRANIN, 7)
    last = player.trials[-1].action
    BRANIN.space.validate_action(last)
    assert last not in [trial.action for trial in player.trials[:6]]
    if library == "optuna":  # a run goes on as if it had not stopped
        again = contestant(GridSearch(library, 1), BRANIN, SETTINGS, 7)
        again.restore(player.trials[:6])
        assert again.ask(1)[0].action["x"] == pytest.approx(last["x"], rel=1e-3)
    best = max(player.trials, key=lambda trial: trial.reward)
    (policy,) = player.policies()
    assert policy.many([{"s": 0.0}])[0]["x"] == pytest.approx(best.action["x"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("untested", [18, 0])
def test_contextual_improvement_draws_its_states(untested, monkeypatch):
    """Also with a version of SciPy that BoTorch does not know yet."""
    monkeypatch.setattr("botorch.generation.gen.SCIPY_UNTESTED_VERSION", untested)
    player = played(BotorchContextual(), BRANIN, 8)
    design = contestant(METHODS["uniform"], BRANIN, SETTINGS, 8).ask(6)
    assert [(trial.state, trial.action) for trial in player.trials[:6]] == [(t.state, t.action) for t in design]
    assert len({trial.state["s"] for trial in player.trials}) == 8
    judge = scorer(BRANIN, Scoring(16, 1))
    assert 0 < judge.best(player.policies())[0] < judge.score(Constant(0.0))


class Constant:
    """One action for all states."""

    def __init__(self, x):
        self.x = x

    def many(self, states):
        return [{"x": self.x} for _ in states]


def test_the_best_policy_is_scored():
    judge = scorer(BRANIN, Scoring(8, 1))
    scores = [judge.score(Constant(x)) for x in (0.0, 5.0)]
    score, policy = judge.best([Constant(0.0), Constant(5.0)])
    assert score == min(scores)
    assert policy.x == (0.0, 5.0)[scores.index(score)]


def test_the_figure_shows_the_best_grid_of_each_library():
    runs = []
    both, first = (0, 1), (0,)
    costs = {"conbo": (0.1, both), "optuna k=3": (2.0, both), "optuna k=5": (1.0, both), "ax k=1": (3.0, both)}
    costs |= {"optuna k=8": (0.5, first), "botorch k=2": (0.5, first)}  # not run with all seeds
    for method, seed, cost in ((method, seed, cost) for method, (cost, seeds) in costs.items() for seed in seeds):
        run = Run(RunSettings("branin", method, "", seed, 6, 1, 2, 16, 1), complete=40)
        run.checkpoints = [Checkpoint(n, c, "opportunity cost", 0.1, 0.1) for n, c in ((6, 9.0), (40, cost))]
        runs.append(run)
    (comparison,) = compare(runs)
    assert best_grid(comparison, "optuna") == "optuna k=5"
    assert best_grid(comparison, "botorch") is None
    assert in_words(comparison).methods == [
        "conbo",
        "Optuna: 5 states, each on its own",
        "Ax: one action for all states",
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in final_costs([comparison]).splitlines()]
    assert rows[0] == ["opportunity cost", "Branin, 40 evaluations"]
    assert [cost for _, cost in rows[2:]] == ["0.1", "not run", "not run", "1 (5)", "3 (1)"]


def test_all_alternatives_have_the_same_evaluations():
    tasks = FIGURES["alternatives"].tasks()
    assert len({task.settings.key for task in tasks}) == len(tasks)
    for problem in {task.settings.problem for task in tasks}:
        here = [task for task in tasks if task.settings.problem == problem]
        assert len({(task.evaluations, task.settings.initial) for task in here}) == 1
        labels = Counter(task.settings.method for task in here)
        assert len(set(labels.values())) == 1  # as many seeds of each
        assert {label.split(" k=")[0] for label in labels} >= {"conbo", "uniform/auto", "optuna", "ax"}


def test_runs_of_conbo_are_shared_with_the_other_figures():
    ours = {task.settings for task in FIGURES["alternatives"].tasks() if task.settings.method == "conbo"}
    others = ("synthetic", "ambulances", "assemble-to-order", "cnn")
    assert ours < {task.settings for name in others for task in FIGURES[name].tasks()}
