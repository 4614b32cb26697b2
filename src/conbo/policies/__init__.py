"""Which action to take in a state: from a belief to a function of states."""

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
        """Ready for use under one belief."""
