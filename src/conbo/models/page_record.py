"""The values that the report's web page needs to compute the predictions of an exact posterior in the browser."""

from itertools import product
from math import prod, sqrt
from typing import Any

import torch

from conbo.models.conditioned import Conditioned
from conbo.models.heteroscedastic_noise import LOG_NOISE_BOUNDS, HeteroscedasticNoise
from conbo.models.kernels import Kernel
from conbo.models.output_maps import NODES, WEIGHTS, OutputMap
from conbo.spaces import Space

MOST_COMBINATIONS = 400  # largest number of combinations of state categories for which tables are sent to the page


def page_record(posterior: Conditioned, space: Space) -> dict[str, Any] | None:
    """Return what the report's web page needs to compute a posterior's predictions; None if it cannot compute them."""
    kernel, warp = posterior.kernel, posterior.kernel.actions.warp
    built_in = kernel.states.profile.built_in and kernel.states.profile == kernel.actions.profile
    tables = state_tables(kernel.without_main_effects(), space) if built_in else None
    if tables is None:
        return None
    unit = kernel.actions.profile.unit
    state_scales = (unit / kernel.states.lengthscales).tolist()
    for column in tables["columns"]:
        state_scales[column] = 0.0  # the tables hold the similarity of these categories
    return {
        "profile": kernel.actions.profile.name,
        "constant": posterior.constant,
        "stateScales": state_scales,
        "actionScales": (unit / kernel.actions.lengthscales).tolist(),
        "actionExponents": None if warp is None else {"a": warp.log_a.exp().tolist(), "b": warp.log_b.exp().tolist()},
        "tables": tables,
        "mainEffects": kernel.page_main_effects(),
        "weights": posterior.weights,
        "noise": posterior.observed_noise,
    }


def output_record(output: OutputMap, noise: float | HeteroscedasticNoise) -> dict[str, Any]:
    """Return what the report's web page needs for output warping: the map, nodes for quadrature, and the noise."""
    return {
        **output.record(),
        "nodes": NODES.tolist(),
        "nodeWeights": WEIGHTS.tolist(),
        "noise": noise if isinstance(noise, float) else heteroscedastic_noise(noise),
    }


def heteroscedastic_noise(noise: HeteroscedasticNoise) -> dict[str, Any]:
    """Return heteroscedastic noise as plain values for the report's web page.

    The log-variance is a level plus one term for each column. The term of a numeric column is a slope times its
    unit-cube value. The term of a categorical column has one value for each choice.
    """
    slopes, terms = noise.slopes.tolist(), []
    for count in noise.columns.categories:
        own, slopes = slopes[: max(count, 1)], slopes[max(count, 1) :]
        terms.append([sqrt(2.0) * slope for slope in own] if count else [2 * own[0]])
    level = noise.log_level - float(noise.slopes.sum())
    return {"logLevel": level, "terms": terms, "bounds": list(LOG_NOISE_BOUNDS)}


def state_tables(kernel: Kernel, space: Space) -> dict[str, Any] | None:
    """Return tables of A and B, the functions of two states s and s' in a kernel A(s, s') κ + B(s, s').

    κ is the correlation of actions. `kernel.page_columns()` returns the indices of the categorical state columns for
    which tables are needed. A table has one row (s) and one column (s') for each combination of choices in these state
    columns; in all other state columns, s and s' are equal. The result is None if there are more than MOST_COMBINATIONS
    combinations, or if `page_columns()` returns None, because the page then cannot compute the kernel.
    """
    columns = kernel.page_columns()
    counts = [] if columns is None else [space.state_categories[column] for column in columns]
    if columns is None or prod(counts) > MOST_COMBINATIONS:
        return None
    combinations = list(product(*([(choice + 0.5) / count for choice in range(count)] for count in counts)))
    states = torch.full((len(combinations), space.n_state_dims), 0.5, dtype=torch.float64)
    states[:, list(columns)] = torch.tensor(combinations, dtype=torch.float64).reshape(len(combinations), len(columns))
    features = kernel.states.scaled(states)
    scale, offset = kernel.scale(features, features), kernel.offset(features, features)
    offset = torch.zeros_like(scale) if offset is None else offset
    return {
        "columns": list(columns),
        "size": len(combinations),
        "scale": scale.flatten().tolist(),
        "offset": offset.flatten().tolist(),
    }
