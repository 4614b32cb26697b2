"""The data for the report's explorer, with which the page computes the policy's action for any state.

The page gets the whole model, and a pool of actions from which its local searches start. In these cases, it gets a
table of states and actions instead:

- Actions have limits.
- The policy has a recipe other than the default.
- The page cannot compute the model. Examples are a BoTorch model, a model of this study and an earlier one together,
  and a model of very many rewards.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conbo.plots.limits import binding, has_limits, limit_names
from conbo.plots.view import View
from conbo.policies.gp_argmax import GpArgmax
from conbo.quasi_random import sobol
from conbo.search.action_candidates import action_candidates
from conbo.spaces import Integer

POLICY_STATES = 64  # number of states whose best actions are added to the pool of starting actions
TABLE_STATES = 1024  # number of states in the table of a policy


def explorer_record(view: View) -> dict[str, Any]:
    """The data of the report's interactive explorer of the policy, as a dict that JSON can hold."""
    space = view.space.to_dict()
    return {**space, "maximize": view.sign > 0, "start": view.center().tolist(), **_answers(view)}


def _answers(view: View) -> dict[str, Any]:
    posterior = view.belief.posterior
    # the page's local searches cannot take limits into account
    limited = view.space.feasible_set is not None or view.belief.constraints is not None
    whole = view.policy.recipe is None and not limited
    model = posterior.page_record(view.space) if whole else None
    predictive = view.belief.predictive.page_record(view.space) if whole else None
    if model is None or predictive is None:
        return {"table": _table(view)}
    return {"model": _model(view, {**model, "predictive": None if view.belief.average is None else predictive})}


def _model(view: View, record: Mapping[str, Any]) -> dict[str, Any]:
    """The data from which the page computes the policy and its expected reward; `record` describes the posterior."""
    return {
        **_plain(record),
        "shift": view.belief.shift,
        "scale": view.belief.scale,
        "sign": view.sign,
        "stateCounts": view.space.state_categories,
        "actionCounts": view.space.action_categories,
        "integers": [isinstance(parameter, Integer) for parameter in view.space.actions.values()],
        "points": _packed(view.points),
        "pool": _packed(_pool(view)),
    }


def _plain(value: Any) -> Any:
    """Replace all tensors in nested dicts and lists by base64 strings."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _packed(value) if isinstance(value, Tensor) else value


def _pool(view: View) -> Tensor:
    """The actions (k, d_x), in the unit cube, among which the page chooses initial points for its local searches.

    They are quasi-random actions, the observed actions with the highest rewards, and the policy's actions in at most
    POLICY_STATES states, which are spread over P[s].
    """
    candidates = action_candidates(view.belief, GpArgmax().candidates, torch.Generator().manual_seed(0))
    states = view.typical_states[0]
    chosen = states[:: -(-len(states) // POLICY_STATES)]
    return torch.cat([candidates, view.actions(chosen)])


def _table(view: View) -> dict[str, Any]:
    """A table of the policy's actions and predictions: in all states if there are few, else in evenly spread ones."""
    finite = view.belief.states.finite(TABLE_STATES)
    spread = view.space.snap_states(sobol(TABLE_STATES, max(view.space.n_state_dims, 1), seed=0).numpy())
    states = finite[0] if finite is not None else torch.from_numpy(spread)
    if view.space.feasible_set is not None:
        states = states[torch.from_numpy(view.space.feasible_set.has_action(states.numpy()))]
    actions = view.actions(states)
    points = torch.cat([states, actions], -1)
    mean, std = view.predict(points)
    columns = {"states": states, "actions": actions, "means": torch.from_numpy(mean), "stds": torch.from_numpy(std)}
    if (kept := view.probability(points)) is not None:
        columns["probabilities"] = torch.from_numpy(kept)
    packed = {name: _packed(column) for name, column in columns.items()}
    return {**packed, "limits": limit_names(view), "binding": binding(view, points)} if has_limits(view) else packed


def _packed(tensor: Tensor) -> str:
    """The numbers of a tensor, row by row, as a base64 string for JavaScript's Float64Array."""
    return b64encode(np.ascontiguousarray(tensor.numpy(), dtype="<f8").tobytes()).decode("ascii")
