"""Families of kernels for states with categories: the kernels of category_kernels.py with free parameters."""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.models.category_kernels import CategoryKernel, MultiTask, Trend
from conbo.models.columns import Columns, same_choices
from conbo.models.kernel_families import Block, Features, Pullback
from conbo.models.kernels import Factor
from conbo.models.profiles import MATERN52, Profile

LARGEST_LOADING = 10.0  # bound of the absolute values of W
TYPICAL_LOADING = 0.7  # prior mean of the first column of W, by which all categories are similar a priori


@dataclass(frozen=True)
class TrendFamily:
    """The family of kernels with a trend that all categories share, and a deviation for each combination of them."""

    states: Columns
    actions: Columns
    profile: Profile = MATERN52
    wide_variances: bool = False

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscales: one for each numeric state column, and one for each action column."""
        return len(self.states.numeric) + len(self.actions.categories)

    @property
    def n_variances(self) -> int:
        """Number of variances, which is three.

        They are the variances of the trend, of the deviations from it, and of the part of the reward that does not
        depend on the action.
        """
        return 3

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """Prior means of the loadings (parameters that may be negative): none in this family."""
        return ()

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """Largest allowed absolute values of the loadings (parameters that may be negative): none in this family."""
        return ()

    def kernel(self, parameters: Tensor) -> CategoryKernel:
        """Return the kernel with parameters (p,): logarithms of the lengthscales, then of the three variances."""
        trend, difference, constant = parameters[self.n_lengthscales :].exp().tolist()
        factors = category_factors(self.states, self.actions, self.profile, parameters[: self.n_lengthscales])
        return CategoryKernel(*factors, Trend(trend, difference), constant)

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances K (r, n, n) of n points for r sets of p parameters, and their pullback.

        K = ((σ₀² + δ σ₁²) φ_X + δ σ₃²) φ_C, where φ_X is the correlation of actions, and φ_C that of the states'
        numeric columns; δ is 1 for equal categories, else 0. σ₀² is the variance of the trend that all categories
        share, σ₁² that of deviations from it, and σ₃² that of the part that does not depend on the action. The pullback
        converts a gradient ∂/∂K to the gradient ∂/∂parameters (r, p).
        """
        blocks = CategoryBlocks(self.states, self.actions, self.profile, points, parameters)
        trend, difference, constant = parameters[:, self.n_lengthscales :].exp().T[..., None, None]
        matrix, pullback = blocks.covariance(trend + difference * blocks.same, constant)

        def with_variances(gradient: Tensor) -> list[Tensor]:
            lengthscales, in_table, in_constant = pullback(gradient)
            variances = [trend * in_table, difference * in_table * blocks.same]
            sums = [v.sum((-2, -1)) for v in variances]
            return [lengthscales, torch.stack([*sums, in_constant], -1)]

        return matrix, with_variances


