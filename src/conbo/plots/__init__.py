"""Plots of a study: each function takes a study and returns a plotly figure, which `save` writes to a file.

Needs the optional dependencies `conbo[plots]`.
"""

from conbo.plots.gain import acquisition, remaining_gain
from conbo.plots.limits import feasibility
from conbo.plots.model_checks import calibration, state_coverage
from conbo.plots.parameters import importance, slices
from conbo.plots.planes import posterior_surface
from conbo.plots.policy_plots import policy_map, predicted_reward
from conbo.plots.progress import policy_value, timeline
from conbo.plots.save import save

__all__ = [
    "acquisition",
    "calibration",
    "feasibility",
    "importance",
    "policy_map",
    "policy_value",
    "posterior_surface",
    "predicted_reward",
    "remaining_gain",
    "save",
    "slices",
    "state_coverage",
    "timeline",
]
