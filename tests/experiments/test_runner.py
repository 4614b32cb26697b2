import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conbo.experiments.evaluation import evaluate
from conbo.experiments.final_round import after_final_round
from conbo.experiments.run_file import read_file
from conbo.experiments.runner import make_run
from conbo.experiments.scoring import Scoring, scorer
from conbo.experiments.sweep import Sweep
from conbo.method_table import METHODS
from conbo.problems import Problem
from conbo.spaces import Categorical, Real, Space
from conbo.trials import Outcomes, Trial

OWN = Path(__file__).parent / "own_problems.py"


def a_task(problem="branin:noise=1", method="expected-improvement", evaluations=9, **settings):
    sweep = Sweep([problem], [METHODS[method]], evaluations, **{"initial": 4, "seeds": 1, "every": 3} | settings)
    return sweep.tasks()[0]


def made(task, folder):
    (run,) = read_file(folder / task.settings.file_name)
    return run


def scores(run):
    return [(c.evaluations, c.score) for c in run.checkpoints]


def test_a_run_is_scored_after_the_initial_design_at_intervals_and_at_the_end(tmp_path):
    task = a_task(evaluations=10)
    result = make_run(task, tmp_path)
    run = made(task, tmp_path)
    assert (result.outcome, result.evaluations) == ("complete", 10)
    assert [c.evaluations for c in run.checkpoints] == [4, 6, 9, 10]
    assert run.is_complete
    # the initial design costs nothing, every later suggestion a fit and a search
    assert sorted(run.seconds) == [4, 5, 6, 7, 8, 9]
    assert run.checkpoints[0].suggest_seconds is None
    later = [run.seconds[number] for number in (4, 5)]
    assert run.checkpoints[1].fit_seconds == pytest.approx(np.mean([s.fit for s in later]), abs=1e-4)
    assert run.checkpoints[1].suggest_seconds == pytest.approx(np.mean([s.suggest for s in later]), abs=1e-4)


def test_a_run_goes_on_exactly_where_it_stopped(tmp_path):
    task, whole, pieces = a_task(), tmp_path / "whole", tmp_path / "pieces"
    whole.mkdir()
    pieces.mkdir()
    make_run(task, whole)
    make_run(replace(task, evaluations=6), pieces)
    path = pieces / task.settings.file_name
    path.write_bytes(path.read_bytes() + b'{"trial": 6, "st')  # and was killed while it wrote
    assert make_run(task, pieces).evaluations == 3
    assert made(task, pieces).trials == made(task, whole).trials
    assert scores(made(task, pieces)) == scores(made(task, whole))


def test_all_methods_share_the_initial_design_and_its_noise(tmp_path):
    tasks = [a_task(method=name, evaluations=5) for name in ("uniform", "expected-improvement", "knn", "conbo")]
    for task in tasks:
        make_run(task, tmp_path)
    first, *others = (made(task, tmp_path).trials[:4] for task in tasks)
    assert all(trials == first for trials in others)
    assert made(tasks[0], tmp_path).trials[4] != made(tasks[1], tmp_path).trials[4]


def test_noise_depends_on_seed_and_number_alone():
    problem = Problem("noise", Space(actions={"x": Real(0, 1)}), None, evaluate=lambda s, x, g: g.standard_normal())
    rewards = [[evaluate(problem, seed, Trial(number, {}, {})).reward for number in range(3)] for seed in range(3)]
    assert len(np.unique(rewards)) == 9
    assert evaluate(problem, 1, Trial(2, {}, {"x": 0.5})).reward == rewards[1][2]


def test_batches_are_asked_for_at_once(tmp_path):
    task = a_task(method="conbo-3", batch=3, evaluations=9)
    make_run(task, tmp_path)
    run = made(task, tmp_path)
    assert sorted(run.seconds) == [4, 7]  # a batch of three, and the two that are left
    assert [c.evaluations for c in run.checkpoints] == [4, 7, 9]
    assert len({t.action["x"] for t in run.trials[4:7]}) == 3


def test_a_failure_is_recorded_and_the_run_tried_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = a_task(f"{OWN}:fragile", "uniform", evaluations=8)
    result = make_run(task, tmp_path)
    assert result.outcome == "failed"
    assert "ArithmeticError: the simulator broke" in result.failure
    assert "the simulator broke" in made(task, tmp_path).failure
    Path("repaired").touch()
    assert make_run(task, tmp_path).outcome == "complete"
    run = made(task, tmp_path)
    assert run.failure is None
    assert len(run.trials) == 8
    assert run.checkpoints[0].measure == "mean reward"


def test_a_run_pauses_when_the_time_is_up(tmp_path):
    task = a_task()
    assert make_run(task, tmp_path, deadline=time.time()).outcome == "paused"
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_a_complete_run_can_be_lengthened(tmp_path):
    task = a_task(method="uniform")
    make_run(task, tmp_path)
    make_run(replace(task, evaluations=12), tmp_path)
    run = made(task, tmp_path)
    assert [c.evaluations for c in run.checkpoints] == [4, 6, 9, 12]
    lines = [json.loads(line) for line in (tmp_path / task.settings.file_name).read_text().splitlines()]
    assert [line["complete"] for line in lines if "complete" in line] == [9, 12]


def two_sets():
    space = Space(states={"set": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})
    best = {"a": 0.2, "b": 0.8}
    return Problem("two sets", space, None, evaluate=lambda s, x, g: -((x["x"] - best[s["set"]]) ** 2))


def observed(problem, actions):
    points = [({"set": state}, {"x": x}) for state in ("a", "b") for x in actions]
    return [
        Trial(i, s, x, status="completed", outcomes=Outcomes(problem.evaluate(s, x, None)))
        for i, (s, x) in enumerate(points)
    ]


def test_a_final_round_improves_on_the_best_observed_reward_of_every_state():
    problem = two_sets()
    judge = scorer(problem, Scoring(5, 1))
    trials = observed(problem, (0.1, 0.35, 0.6, 0.9))
    unused = trials[:2]  # as many as there are states: the round takes their place
    before = judge.best_observed(trials)
    after = after_final_round(judge, METHODS["conbo"], 0, [*trials, *unused])
    assert before < after <= 0.0
    assert after_final_round(judge, METHODS["conbo"], 0, trials[:2]) is None


def test_a_method_with_its_own_policy_tries_that_in_its_final_round():
    problem = two_sets()
    judge = scorer(problem, Scoring(5, 1))
    only_a = observed(problem, (0.1, 0.2, 0.6))[:3]
    after = after_final_round(judge, METHODS["transfer-ei"], 0, [*only_a, *only_a[:2]])
    assert after == pytest.approx((0.0 - (0.2 - 0.8) ** 2) / 2)
