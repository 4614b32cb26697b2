"""Policies in the unit cube: recipes that turn a belief into a function from states to actions.

`policy.py` holds the policy that users get, `gp_argmax.py` the default recipe, and `cached_answers.py` the cache
of its answers.
"""

from typing import Protocol

import torch
from torch import Tensor

from conbo.belief import Belief


class StatePolicy(Protocol):
    """A policy in the unit cube."""

    def __call__(self, states: Tensor) -> Tensor:
        """Valid actions (m, d_x) for states (m, d_s)."""


class PolicyRecipe(Protocol):
    """A recipe for a policy; implementations are frozen dataclasses of settings."""

    def build(self, belief: Belief, generator: torch.Generator) -> StatePolicy:
        """The policy under one belief."""
