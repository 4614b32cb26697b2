"""An exact posterior as the page of a report computes it: profile, scales, tables of categories, weights and noise."""

from itertools import product
from math import prod
from typing import Any

import torch

from conbo.models.conditioned import Conditioned
from conbo.spaces import Space

MOST_COMBINATIONS = 400  # of the states' categories, for which the model's tables are sent


def page_record(posterior: Conditioned, space: Space) -> dict[str, Any] | None:
    """A record of plain values and tensors; None where the page does not know the kernel."""
    kernel, warp = posterior.kernel, posterior.kernel.actions.warp
    built_in = kernel.states.profile.built_in and kernel.states.profile == kernel.actions.profile
    tables = state_tables(posterior, space) if built_in else None
    if tables is None:
        return None
    unit = kernel.actions.profile.unit
    state_scales = (unit / kernel.states.lengthscales).tolist()
    for column in tables["columns"]:
        state_scales[column] = 0.0  # the tables say how alike these are
    return {
        "profile": kernel.actions.profile.name,
        "constant": posterior.constant,
        "stateScales": state_scales,
        "actionScales": (unit / kernel.actions.lengthscales).tolist(),
        "actionExponents": None if warp is None else {"a": warp.log_a.exp().tolist(), "b": warp.log_b.exp().tolist()},
        "tables": tables,
        "weights": posterior.weights,
        "noise": posterior.observed_noise,
    }


def state_tables(posterior: Conditioned, space: Space) -> dict[str, Any] | None:
    """A and B between all combinations of the categories that the kernel looks up, numbers being equal.

    None if there are too many, or if the kernel does not say that this is all there is to it.
    """
    kernel = posterior.kernel
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
