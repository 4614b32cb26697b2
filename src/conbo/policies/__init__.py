"""Policies: functions from states to actions, and the recipes that build them from a belief.

`policy.py` has the class `Policy` that users get, with named values in their units. Recipes and the policies that they
build work in the unit cube: `gp_argmax.py` has the recipe of the default policy, and `policy_cache.py` the cache of
this policy.
"""

from typing import Protocol

import torch
from torch import Tensor

from conbo.belief import Belief


class StatePolicy(Protocol):
    """A policy whose states and actions are rows of tensors, in the unit cube."""

    def __call__(self, states: Tensor) -> Tensor:
        """Return an action (m, d_x) for each state (m, d_s); it may violate known limits."""


class PolicyRecipe(Protocol):
    """A recipe: the settings from which a policy is built; implementations are frozen dataclasses."""

    def build(self, belief: Belief, generator: torch.Generator) -> StatePolicy:
        """Build the policy from a belief (space, P[s], observations and fitted model)."""
