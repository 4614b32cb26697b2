"""Families of kernels for rewards that also depend on a simulator's seed, which is the last column of a point."""

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from conbo.models.columns import Columns
from conbo.models.kernel_families import ExtendedFamily, ProductFamily, Pullback
from conbo.models.kernels import Kernel
from conbo.models.profiles import Profile
from conbo.models.seed_effects import SeedEffect

LEAST_SHARE = log(1e-2)  # least log-variance of a seed's effect at the start of a search
FUNCTION_SHARE = 0.25  # share of an effect's variance that its function gets at the start, beside a constant


@dataclass(frozen=True)
class SeededFamily(ExtendedFamily):
    """A family of kernels plus effects of simulator seeds: each seed adds a constant, a function of the point, or both.

    The constants of all seeds have one variance, and the functions of all seeds have one kernel. In the list of
    parameters, the lengthscales of this kernel follow those of the family without seeds. The variances of constants and
    functions follow the variances of the family without seeds. The method `kernel` returns the kernel without effects
    of seeds.
    """

    profile: Profile
    constant: bool  # whether every seed has a constant
    function: bool  # whether every seed has a function
    between: float = 0.0  # correlation of the effects of two different seeds

    @property
    def parts(self) -> tuple[bool, bool]:
        """Whether every seed adds a constant to the rewards, and whether it adds a function of the point."""
        return self.constant, self.function

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscales: those of the family without seeds, plus those of the functions that seeds may add."""
        return self.family.n_lengthscales + self._n_effect

    @property
    def n_variances(self) -> int:
        """Number of variances: those of the family without seeds, plus those of the effects of seeds.

        If seeds add constants to the rewards, these share one variance; if seeds add functions, these share another.
        """
        return self.family.n_variances + self.constant + self.function

    def kernel(self, parameters: Tensor) -> Kernel:
        """Return the kernel of the reward without effects of seeds, given all p parameters (p,) of this family."""
        return self.family.kernel(self._split(parameters)[0])

    def effect(self, parameters: Tensor) -> SeedEffect:
        """Return the covariance of the effects of simulator seeds, given the p hyperparameters (p,) of the model."""
        _, lengthscales, variances = self._split(parameters)
        constant = float(variances[0].exp()) if self.constant else 0.0
        function = self._functions.kernel(torch.cat([lengthscales, variances[-1:]])) if self.function else None
        return SeedEffect(constant, function, self.between)

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances (r, n, n) of rewards at points (n, d + 1), effects of seeds included, and their pullback.

        There is one matrix of covariances for each of r sets of p parameters (r, p). The last column of the points is
        the seed. The pullback is a vector-Jacobian product: it converts a gradient with respect to the covariances into
        one with respect to the parameters.
        """
        own, lengthscales, variances = self._split(parameters)
        plain, seeds = points[:, :-1], points[:, -1]
        shared = torch.where(seeds[:, None] == seeds, 1.0, self.between).to(points)
        matrix, pullback = self.family.covariance(own, plain)
        total = matrix
        if self.constant:
            constant = variances[:, 0].exp()[:, None, None] * shared
            total = total + constant
        if self.function:
            of_function = torch.cat([lengthscales, variances[:, -1:]], -1)
            function, function_pullback = self._functions.covariance(of_function, plain)
            total = total + shared * function

        def with_seeds(gradient: Tensor) -> list[Tensor]:
            in_own = torch.cat(pullback(gradient), -1)
            in_lengthscales, in_variances = lengthscales[:, :0], []
            if self.constant:
                in_variances.append((gradient * constant).sum((-2, -1))[:, None])
            if self.function:
                in_function = torch.cat(function_pullback(shared * gradient), -1)
                in_lengthscales, in_variance = in_function.split([self._n_effect, 1], -1)
                in_variances.append(in_variance)
            return [self._joined(in_own, in_lengthscales, torch.cat(in_variances, -1))]

        return total, with_seeds

    def from_noise(self, parameters: Tensor, noise: float) -> Tensor:
        """Return parameters to start a fit from, given the fitted parameters (p,) of the family without seeds.

        The result has these parameters and initial ones for the effects of seeds. `noise` is the fitted noise variance
        of the family without seeds. The initial variances of the effects add up to `noise` or 0.01, whichever is
        larger.
        """
        own = parameters[None]
        level = torch.tensor([noise], dtype=own.dtype).log().clamp_min(LEAST_SHARE)
        shares = [1.0] if self.constant != self.function else [1 - FUNCTION_SHARE, FUNCTION_SHARE]
        variances = torch.stack([level + log(share) for share in shares], -1)
        lengthscales = own[:, : self.family.n_lengthscales].mean(-1, keepdim=True).expand(1, self._n_effect)
        return self._joined(own, lengthscales, variances)[0]

    def with_effect_of(self, other: "SeededFamily", theirs: Tensor, parameters: Tensor) -> Tensor:
        """Return parameters to start a fit from, given the fitted parameters (p,) of the family without seeds.

        The result has these parameters and initial ones for the effects of seeds. The latter are taken from `theirs`
        (q,), the fitted parameters of another family with effects of seeds, `other`, which must have the same `parts`.
        """
        _, lengthscales, variances = other._split(theirs[None])
        return self._joined(parameters[None], lengthscales, variances)[0]

    @property
    def _functions(self) -> ProductFamily:
        """The kernel family of the function that each seed adds to the rewards."""
        return ProductFamily(Columns(self.states.categories), Columns(self.actions.categories), self.profile)

    @property
    def _n_effect(self) -> int:
        """Number of lengthscales of the function of the point that each seed adds to rewards; 0 if there is none."""
        return len(self.states.categories) + len(self.actions.categories) if self.function else 0

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split p parameters (..., p) into three parts, of which two belong to the effects of seeds.

        The first part has all parameters of the family without seeds, the second the log-lengthscales of the function
        that each seed adds to the rewards, and the third the log-variances of the constant and the function that it
        adds. If seeds add no function or no constant, the corresponding parameters are absent from these parts.
        """
        n_l, n_e, n_v, n_m = self.family.n_lengthscales, self._n_effect, self.family.n_variances, self._n_parts
        lengthscales, effect, own, mine, rest = parameters.split(
            [n_l, n_e, n_v, n_m, parameters.shape[-1] - n_l - n_e - n_v - n_m], -1
        )
        return torch.cat([lengthscales, own, rest], -1), effect, mine

    def _joined(self, own: Tensor, effect: Tensor, mine: Tensor) -> Tensor:
        """Join the three parts of r sets of p parameters into a tensor (r, p); the inverse of `_split`.

        `own` has the parameters of the family without seeds, `effect` the log-lengthscales of the function that each
        seed adds to the rewards, and `mine` the log-variances of the constant and the function that it adds.
        """
        n_l, n_v = self.family.n_lengthscales, self.family.n_variances
        return torch.cat([own[:, :n_l], effect, own[:, n_l : n_l + n_v], mine, own[:, n_l + n_v :]], -1)

    @property
    def _n_parts(self) -> int:
        """Number of variances of the effects of seeds: one if a seed adds a constant, and one if it adds a function."""
        return self.constant + self.function
