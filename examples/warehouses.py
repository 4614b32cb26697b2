"""Learn how much stock of eight items a warehouse should keep, for every level of demand.

python examples/warehouses.py
"""

import argparse

import numpy as np

import conbo

SHOWN_DEMANDS = (0.5, 1.0, 1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=80)
    evaluations = parser.parse_args().evaluations

    problem = conbo.problems.assemble_to_order()
    generator = np.random.default_rng(1)

    study = conbo.Study(problem.space, state_distribution=problem.state_distribution, seed=1)
    study.run(lambda state, action: problem.evaluate(state, action, generator), evaluations=evaluations)
    policy = study.policy()

    print("demand   levels to keep                             expected profit")
    for demand in SHOWN_DEMANDS:
        prediction = policy.predict({"demand": demand})
        levels = " ".join(f"{level:4.1f}" for level in prediction.action.values())
        print(f"{demand:6.1f}   {levels}   {prediction.mean:6.1f} ± {prediction.std:.1f}")
    profit = conbo.problems.policy_reward(problem, policy, n_states=64, replications=200)
    cost = conbo.problems.opportunity_cost(problem, policy, n_states=64, replications=200)
    print(f"true profit over all demands: {profit:.1f} per unit of time, {cost:.1f} less than the best known")


if __name__ == "__main__":
    main()
