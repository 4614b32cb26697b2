"""Beliefs with learned constraints whose hyperparameters are known."""

from dataclasses import replace

from conbo.belief import Belief
from conbo.learned_constraints import LearnedConstraint, LearnedConstraints
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import belief_with, product_kernel, reals

SPACES = {
    "real": reals(1, 1),
    "two actions": reals(1, 2),
    "no states": reals(0, 2),
    "mixed": Space(
        states={"s": Real(0, 1)}, actions={"n": Integer(1, 9), "x": Real(0, 1), "c": Categorical(["u", "v"])}
    ),
    "limited": Space(
        states={"s": Real(0, 1)}, actions={"x": Real(0, 1), "y": Real(0, 1)}, constraints=["x + y <= 0.5 + 0.5 * s"]
    ),
}


def constrained(space: Space, thresholds: tuple[float, ...] = (0.0, -0.3), confidence: float = 0.9) -> Belief:
    belief = belief_with(space, product_kernel(space, 0.5, 0.4), n=40, noise=0.01)
    members = []
    for seed, threshold in enumerate(thresholds, start=1):
        slack = belief_with(space, product_kernel(space, 0.6, 0.5), n=40, noise=0.01, seed=seed)
        members.append(LearnedConstraint(f"c{seed}", slack.posterior, threshold, slack.observations))
    return replace(belief, constraints=LearnedConstraints(tuple(members), confidence))
