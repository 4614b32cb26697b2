"""Output warping with learned parameters: a Box-Cox map of the distance of rewards y from a ceiling c.

    z = -((c - y)^λ - 1)/λ, then standardized

The ceiling lies above the best reward.  The power λ lies between nearly 0 (a logarithm) and 1 (no warping).  The
distance from the best reward to the ceiling is t times the reach, which is the distance from the median reward to the
best.  Log t has a prior density proportional to (t/(1 + t))², which goes to zero with t.  With a flat prior, the
posterior density would grow without bound as the ceiling approaches the best reward.
"""

from dataclasses import dataclass
from math import exp, log

import torch
from torch import Tensor

from conbo.models.output_maps import LowTail

LOG_DISTANCES = log(1e-6), log(30.0)  # bounds of log t
POWERS = 1e-3, 1.0  # bounds of λ
TRIED_POWERS = (1e-3, 1 / 3, 0.6)  # values of λ at which a search starts
TRIED_DISTANCES = 12  # number of values of t at which a search may start, evenly spaced in their logarithm
LINEAR_SHARE = 0.5  # the map is linear above the best reward plus this share of the distance from there to the ceiling


@dataclass(frozen=True)
class LearnedMaps:
    """The Box-Cox maps -((c - y)^λ - 1)/λ of one set of standardized rewards y, with two parameters: (log t, λ).

    λ is the power, and t the distance from the best reward to the ceiling c, in units of `reach`, which is the distance
    from the median reward to the best.
    """

    rewards: Tensor  # (n,)
    best: float  # the highest reward
    reach: float  # distance from the median reward to the highest one, the unit of t

    @property
    def bounds(self) -> Tensor:
        """Lower and upper bounds on the map's two parameters: a tensor (2, 2) with one row for each parameter.

        The parameters are log t, where t is the distance from the best reward to the ceiling in units of `reach`, and
        the power λ.
        """
        return torch.tensor([LOG_DISTANCES, POWERS], dtype=torch.float64)

    def tried(self) -> Tensor:
        """Return a grid (k, 2) of k pairs of the map's parameters, from which searches may start.

        A pair is (log t, λ): t is the distance from the best reward to the ceiling in units of `reach`, and λ the
        power. Pairs with the same λ are adjacent.
        """
        distances = torch.linspace(*LOG_DISTANCES, TRIED_DISTANCES, dtype=torch.float64)
        powers = torch.tensor(TRIED_POWERS, dtype=torch.float64)
        return torch.cartesian_prod(powers, distances).flip(-1)

    def values(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Return mapped and standardized rewards (r, n), and logarithms (r,) of Jacobian · prior, for r maps.

        A row (log t, λ) of `parameters` (r, 2) is one map: t is the distance from the best reward to the ceiling in
        units of `reach`, and λ the power. The Jacobian is the product of the map's derivatives at the n rewards. The
        prior density of the parameters is not normalized.
        """
        distance, power, below = self._below(parameters)
        mapped = -torch.expm1(power * below) / power
        deviation, mean = torch.std_mean(mapped, -1, keepdim=True)
        slopes = (power - 1) * below - distance - log(self.reach) - deviation.log()
        prior = -2 * torch.log1p((-distance[:, 0]).exp())
        return (mapped - mean) / deviation, slopes.sum(-1) + prior

    def gradients(self, parameters: Tensor, in_values: Tensor) -> Tensor:
        """Return the gradients (r, 2) of r log-densities with respect to the parameters (r, 2) of r maps.

        A row of parameters is (log t, λ): t is the distance from the best reward to the ceiling, divided by the
        attribute `reach`, and λ is the power. The log-density of a map is f(z) + log(Jacobian · prior), where z are
        the n mapped and standardized rewards. `values` returns z and the second term. The caller knows the function f,
        and gives its gradients with respect to z as `in_values` (r, n).
        """
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
        """Return log t (r, 1), λ (r, 1), and relative log-distances (r, n) from the ceiling, for r rows (log t, λ).

        t is the distance from the best reward to the ceiling c in units of `reach`, and λ the power. The relative
        log-distances are log((c - y) / (c - best)), where y are the n rewards, and `best` is the highest of them.
        """
        distance, power = parameters[:, :1], parameters[:, 1:]
        return distance, power, torch.log1p((self.best - self.rewards) / self.reach / distance.exp())

    def output(self, parameters: Tensor) -> LowTail:
        """Return the map with parameters (log t, λ), made linear above a point between the best reward and the ceiling.

        t is the distance from the best reward to the ceiling in units of `reach`, and λ the power.
        """
        distance, power = self.reach * exp(float(parameters[0])), float(parameters[1])
        width = (1 - LINEAR_SHARE) * distance
        plain = LowTail(self.best + LINEAR_SHARE * distance, width, power=power)
        deviation, mean = torch.std_mean(plain.compressed(self.rewards))
        return LowTail(plain.pivot, width, float(mean), float(deviation), power)

    def parameters(self, output: LowTail) -> Tensor:
        """Return the parameters (log t, λ) of a given map, clamped to their bounds.

        t is the distance from the best reward to the ceiling in units of `reach`, and λ the power. The given map is in
        the units of `rewards`, but may have been learned from only some of them. If its ceiling is not above the best
        of all `rewards`, the ceiling is raised: it is then as far above the best reward as when the map was learned.
        """
        distance = output.width / (1 - LINEAR_SHARE)  # from the best reward to the ceiling when the map was learned
        ceiling = output.pivot + output.width
        if ceiling > self.best:
            distance = ceiling - self.best
        return torch.tensor([log(distance / self.reach), output.power], dtype=torch.float64).clamp(*self.bounds.T)


def learned_maps(rewards: Tensor) -> LearnedMaps | None:
    """Return the family of Box-Cox maps for standardized rewards (n,); None if the median reward is the best one."""
    best = float(rewards.max())
    reach = best - float(rewards.median())
    return LearnedMaps(rewards, best, reach) if reach > 0 else None