@dataclass(frozen=True)
class MultiTaskFamily:
    """The family of multi-task kernels: the choices of every categorical state column have covariance W Wᵀ + diag(v).

    W has a row for each choice and `rank` columns. v holds a variance for each choice.
    """

    states: Columns
    actions: Columns
    profile: Profile = MATERN52
    rank: int = 2
    wide_variances: bool = False

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscales: one for each numeric state column, and one for each action column."""
        return len(self.states.numeric) + len(self.actions.categories)

    @property
    def n_variances(self) -> int:
        """Number of variances: one for each choice of each categorical state column, and one more.

        The last one is the variance of the part of the reward that does not depend on the action.
        """
        return sum(self._counts) + 1

    @property
    def typical_loadings(self) -> tuple[float, ...]:
        """Prior means of the entries of W: the same number in its first column, 0 in the others.

        W is the loading matrix of the covariance W Wᵀ + diag(v) between the choices of a categorical column.
        """
        row = (TYPICAL_LOADING, *[0.0] * (self.rank - 1))
        return row * sum(self._counts)

    @property
    def largest_loadings(self) -> tuple[float, ...]:
        """Largest allowed absolute value of each entry of W.

        W is the loading matrix of the covariance W Wᵀ + diag(v) between the choices of a categorical column.
        """
        return (LARGEST_LOADING,) * len(self.typical_loadings)

    @property
    def _counts(self) -> list[int]:
        """The number of choices of each categorical column of the state."""
        return [self.states.categories[column] for column in self.states.categorical]

    def kernel(self, parameters: Tensor) -> CategoryKernel:
        """Return the kernel with parameters (p,): logarithms of lengthscales and of variances, then the entries of W.

        W is the loading matrix of the covariance W Wᵀ + diag(v) between the choices of a categorical column.
        """
        own, constant, loadings = (part[0] for part in self._unpacked(parameters[None]))
        factors = category_factors(self.states, self.actions, self.profile, parameters[: self.n_lengthscales])
        tasks = MultiTask(loadings.split(self._counts), own.split(self._counts))
        return CategoryKernel(*factors, tasks, float(constant))

    def _unpacked(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Extract v (r, choices), σ₃² (r,) and W (r, choices, rank) from r sets of p parameters (r, p).

        The covariance of a categorical column's choices is W Wᵀ + diag(v). In v and W, the choices of all categorical
        columns are concatenated. σ₃² is the variance of the part of the reward that does not depend on the action.
        """
        choices = sum(self._counts)
        rest = parameters[:, self.n_lengthscales :]
        loadings = rest[:, choices + 1 :].unflatten(1, (choices, self.rank))
        return rest[:, :choices].exp(), rest[:, choices].exp(), loadings

    def covariance(self, parameters: Tensor, points: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances K (r, n, n) of n points for r sets of p parameters, and their pullback.

        K = (T φ_X + δ σ₃²) φ_C, where T is the product over categorical columns of W Wᵀ + diag(v), the covariance of
        the column's choices. φ_X is the correlation of actions, and φ_C that of the states' numeric columns. δ is 1 for
        equal categories, else 0, and σ₃² is the variance of the part that does not depend on the action. The pullback
        converts a gradient ∂/∂K to the gradient ∂/∂parameters (r, p).
        """
        blocks = CategoryBlocks(self.states, self.actions, self.profile, points, parameters)
        own, constant, loadings = self._unpacked(parameters)
        first = torch.tensor([0, *self._counts[:-1]], device=points.device).cumsum(0)
        choices = blocks.choices + first  # (n, columns), numbered consecutively over all columns
        columns = [
            (w @ w.mT + same * own[:, c, None], w, same, c)
            for c in choices.unbind(-1)
            for w, same in [(loadings[:, c], same_choices(c[:, None], c[:, None]))]
        ]
        table = torch.stack([part for part, *_ in columns]).prod(0)
        matrix, pullback = blocks.covariance(table, constant[:, None, None])

        def with_tasks(gradient: Tensor) -> list[Tensor]:
            lengthscales, in_table, in_constant = pullback(gradient)
            in_own, in_loadings = torch.zeros_like(own), torch.zeros_like(loadings)
            for place, (_, w, same, c) in enumerate(columns):
                in_part = in_table
                for other, (part, *_) in enumerate(columns):
                    in_part = in_part if other == place else in_part * part
                in_own.index_add_(1, c, (in_part * same).sum(-1))
                in_loadings.index_add_(1, c, 2 * in_part @ w)
            return [lengthscales, in_own * own, in_constant[:, None], in_loadings.flatten(1)]

        return matrix, with_tasks


def category_factors(
    states: Columns, actions: Columns, profile: Profile, log_lengthscales: Tensor
) -> tuple[Factor, Factor]:
    """Return the two factors of a `CategoryKernel`, one for states and one for actions.

    `log_lengthscales` holds one logarithm for each numeric state column, then one for each action column.
    """
    numbers = list(states.numeric)
    of_states = log_lengthscales.new_ones(len(states.categories))
    of_states[numbers] = log_lengthscales[: len(numbers)].exp()
    return Factor(states, of_states, profile), Factor(actions, log_lengthscales[len(numbers) :].exp(), profile)


class CategoryBlocks:
    """The building blocks of kernels for states with categories: correlations between n points.

    φ_X correlates actions, φ_C correlates the states' numeric columns, and δ is 1 for equal categories, else 0.
    """

    def __init__(self, states: Columns, actions: Columns, profile: Profile, points: Tensor, parameters: Tensor) -> None:
        d_s, numbers = len(states.categories), list(states.numeric)
        k, d_x = len(numbers), len(actions.categories)
        self._x = Block(Features(actions, profile, points[:, d_s:], parameters[:, k : k + d_x]), profile)
        of_numbers = Features(Columns((0,) * k), profile, points[:, numbers], parameters[:, :k])
        self._c = Block(of_numbers, profile) if k else None
        self.choices = states.choices(points[:, :d_s])  # (n, categorical columns)
        self.same = same_choices(self.choices, self.choices)

    def covariance(self, table: Tensor, constant: Tensor) -> tuple[Tensor, Pullback]:
        """Return covariances K (r, n, n) of n points for r kernels, and their pullback.

        K = (table φ_X + δ constant) φ_C, where φ_X is the correlation of actions, φ_C that of the states' numeric
        columns, and δ is 1 for equal categories, else 0. `table` (r, n, n) is the covariance of categories, and
        `constant` (r, 1, 1) the variance of the part that does not depend on the action. The pullback converts a
        gradient ∂/∂K to gradients with respect to the log-lengthscales, the table and the logarithm of the constant.
        """
        x, c = self._x, self._c
        inner = table * x.value + constant * self.same

        def pullback(gradient: Tensor) -> list[Tensor]:
            weighted = gradient if c is None else gradient * c.value
            lengthscales = x.pullback(weighted * table * x.slope)
            if c is not None:
                lengthscales = torch.cat([c.pullback(gradient * inner * c.slope), lengthscales], -1)
            return [lengthscales, weighted * x.value, (constant * weighted * self.same).sum((-2, -1))]

        return inner if c is None else inner * c.value, pullback
