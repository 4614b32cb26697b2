"""Conditional Bayesian optimization: the best action for every state, from few noisy evaluations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conbo import errors, integrations, plots, problems
    from conbo.client import Client
    from conbo.comparison import Comparison
    from conbo.confidence_interval import Interval
    from conbo.gaussian_process import GaussianProcess
    from conbo.method_list import Method, methods
    from conbo.models.model import Model
    from conbo.optimizer import Optimizer
    from conbo.outcome_constraints import AtLeast, AtMost
    from conbo.policies.policy import Policy, load_policy
    from conbo.prediction import Prediction
    from conbo.reports import report
    from conbo.spaces import Categorical, Integer, Real, Space
    from conbo.state_distributions import Density, Normal, Product, Triangular, Uniform, Weights
    from conbo.study import RunSummary, Study, open_study, study_names
    from conbo.study.executors import Objective, SeededObjective
    from conbo.study_summary import StudySummary
    from conbo.trials import Outcomes, Trial
    from conbo.validation import Validation

__version__ = "0.2.0.dev0"

# Names are imported on first use, because torch takes seconds to import and `import conbo` should not.
_HOME = {
    "AtLeast": "outcome_constraints",
    "AtMost": "outcome_constraints",
    "Categorical": "spaces",
    "Client": "client",
    "Comparison": "comparison",
    "Density": "state_distributions",
    "GaussianProcess": "gaussian_process",
    "Integer": "spaces",
    "Interval": "confidence_interval",
    "Method": "method_list",
    "Model": "models.model",
    "Normal": "state_distributions",
    "Objective": "study.executors",
    "Optimizer": "optimizer",
    "Outcomes": "trials",
    "Policy": "policies.policy",
    "Prediction": "prediction",
    "Product": "state_distributions",
    "Real": "spaces",
    "RunSummary": "study",
    "SeededObjective": "study.executors",
    "Space": "spaces",
    "Study": "study",
    "StudySummary": "study_summary",
    "Trial": "trials",
    "Triangular": "state_distributions",
    "Uniform": "state_distributions",
    "Validation": "validation",
    "Weights": "state_distributions",
    "load_policy": "policies.policy",
    "methods": "method_list",
    "open_study": "study",
    "report": "reports",
    "study_names": "study",
}
_MODULES = ("errors", "integrations", "plots", "problems")
_PLOTTING = ("jinja2", "matplotlib", "plotly")  # packages that the extra `plots` installs

__all__ = [
    "AtLeast",
    "AtMost",
    "Categorical",
    "Client",
    "Comparison",
    "Density",
    "GaussianProcess",
    "Integer",
    "Interval",
    "Method",
    "Model",
    "Normal",
    "Objective",
    "Optimizer",
    "Outcomes",
    "Policy",
    "Prediction",
    "Product",
    "Real",
    "RunSummary",
    "SeededObjective",
    "Space",
    "Study",
    "StudySummary",
    "Trial",
    "Triangular",
    "Uniform",
    "Validation",
    "Weights",
    "__version__",
    "errors",
    "integrations",
    "load_policy",
    "methods",
    "open_study",
    "plots",
    "problems",
    "report",
    "study_names",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_HOME.get(name, name)}")
    except ModuleNotFoundError as error:
        if error.name not in _PLOTTING:
            raise
        needed = f"`conbo.{name}` needs {error.name}, which is not installed: pip install 'conbo[plots]'"
        raise import_module(f"{__name__}.errors").ConboError(needed) from error
    return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
