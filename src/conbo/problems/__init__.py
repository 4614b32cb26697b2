"""Test problems, most of them with known expected rewards and best actions, and functions that score policies.

Each problem is imported on first use, because some are slow to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conbo.problems.ambulance_simulator import ambulances
    from conbo.problems.assembly_constrained import assemble_to_order_constrained
    from conbo.problems.assembly_simulator import assemble_to_order
    from conbo.problems.cifar_cnn_surrogate import cifar_cnn_table
    from conbo.problems.cifar_cnn_training import cifar_cnn
    from conbo.problems.problem import MeanReward, Problem, opportunity_cost, policy_reward, violation
    from conbo.problems.synthetic import (
        branin,
        branin_constrained,
        branin_grid,
        falling_importance,
        hartmann6,
        rosenbrock,
    )

_HOME = {
    "MeanReward": "problem",
    "Problem": "problem",
    "ambulances": "ambulance_simulator",
    "assemble_to_order": "assembly_simulator",
    "assemble_to_order_constrained": "assembly_constrained",
    "branin": "synthetic",
    "branin_constrained": "synthetic",
    "branin_grid": "synthetic",
    "cifar_cnn": "cifar_cnn_training",
    "cifar_cnn_table": "cifar_cnn_surrogate",
    "falling_importance": "synthetic",
    "hartmann6": "synthetic",
    "opportunity_cost": "problem",
    "policy_reward": "problem",
    "rosenbrock": "synthetic",
    "violation": "problem",
}

# problem → the first line of its docstring (a test compares the two)
SUMMARIES = {
    "ambulances": "Base three ambulances for short response times, given where the population is densest.",
    "assemble_to_order": "Set eight base-stock levels of a warehouse for high profit, given the demand.",
    "assemble_to_order_constrained": "Assemble to order with a learned limit on the mean number of units in stock.",
    "branin": "Branin-Hoo with state s and action x in [0, 15].",
    "branin_constrained": "Branin-Hoo with state s, action x in [0, 15], and a learned constraint on a load.",
    "branin_grid": "Branin-Hoo at integers: 16 states s from -5 to 10, and 16 actions x from 0 to 15.",
    "cifar_cnn": "Choose hyperparameters for high validation accuracy of a small network on each of five data sets.",
    "cifar_cnn_table": "Surrogate of `cifar_cnn`: the same space, with rewards from a regression on real trainings.",
    "falling_importance": "Two state parameters and many action parameters of falling importance.",
    "hartmann6": "Hartmann6 without a state, with actions x1 to x6 in [0, 1].",
    "rosenbrock": "Rosenbrock with a state s in [-2, 2] and an action x in [-1, 5].",
}

__all__ = [
    "MeanReward",
    "Problem",
    "ambulances",
    "assemble_to_order",
    "assemble_to_order_constrained",
    "branin",
    "branin_constrained",
    "branin_grid",
    "cifar_cnn",
    "cifar_cnn_table",
    "falling_importance",
    "hartmann6",
    "opportunity_cost",
    "policy_reward",
    "rosenbrock",
    "violation",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
