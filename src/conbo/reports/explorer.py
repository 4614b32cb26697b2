"""What the page needs to answer for any state by itself.

The built-in models travel whole: kernel, observed points and weights, and a pool of actions to start climbing from.
Other policies (of a BoTorch model, or that are not the model's best action) travel as a table of states.
"""

from base64 import b64encode
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conbo.models.kernels import PROFILES, ProductKernel
from conbo.models.posterior import Posterior
from conbo.plots.view import View
from conbo.policies.gp_argmax import GpArgmax
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates
from conbo.spaces import Integer

POLICY_STATES = 64  # whose best actions join the pool
MOST_COMBINATIONS = 400  # of the states' categories, for which the model's tables are sent
TABLE_STATES = 1024  # of a policy that travels as a table


def explorer_record(view: View) -> dict[str, Any]:
    """A plain record that JSON can hold."""
    space = view.space.to_dict()
    return {**space, "maximize": view.sign > 0, "start": view.centre().tolist(), **_answers(view)}


def _answers(view: View) -> dict[str, Any]:
    posterior = view.belief.posterior
    if isinstance(posterior, Posterior) and view.policy.recipe is None:
        tables = _state_tables(view, posterior)
        if tables is not None:
            return {"model": _model(view, posterior, tables)}
    return {"table": _table(view)}


def _model(view: View, posterior: Posterior, tables: dict[str, Any]) -> dict[str, Any]:
    kernel, belief, warp = posterior.kernel, view.belief, posterior.kernel.actions.warp
    # the variances of the observed rewards' noise are what the factor has beyond the kernel
    noise = posterior.factor.square().sum(-1) - kernel.variance(posterior.states)
    unit = PROFILES[kernel.actions.profile][1]
    state_scales = (unit / kernel.states.lengthscales).tolist()
    for column in tables["columns"]:
        state_scales[column] = 0.0  # the tables say how alike these are
    return {
        "profile": kernel.actions.profile,
        "constant": posterior.constant,
        "shift": belief.shift,
        "scale": belief.scale,
        "sign": view.sign,
        "stateScales": state_scales,
        "actionScales": (unit / kernel.actions.lengthscales).tolist(),
        "actionExponents": None if warp is None else {"a": warp.log_a.exp().tolist(), "b": warp.log_b.exp().tolist()},
        "stateCounts": view.space.state_categories,
        "actionCounts": view.space.action_categories,
        "integers": [isinstance(parameter, Integer) for parameter in view.space.actions.values()],
        "tables": tables,
        "points": _packed(view.points),
        "weights": _packed(posterior.weights),
        "noise": _packed(noise.clamp_min(0)),
        "pool": _packed(_pool(view)),
    }


def _state_tables(view: View, posterior: Posterior) -> dict[str, Any] | None:
    """A and B between all combinations of the states' categories, numbers being equal; None if there are too many.

    In a product kernel categories are distances like numbers: there is one combination, and `columns` is empty.
    """
    kernel, space = posterior.kernel, view.space
    columns = [] if isinstance(kernel, ProductKernel) else list(kernel.states.columns.categorical)
    levels = [(np.arange(space.state_categories[column]) + 0.5) / space.state_categories[column] for column in columns]
    if np.prod([len(level) for level in levels]) > MOST_COMBINATIONS:
        return None
    combinations = list(product(*levels))
    states = torch.full((len(combinations), space.n_state_dims), 0.5, dtype=torch.float64)
    states[:, columns] = torch.tensor(combinations, dtype=torch.float64).reshape(len(combinations), len(columns))
    features = kernel.states.scaled(states)
    scale, offset = kernel.scale(features, features), kernel.offset(features, features)
    offset = torch.zeros_like(scale) if offset is None else offset
    return {
        "columns": columns,
        "size": len(combinations),
        "scale": scale.flatten().tolist(),
        "offset": offset.flatten().tolist(),
    }


def _pool(view: View) -> Tensor:
    """The actions that the policy starts from, and its answers for some states."""
    candidates = action_candidates(view.belief, GpArgmax().candidates, torch.Generator().manual_seed(0))
    states = view.typical_states[0]
    chosen = states[:: -(-len(states) // POLICY_STATES)]
    return torch.cat([candidates, view.actions(chosen)])


def _table(view: View) -> dict[str, Any]:
    """The policy at states that are spread evenly, or at all of finitely many."""
    finite = view.belief.states.finite(TABLE_STATES)
    spread = view.space.snap_states(sobol(TABLE_STATES, max(view.space.n_state_dims, 1), seed=0).numpy())
    states = finite[0] if finite is not None else torch.from_numpy(spread)
    actions = view.actions(states)
    mean, std = view.predict(torch.cat([states, actions], -1))
    columns = {"states": states, "actions": actions, "means": torch.from_numpy(mean), "stds": torch.from_numpy(std)}
    return {name: _packed(column) for name, column in columns.items()}


def _packed(tensor: Tensor) -> str:
    """The numbers, row by row, for JavaScript's Float64Array."""
    return b64encode(np.ascontiguousarray(tensor.numpy(), dtype="<f8").tobytes()).decode("ascii")
