"""Problems with a known truth to try methods on, each imported on first use: some are slow to import."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conbo.problems.ambulance_simulator import ambulances
    from conbo.problems.assembly_simulator import assemble_to_order
    from conbo.problems.cifar_cnn_surrogate import cifar_cnn_table
    from conbo.problems.cifar_cnn_training import cifar_cnn
    from conbo.problems.problem import MeanReward, Problem, opportunity_cost, policy_reward, violation
    from conbo.problems.synthetic import branin, branin_constrained, falling_importance, hartmann6, rosenbrock

_HOME = {
    "MeanReward": "problem",
    "Problem": "problem",
    "ambulances": "ambulance_simulator",
    "assemble_to_order": "assembly_simulator",
    "branin": "synthetic",
    "branin_constrained": "synthetic",
    "cifar_cnn": "cifar_cnn_training",
    "cifar_cnn_table": "cifar_cnn_surrogate",
    "falling_importance": "synthetic",
    "hartmann6": "synthetic",
    "opportunity_cost": "problem",
    "policy_reward": "problem",
    "rosenbrock": "synthetic",
    "violation": "problem",
}

# problem → the first line of its documentation, which a test compares
SUMMARIES = {
    "ambulances": "The city as a problem: learn three bases for every mode of the population.",
    "assemble_to_order": "The warehouse as a problem: learn the eight base-stock levels for every level of demand.",
    "branin": "Branin-Hoo with state s and action x in [0, 15].",
    "branin_constrained": "Branin-Hoo with state s, action x in [0, 15], and a limit on a load that is learned.",
    "cifar_cnn": "The real training as a problem; `cifar_cnn_table`, its surrogate, needs no images and no GPU.",
    "cifar_cnn_table": "The surrogate of `cifar_cnn`: the same space, rewards by a regression on measured trainings.",
    "falling_importance": "Two states and many actions, each of which matters less than the one before; all in [0, 1].",
    "hartmann6": "Hartmann6 without a state, actions x1 to x6 in [0, 1]; `noise` as in the others.",
    "rosenbrock": "Rosenbrock with state s and action x in [-1, 5].",
}

__all__ = [
    "MeanReward",
    "Problem",
    "ambulances",
    "assemble_to_order",
    "branin",
    "branin_constrained",
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
