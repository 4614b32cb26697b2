"""`make demo`: learn the best action for every state of the Branin function, and draw what was learned."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from conbo.method_list import DEFAULT_METHOD
from conbo.plots import posterior_surface, save
from conbo.problems import Problem, branin, opportunity_cost
from conbo.spaces import Value
from conbo.study import Study


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo: learn a policy, compare it with random search, and draw it."""
    parser = argparse.ArgumentParser(prog="python -m conbo.demo", description=__doc__)
    parser.add_argument("--method", default=DEFAULT_METHOD, help="a name of conbo.methods()")
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--picture", type=Path, default=Path("out/demo.png"))
    parser.add_argument("--storage", type=Path, default=Path("out/demo.db"), help="where the studies are kept")
    options = parser.parse_args(arguments)

    problem = branin()
    print(f"Branin: learn the best action x for every state s from {options.evaluations} evaluations.\n")
    costs = {}
    for method in dict.fromkeys([options.method, "uniform"]):
        study = _learned(problem, method, options.evaluations, options.storage)
        costs[method] = opportunity_cost(problem, study.policy())
        if method == options.method:
            options.picture.parent.mkdir(parents=True, exist_ok=True)
            save(posterior_surface(study, problem=problem), options.picture)
    print("\nOpportunity cost: the reward that the policy gives away in an average state")
    for method, cost in costs.items():
        print(f"  {method:<12} {cost:.4f}{'  (random search)' if method == 'uniform' else ''}")
    print(f"\nThe picture is in {options.picture}. Run this again, with more --evaluations or after you stopped it")
    print(f"in the middle, and it goes on from there: the studies are in {options.storage}.")


def _learned(problem: Problem, method: str, evaluations: int, storage: Path) -> Study:
    storage.parent.mkdir(parents=True, exist_ok=True)
    states = problem.state_distribution
    study = Study(problem.space, method=method, state_distribution=states, name=method, storage=storage)
    there = sum(trial.status == "completed" for trial in study.trials)
    print(f"{method}: goes on from the {there} evaluations in {storage}" if there else method)

    def objective(state: dict[str, Value], action: dict[str, Value]) -> float | Mapping[str, float]:
        # the noise is a function of the point, so that a continued study gets the same rewards
        seed = abs(hash((*state.values(), *action.values())))
        return problem.evaluate(state, action, np.random.default_rng(seed))

    study.run(objective, evaluations)
    return study


if __name__ == "__main__":
    main()
