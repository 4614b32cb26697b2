"""Knowledge gradients under a mixture of models: the weighted means of the members' knowledge gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.models.gains import KnowsSeeds, StateGains, StateValue


@dataclass(frozen=True)
class MixtureGains:
    """Knowledge gradients under a mixture of models: the weighted means of the members' knowledge gradients."""

    values: tuple[StateValue, ...]  # the members' gains
    weights: Tensor  # (members,)

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """The observed simulator seeds; empty if none of the averaged models has effects of seeds."""
        known = (value.seen_seeds for value in self.values if isinstance(value, KnowsSeeds))
        return max(known, key=len, default=())

    def for_seeds(self, seeds: Tensor) -> "MixtureGains":
        """Return the knowledge gradients of new rewards that are simulated with these seeds.

        `seeds` is (1,), one seed for all candidates, or (c,), one seed for each of c candidates. Models without effects
        of seeds ignore them.
        """
        values = (value.for_seeds(seeds) if isinstance(value, KnowsSeeds) else value for value in self.values)
        return MixtureGains(tuple(values), self.weights)

    def rough(self, states: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a fast function that estimates knowledge gradients (r, m) of candidates (r, d) in states (m, d_s)."""
        functions = [value.rough(states) for value in self.values]
        return lambda candidates: weighted(self.weights, [function(candidates) for function in functions])

    def at(self, states: Tensor) -> Callable[[Tensor, Tensor], "WeightedGains"]:
        """Return a function that computes knowledge gradients of candidates in r sets of m states (r, m, d_s).

        It takes k candidates (k, d) and indices (k,). The knowledge gradients of candidate i are those in the m states
        of set `indices[i]`.
        """
        functions = [value.at(states) for value in self.values]
        return lambda candidates, rows: WeightedGains([f(candidates, rows) for f in functions], self.weights)


@dataclass(frozen=True)
class WeightedGains:
    """The weighted sum of several models' knowledge gradients, for the same k candidates, each in m states."""

    gains: Sequence[StateGains]
    weights: Tensor  # (members,)

    @property
    def values(self) -> Tensor:
        """Knowledge gradients (k, m) of k candidates, each in m states."""
        return weighted(self.weights, [gain.values for gain in self.gains])

    def gradient(self, weights: Tensor) -> Tensor:
        """Return the gradients (k, d) of Σ_i weights[:, i] values[:, i] with respect to the k candidates.

        The sum is over the m states of a candidate, and `weights` is (k, m).
        """
        return weighted(self.weights, [gain.gradient(weights) for gain in self.gains])


def weighted(weights: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """Return the weighted sum Σ_j weights[j] parts[j] of the tensors `parts`."""
    return torch.stack(tuple(parts), -1) @ weights  # einsum would take much longer for so few numbers
