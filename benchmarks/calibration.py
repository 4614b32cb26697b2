"""How well a policy's predictions are calibrated: how often the true reward is within the predicted intervals.

    python benchmarks/calibration.py [PROBLEM ...] [--seeds 10] [--first-seed 1000] [--method conbo] [--fixed] [--json]

On each test problem, studies run with several seeds. After a third, two thirds and all of the problem's evaluations,
the policy predicts the rewards of its actions in test states that follow P[s], and the predictions are compared with
the true expected rewards. Errors are divided by the standard deviation of the prediction, which includes the standard
error of the true reward if that is simulated. With --fixed, predictions treat the fitted hyperparameters as known.

========  ==================================================================================
column    meaning
========  ==================================================================================
1 sd      fraction of the true rewards within one standard deviation; 68 % for calibrated predictions
1.96 sd   fraction within 1.96 standard deviations; 95 % for calibrated predictions
error     mean of (prediction - truth) / sd, positive if predictions are too optimistic
worst     the largest absolute value of (prediction - truth) / sd
========  ==================================================================================
"""

import argparse
import json
from collections import defaultdict
from dataclasses import replace

import numpy as np

import conbo
from conbo.experiments.problem_names import load_problem
from conbo.problems.problem import Problem, scoring_states

BUDGETS = {
    "branin": 45,
    "branin:noise=10": 60,
    "rosenbrock": 45,
    "hartmann6": 90,
    "assemble_to_order": 90,
    "ambulances": 90,
    "cifar_cnn_table": 60,
    "falling_importance": 60,
}
OTHER_BUDGET = 60  # number of evaluations for a problem that is not listed
STAGES = (1 / 3, 2 / 3, 1.0)  # fractions of the evaluations after which predictions are made
TEST_STATES, REPLICATIONS = 16, 200  # number of test states, and of replications if true rewards are simulated
LEAST_STD = 1e-9  # least standard deviation of a prediction, divided by that of the observed rewards


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=list(BUDGETS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--method", default="conbo")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    errors: dict[str, list[float]] = defaultdict(list)
    for name in options.problems:
        for seed in seeds:
            for stage, found in _errors(name, options.method, seed, options.fixed).items():
                errors[f"{name}, {stage}"] += found
    rows = {name: _row(found) for name, found in errors.items()}
    rows["all"] = _row([error for found in errors.values() for error in found])
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'problem, evaluations':34}{'1 sd':>8}{'1.96 sd':>9}{'error':>8}{'worst':>8}{'n':>7}")
    for name, row in rows.items():
        shares = f"{row['one']:8.0%}{row['two']:9.0%}"
        print(f"{name:34}{shares}{row['error']:8.2f}{row['worst']:8.1f}{row['n']:7.0f}")


def _errors(name: str, method: str, seed: int, fixed: bool) -> dict[int, list[float]]:
    """Return the standardized errors of one study, by the number of evaluations."""
    problem, budget = load_problem(name), BUDGETS.get(name, OTHER_BUDGET)
    study = conbo.Study(problem.space, state_distribution=problem.state_distribution, method=method, seed=seed)
    generator = np.random.default_rng(seed)
    found = {}
    for stage in STAGES:
        evaluations = round(stage * budget)
        study.run(lambda state, action: problem.evaluate(state, action, generator), evaluations, progress=False)
        found[evaluations] = _standardized(problem, study.policy(), seed, fixed)
    return found


def _standardized(problem: Problem, policy: conbo.Policy, seed: int, fixed: bool) -> list[float]:
    assert problem.mean_reward is not None
    states, _ = scoring_states(problem, TEST_STATES, seed)
    if fixed:
        policy = conbo.Policy(replace(policy.belief, average=None), policy.maximize, policy.recipe)
    errors = []
    for number, (state, prediction) in enumerate(zip(states, policy.predict_many(states), strict=True)):
        truth = problem.mean_reward(state, prediction.action, REPLICATIONS, seed * TEST_STATES + number)
        std = np.hypot(max(prediction.std, LEAST_STD * policy.belief.scale), truth.standard_error)
        errors.append(float((prediction.mean - truth.mean) / std))
    return errors


def _row(errors: list[float]) -> dict[str, float]:
    size = np.abs(errors)
    shares = {"one": float((size <= 1).mean()), "two": float((size <= 1.96).mean())}
    return {**shares, "error": float(np.mean(errors)), "worst": float(size.max()), "n": len(errors)}


if __name__ == "__main__":
    main()
