"""Output warping that is learned: a Box-Cox map of the distance from a ceiling, with two parameters.

    z = -((c - y)^λ - 1)/λ, then standardized

The ceiling c is above the best reward.  The power λ is between nearly 0, a logarithm, and 1, no warping.  Without a
prior, a ceiling at the best reward would be infinitely probable.  The density of log t, with t the distance from the
best reward to the ceiling in units of the reach, is therefore proportional to (t/(1 + t))².  The reach is the distance
from the median reward to the best.
"""

from dataclasses import dataclass
from math import exp, log

import torch
from torch import Tensor

from conbo.models.output_maps import LowTail

LOG_DISTANCES = log(1e-6), log(30.0)  # bounds of log t
POWERS = 1e-3, 1.0  # bounds of λ
TRIED_POWERS = (1e-3, 1 / 3, 0.6)  # a search begins with one of these powers and one of the distances
TRIED_DISTANCES = 12  # number of distances that are tried, evenly spaced in their logarithm
LINEAR_SHARE = 0.5  # share of the way from the best reward to the ceiling after which the map is continued linearly


@dataclass(frozen=True)
class LearnedMaps:
    """All maps of standardized rewards, with parameters (log t, λ)."""

    rewards: Tensor  # (n,)
    best: float
    reach: float

    @property
    def bounds(self) -> Tensor:
        """Lower and upper bounds (2, 2) of the parameters, one row each."""
        return torch.tensor([LOG_DISTANCES, POWERS], dtype=torch.float64)

    def tried(self) -> Tensor:
        """Parameters (k, 2) of the maps that are tried first, those with equal powers next to each other."""
        distances = torch.linspace(*LOG_DISTANCES, TRIED_DISTANCES, dtype=torch.float64)
        powers = torch.tensor(TRIED_POWERS, dtype=torch.float64)
        return torch.cartesian_prod(powers, distances).flip(-1)

    def values(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards (r, n) under maps with parameters (r, 2), and the logarithms (r,) of Jacobian times prior."""
        distance, power, below = self._below(parameters)
        mapped = -torch.expm1(power * below) / power
        deviation, mean = torch.std_mean(mapped, -1, keepdim=True)
        slopes = (power - 1) * below - distance - log(self.reach) - deviation.log()
        prior = -2 * torch.log1p((-distance[:, 0]).exp())
        return (mapped - mean) / deviation, slopes.sum(-1) + prior

    def gradients(self, parameters: Tensor, in_values: Tensor) -> Tensor:
        """Gradients (r, 2) of a log-density with gradients in the values (r, n), plus Jacobian and prior."""
        distance, power, below = self._below(parameters)
        n, growth = below.shape[1], torch.expm1(power * below)
        mapped = -growth / power
        deviation, mean = torch.std_mean(mapped, -1, keepdim=True)
        values = (mapped - mean) / deviation
        # values are standardized, and the Jacobian has the factor 1 / deviation for each reward
        along = (n + (in_values * values).sum(-1, keepdim=True)) / (n - 1)
        in_mapped = (in_values - in_values.mean(-1, keepdim=True) - along * values) / deviation
        below_in_distance = torch.expm1(-below)
        in_distance = -in_mapped * (growth + 1) * below_in_distance + (power - 1) * below_in_distance - 1
        in_power = in_mapped * (growth - power * below * (growth + 1)) / power.square() + below
        prior = 2 * torch.sigmoid(-distance[:, 0])
        return torch.stack([in_distance.sum(-1) + prior, in_power.sum(-1)], -1)

    def _below(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-distance (r, 1), power (r, 1), and log((c - y) / (c - best)) for each reward y (r, n)."""
        distance, power = parameters[:, :1], parameters[:, 1:]
        return distance, power, torch.log1p((self.best - self.rewards) / self.reach / distance.exp())

    def output(self, parameters: Tensor) -> LowTail:
        """The map with parameters (2,)."""
        distance, power = self.reach * exp(float(parameters[0])), float(parameters[1])
        width = (1 - LINEAR_SHARE) * distance
        plain = LowTail(self.best + LINEAR_SHARE * distance, width, power=power)
        deviation, mean = torch.std_mean(plain.compressed(self.rewards))
        return LowTail(plain.pivot, width, float(mean), float(deviation), power)

    def parameters(self, output: LowTail) -> Tensor:
        """The parameters (2,) of a map; those of a map of other rewards are nearly the same."""
        distance = log(output.width / (1 - LINEAR_SHARE) / self.reach)
        return torch.tensor([distance, output.power], dtype=torch.float64).clamp(*self.bounds.T)


def learned_maps(rewards: Tensor) -> LearnedMaps | None:
    """The maps of standardized rewards (n,); None if most rewards are as good as the best."""
    best = float(rewards.max())
    reach = best - float(rewards.median())
    return LearnedMaps(rewards, best, reach) if reach > 0 else None
