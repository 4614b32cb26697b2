"""Learn where three ambulances should be based, for every place where the population may be densest.

python examples/ambulances.py
"""

import argparse

import numpy as np

import conbo

SHOWN_MODES = ((15.0, 15.0), (24.0, 24.0), (5.0, 20.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=80)
    evaluations = parser.parse_args().evaluations

    problem = conbo.problems.ambulances()
    generator = np.random.default_rng(1)

    study = conbo.Study(problem.space, state_distribution=problem.state_distribution, seed=1)
    study.run(lambda state, action: problem.evaluate(state, action, generator), evaluations=evaluations)
    policy = study.policy()

    for mode_x, mode_y in SHOWN_MODES:
        prediction = policy.predict({"mode_x": mode_x, "mode_y": mode_y})
        bases = " ".join(f"{name}={km:.0f}" for name, km in prediction.action.items())
        expected = f"{-prediction.mean:.1f} ± {prediction.std:.1f} minutes"
        print(f"mode ({mode_x:.0f}, {mode_y:.0f}): {bases}, {expected}")
    minutes = -conbo.problems.policy_reward(problem, policy, n_states=64, replications=5000)
    cost = conbo.problems.opportunity_cost(problem, policy, n_states=64, replications=5000)
    print(f"true response time over all modes: {minutes:.2f} minutes, {cost:.2f} more than the best known")


if __name__ == "__main__":
    main()
