"""Log-likelihoods of rewards whose covariance is a sum of products σ² φ_S φ_X, by compiled loops and NumPy alone.

Here σ² is a variance, and φ_S and φ_X are correlations of states and of actions.

A fit computes hundreds of likelihoods, one after the other.  With a hundred rewards, one likelihood takes a few tenths
of a millisecond.  Calls to torch between the loops would double this time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from conbo.loops import likelihood, product_family
from conbo.loops.compiling import Array
from conbo.loops.profiles import coefficients
from conbo.models import compiled
from conbo.models.columns import Columns
from conbo.models.compiled_likelihood import MOST_REWARDS, failures
from conbo.models.profiles import Profile
from conbo.threads import available_threads, in_threads

NUMBERS_AT_ONCE = 2**14  # largest number of covariances computed at once, so that they stay in the processor's cache
WORK_PER_THREAD = 2 * 10**6  # least number r n³ of multiplications for each thread: with less, threads cost more time


@dataclass(frozen=True)
class TermBlock:
    """The columns of points on which a correlation of states or a correlation of actions depends.

    Without columns, the correlation is 1 everywhere.
    """

    columns: Columns
    places: tuple[int, ...]  # index of each column among the columns of a point
    lengthscales: tuple[int, ...]  # index of the parameter that is the logarithm of each column's lengthscale


@dataclass(frozen=True)
class ProductTerm:
    """A term σ² φ_S φ_X of a covariance: a variance times a correlation of states and a correlation of actions."""

    profile: Profile  # of both correlations
    states: TermBlock
    actions: TermBlock
    variance: int  # index of the parameter that is log σ²


@runtime_checkable
class HasProductTerms(Protocol):
    """A family of kernels whose covariance may be a sum of product terms.

    A product term is a variance times a correlation of states and a correlation of actions.
    """

    @property
    def terms(self) -> tuple[ProductTerm, ...]:
        """The product terms whose sum is the covariance; empty if the covariance is not such a sum.

        A product term is a variance times a correlation of states and a correlation of actions.
        """


def handles(terms: Sequence[ProductTerm], points: Tensor) -> bool:
    """Return whether `TermLikelihoods` can compute likelihoods for a sum of these terms and for points (n, d).

    There must be at least one term, compiled loops must be able to compute the profiles of all terms, the points must
    be on the CPU, and n must be at most MOST_REWARDS.
    """
    small = points.device.type == "cpu" and len(points) <= MOST_REWARDS
    return small and len(terms) > 0 and all(compiled.handles(term.profile) for term in terms)


class TermLikelihoods:
    """Computes log-likelihoods of rewards (n,) at points (n, d) for a kernel that is a sum of product terms."""

    def __init__(self, terms: Sequence[ProductTerm], points: Tensor, rewards: Tensor, n_parameters: int) -> None:
        self._rewards = np.ascontiguousarray(rewards.numpy())
        self._terms = [_PreparedTerm(term, points, n_parameters) for term in terms]

    def __call__(self, parameters: Array, noise: Array) -> tuple[Array, Array, Array, Array]:
        """Return log-likelihoods (r,), constant means (r,) and two gradients, for r sets of p parameters (r, p).

        `noise` holds noise variances (r, n), (r, 1) or (n,). The log-likelihoods are those of the n rewards, without
        the constant -½ n log 2π. They are -inf where a covariance matrix could not be factorized. For each set of
        parameters, the rewards have the constant mean that maximizes the likelihood. The gradients of the
        log-likelihoods are with respect to the parameters (r, p) and with respect to the noise variances (r, n).
        """
        r, n = len(parameters), len(self._rewards)
        if r > (most := max(1, NUMBERS_AT_ONCE // n**2)):
            noise = np.broadcast_to(noise, (r, noise.shape[-1]))
            threads = max(1, min(available_threads(), r * n**3 // WORK_PER_THREAD))
            pairs = [(parameters[i : i + most], noise[i : i + most]) for i in range(0, r, most)]
            pieces = in_threads(lambda pair: self(*pair), pairs, threads)
            values, means, in_parameters, in_noise = (np.concatenate(piece) for piece in zip(*pieces, strict=True))
            return values, means, in_parameters, in_noise
        parts = [term.covariance(parameters) for term in self._terms]
        matrix = parts[0][-1] if len(parts) == 1 else sum(part[-1] for part in parts)
        variances = np.empty((r, n))
        variances[:] = noise
        factors, inverses = np.empty((r, n, n)), np.empty((r, n, n))
        likelihood.factorize_and_invert(matrix, variances, factors, inverses, np.empty((4, n)))
        values, means, gradients = np.empty(r), np.empty(r), np.empty((r, n, n))
        likelihood.log_likelihoods(factors, inverses, self._rewards, values, means, gradients, np.empty((2, n)))
        values[failures(factors)] = -np.inf
        in_parameters = np.zeros(parameters.shape)
        for term, part in zip(self._terms, parts, strict=True):
            term.add_pulled_back(*part, gradients, in_parameters)
        return values, means, in_parameters, np.einsum("rnn->rn", gradients)


class _PreparedTerm:
    """Computes the covariances of a `ProductTerm` between n fixed points, for any parameters."""

    def __init__(self, term: ProductTerm, points: Tensor, n_parameters: int) -> None:
        self._coefficients, self._unit = coefficients(term.profile.name), term.profile.unit
        self._variance, self._n = term.variance, len(points)
        states, actions = (_prepared(block, points) for block in (term.states, term.actions))
        self._n_states = len(states[0])
        self._features = np.concatenate([states[0], actions[0]])
        self._owners = np.concatenate([states[1], actions[1]])
        self._owns = np.eye(n_parameters)[self._owners]  # adds up gradients of features with the same lengthscale

    def covariance(self, parameters: Array) -> tuple[Array, Array]:
        """Return scaled inputs (r, width, n) and covariances (r, n, n) of n points, for r sets of p parameters (r, p).

        `width` is the number of scaled inputs of a point that the term depends on.
        """
        n = self._n
        scales = self._unit * np.exp(-parameters[:, self._owners])
        features = np.multiply(self._features, scales[..., None], order="C")
        matrix, variance = np.empty((len(parameters), n, n)), np.exp(parameters[:, self._variance])
        product_family.covariance(self._coefficients, self._n_states, features, variance, matrix, np.empty((2, n)))
        return features, matrix

    def add_pulled_back(self, features: Array, matrix: Array, gradient: Array, total: Array) -> None:
        """Convert a gradient with respect to covariances to one with respect to parameters, and add it to `total`.

        `gradient` (r, n, n) is with respect to the covariances of n points, and `total` (r, p) with respect to r sets
        of p parameters. `features` and `matrix` are the results of the method `covariance`.
        """
        in_features, in_variance = np.zeros(features.shape[:2]), np.zeros(len(matrix))
        product_family.pull_back(
            self._coefficients,
            self._n_states,
            features,
            matrix,
            gradient,
            in_features,
            in_variance,
            np.empty((2, self._n)),
        )
        total[:, self._variance] += in_variance
        total += in_features @ self._owns


def _prepared(block: TermBlock, points: Tensor) -> tuple[Array, Array]:
    """Return the features (width, n) of a block's columns at n points, and the indices (width,) of their lengthscales.

    `width` is the number of features; a categorical column may have several. An index says which parameter is the
    logarithm of the feature's lengthscale.
    """
    owners = np.array(block.lengthscales, dtype=np.int64)[list(block.columns.owner)]
    features = block.columns.features(points[:, list(block.places)]).numpy()
    return features.T, owners
