"""Conditional Bayesian optimization: the best action for every state, from few noisy evaluations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conbo import errors, problems
    from conbo.belief import GaussianProcess
    from conbo.method_table import methods
    from conbo.optimizer import Optimizer
    from conbo.policies.policy import load_policy
    from conbo.spaces import Categorical, Integer, Real, Space
    from conbo.state_distributions import Density, Normal, Product, Triangular, Uniform, Weights
    from conbo.study import Study

__version__ = "0.1.0"

# Imported on first use: torch takes seconds, `import conbo` and `dir(conbo)` should not.
_HOME = {
    "Categorical": "spaces",
    "Density": "state_distributions",
    "GaussianProcess": "belief",
    "Integer": "spaces",
    "Normal": "state_distributions",
    "Optimizer": "optimizer",
    "Product": "state_distributions",
    "Real": "spaces",
    "Space": "spaces",
    "Study": "study",
    "Triangular": "state_distributions",
    "Uniform": "state_distributions",
    "Weights": "state_distributions",
    "load_policy": "policies.policy",
    "methods": "method_table",
}
_MODULES = ("errors", "problems")

__all__ = [
    "Categorical",
    "Density",
    "GaussianProcess",
    "Integer",
    "Normal",
    "Optimizer",
    "Product",
    "Real",
    "Space",
    "Study",
    "Triangular",
    "Uniform",
    "Weights",
    "__version__",
    "errors",
    "load_policy",
    "methods",
    "problems",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
