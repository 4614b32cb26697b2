"""`make demo`: learn the best action for every state of the Branin function, and draw what was learned."""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import withStroke

from conbo.method_table import DEFAULT_METHOD
from conbo.policies.policy import Policy
from conbo.problems import Problem, branin, opportunity_cost
from conbo.report.plots import DARK, LEARNED, draw_evaluations, draw_policy, draw_surface
from conbo.study import Study


def main() -> None:
    """Run, compare with random search, draw."""
    parser = argparse.ArgumentParser(prog="python -m conbo.demo", description=__doc__)
    parser.add_argument("--method", default=DEFAULT_METHOD, help="a name of conbo.methods()")
    parser.add_argument("--evaluations", type=int, default=30)
    parser.add_argument("--picture", type=Path, default=Path("out/demo.png"))
    options = parser.parse_args()
    plt.switch_backend("agg")  # a file is all that is wanted

    problem = branin()
    print(f"Branin: learn the best action x for every state s from {options.evaluations} evaluations.\n")
    costs = {}
    for method in dict.fromkeys([options.method, "uniform"]):
        study = _learned(problem, method, options.evaluations)
        policy = study.policy()
        costs[method] = opportunity_cost(problem, policy)
        if method == options.method:
            _draw(problem, study, policy, options.picture)
    print("\nOpportunity cost: the reward that the policy gives away in an average state")
    for method, cost in costs.items():
        print(f"  {method:<12} {cost:.4f}{'  (random search)' if method == 'uniform' else ''}")
    print(f"\nThe picture is in {options.picture}")


def _learned(problem: Problem, method: str, evaluations: int) -> Study:
    study = Study(problem.space, method=method, state_distribution=problem.state_distribution)
    generator = np.random.default_rng(0)
    print(method)
    study.run(lambda state, action: problem.evaluate(state, action, generator), evaluations)
    return study


def _draw(problem: Problem, study: Study, policy: Policy, path: Path) -> None:
    assert problem.optimal_action is not None  # Branin's is known
    figure, axes = plt.subplots(figsize=(9, 5.6), layout="constrained")
    surface = draw_surface(axes, problem.space, policy)
    learned = {
        "color": LEARNED,
        "linewidth": 5,
        "path_effects": [withStroke(linewidth=7, foreground="white")],
    }
    draw_policy(axes, problem.space, policy, "learned policy", **learned)
    true = {"color": DARK, "linewidth": 1.6, "linestyle": (0, (4, 2))}
    draw_policy(axes, problem.space, problem.optimal_action, "true policy", **true)
    draw_evaluations(axes, problem.space, study.trials)
    axes.set_title("Branin: the best action for every state", loc="left", fontweight="bold", pad=30)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, borderaxespad=0.4, frameon=False)
    figure.colorbar(
        surface, label="expected reward (posterior mean)", format=lambda value, _: f"{value:z.0f}", pad=0.02
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    plt.close(figure)


if __name__ == "__main__":
    main()
