"""Settings for P[s], the distribution of the states, in the user's units; `bound_states.py` applies them to a space.

| recipe             | meaning                                                                             |
|--------------------|-------------------------------------------------------------------------------------|
| Uniform            | uniform on the parameter's scale: log-uniform if the parameter has `log=True`       |
| Triangular, Normal | a density of the value itself, even on a log scale, truncated to the range          |
| Weights            | a probability for every listed value, zero for the others                           |
| Product            | independent parameters, each with one of the above                                  |
| Density            | a function of the whole state, proportional to its density or probability           |

For an integer parameter, Uniform, Triangular and Normal cover [low - 1/2, high + 1/2], and their values are rounded to
integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from conbo.errors import SpaceError
from conbo.spaces import Point, Value
from conbo.values import is_finite_number


@dataclass(frozen=True)
class Uniform:
    """A uniform distribution on the parameter's scale, which is log-uniform if the parameter has ``log=True``.

    Examples
    --------
    >>> study = conbo.Study(space, state_distribution={"demand": conbo.Uniform()})
    """


@dataclass(frozen=True)
class Triangular:
    """A density that rises linearly from the parameter's lower bound to the mode, then falls linearly to the upper one.

    Parameters
    ----------
    mode
        The most probable value; by default the center of the range.

    Raises
    ------
    SpaceError
        If the mode is not a finite number; when a study is created, also if it is out of range.

    Examples
    --------
    >>> study = conbo.Study(space, state_distribution={"demand": conbo.Triangular(30)})
    """

    mode: float | None = None

    def __post_init__(self) -> None:
        if self.mode is not None and not is_finite_number(self.mode):
            raise SpaceError(f"`mode` must be a finite number, but got mode={self.mode!r}.")


@dataclass(frozen=True)
class Normal:
    """A normal distribution, truncated to the parameter's range.

    Parameters
    ----------
    mean
        Mean before truncation; it may be out of range.
    sd
        Standard deviation before truncation.

    Raises
    ------
    SpaceError
        If a value is not finite or `sd` is not positive; when a study is created, also if `mean` is more than 30 `sd`
        out of range, or `sd` is below 1e-12 or above 1e6 times the width of the range.

    Examples
    --------
    >>> study = conbo.Study(space, state_distribution={"demand": conbo.Normal(50, 15)})
    """

    mean: float
    sd: float

    def __post_init__(self) -> None:
        if not is_finite_number(self.mean):
            raise SpaceError(f"`mean` must be a finite number, but got mean={self.mean!r}.")
        if not is_finite_number(self.sd) or not self.sd > 0:
            raise SpaceError(f"`0 < sd < inf` must hold, but got sd={self.sd!r}.")


@dataclass(frozen=True)
class Weights:
    """Relative weights of the values of an Integer or Categorical parameter.

    Parameters
    ----------
    weights
        Weights by value; they need not sum to 1. A value that is not listed has probability zero.

    Raises
    ------
    SpaceError
        If a weight is negative or not finite, or all are zero; when a study is created, also if a value with a positive
        weight is not a value of the parameter.

    Examples
    --------
    >>> conbo.Weights({"weekday": 5, "weekend": 2})
    Weights(weights={'weekday': 5, 'weekend': 2})
    """

    weights: Mapping[Value, float]

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping):
            raise SpaceError(f"`weights` must be a mapping from values to weights, but got {self.weights!r}.")
        for value, weight in self.weights.items():
            if not is_finite_number(weight) or weight < 0:
                raise SpaceError(f"a weight must be finite and not negative, but got {weight!r} for {value!r}.")
        if not 0 < sum(map(float, self.weights.values())) < math.inf:
            raise SpaceError(f"weights must have a positive and finite sum, but got {dict(self.weights)!r}.")
        object.__setattr__(self, "weights", dict(self.weights))


MarginalRecipe: TypeAlias = Uniform | Triangular | Normal | Weights


@dataclass(frozen=True)
class Product:
    """A distribution P[s] of independent state parameters, each with its own distribution.

    A plain mapping from names to distributions means the same.

    Parameters
    ----------
    marginals
        Uniform, Triangular, Normal or Weights, by the name of the state parameter. Parameters that are not named are
        uniform.

    Raises
    ------
    SpaceError
        If a distribution is none of these; when a study is created, also if a name is not that of a state parameter.

    Examples
    --------
    >>> study = conbo.Study(space, state_distribution=conbo.Product({"demand": conbo.Normal(50, 15)}))
    """

    marginals: Mapping[str, MarginalRecipe]

    def __post_init__(self) -> None:
        if not isinstance(self.marginals, Mapping):
            raise SpaceError(f"`marginals` must be a mapping from names to recipes, but got {self.marginals!r}.")
        for name, recipe in self.marginals.items():
            if not isinstance(recipe, Uniform | Triangular | Normal | Weights):
                rule = f"'{name}' must be distributed as Uniform, Triangular, Normal or Weights"
                raise SpaceError(f"{rule}, but got {recipe!r}.")
        object.__setattr__(self, "marginals", dict(self.marginals))


@dataclass(frozen=True)
class Density:
    """A distribution P[s] given by a density of the whole state.

    A plain function that is passed as `state_distribution` is treated as ``Density(function)``.

    Random states are drawn in the first of these ways that applies:

    1. by the `sampler`, if there is one;
    2. from the list of all states, if there are at most 100,000;
    3. by rejection sampling, if there is a `bound`;
    4. from a fixed pool of Sobol points, in proportion to their densities.

    Parameters
    ----------
    function
        ``function(state)`` returns the density of a state, up to a constant factor. It is a density with respect to
        Real parameters, in the user's units, and a probability with respect to Integer and Categorical ones.
    sampler
        ``sampler(generator, n)`` returns n states that follow the density.
    bound
        A number that the function never exceeds, for rejection sampling. If less than a thousandth of the proposed
        states would be accepted, it is refused.

    Raises
    ------
    SpaceError
        If the function is not callable, or the bound is not positive and finite. When states are needed, such as when a
        study is created: if the function raises an exception or returns a value that is negative, not finite or above
        the bound; if its integral is zero; if the bound is too loose; or if the sampler does not return n states.

    Examples
    --------
    >>> rush_hours = conbo.Density(lambda state: 2.0 if 40 < state["demand"] < 60 else 1.0)
    >>> study = conbo.Study(space, state_distribution=rush_hours)
    """

    function: Callable[[dict[str, Value]], float]
    sampler: Callable[[np.random.Generator, int], Sequence[Point]] | None = None
    bound: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise SpaceError(f"`function` must be callable, but got {self.function!r}.")
        if self.sampler is not None and not callable(self.sampler):
            raise SpaceError(f"`sampler` must be callable, but got {self.sampler!r}.")
        if self.bound is not None and not (is_finite_number(self.bound) and self.bound > 0):
            raise SpaceError(f"`0 < bound < inf` must hold, but got bound={self.bound!r}.")


Recipe: TypeAlias = MarginalRecipe | Product | Density
RecipeLike: TypeAlias = Recipe | Mapping[str, MarginalRecipe] | Callable[[dict[str, Value]], float] | None
