"""How columns of the unit cube become features of a kernel: numbers stay as they are, categories become one-hot."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import TypeAlias

import torch
from torch import Tensor

Features: TypeAlias = tuple[Tensor, Tensor]  # scaled inputs of p points: states (..., p, ·), actions (..., p, ·)


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Return squared distances |a_i - b_j|² (..., p, q) between p points a (..., p, d) and q points b (..., q, d)."""
    lengths = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return torch.sub(lengths, a @ b.mT, alpha=2).clamp_min_(0)


@dataclass(frozen=True)
class Columns:
    """How the columns of states, or of actions, become features (inputs) of a kernel.

    A numeric column is a feature itself. A column with c choices becomes c one-hot features, divided by √2, so that two
    different choices have distance one.

    Parameters
    ----------
    categories
        Number of choices of each column, 0 for a numeric column.
    coded
        Whether a categorical column becomes one feature, the index of its choice, instead of one-hot features. Kernels
        that look up the covariance of two choices in a table need this.

    Examples
    --------
    >>> from conbo.models.columns import Columns
    >>> Columns((0, 3)).width
    4
    """

    categories: tuple[int, ...]
    coded: bool = False

    def _width(self, count: int) -> int:
        return 1 if self.coded else max(count, 1)

    @property
    def width(self) -> int:
        """Number of features that encode the columns."""
        return len(self.owner)

    @cached_property
    def owner(self) -> tuple[int, ...]:
        """The index of the column from which each feature comes."""
        return tuple(c for c, count in enumerate(self.categories) for _ in range(self._width(count)))

    @cached_property
    def numeric(self) -> tuple[int, ...]:
        """The indices of the numeric columns."""
        return tuple(c for c, count in enumerate(self.categories) if count == 0)

    @cached_property
    def categorical(self) -> tuple[int, ...]:
        """The indices of the categorical columns."""
        return tuple(c for c, count in enumerate(self.categories) if count)

    @cached_property
    def numeric_features(self) -> tuple[int, ...]:
        """The indices of the features that come from numeric columns."""
        return tuple(f for f, c in enumerate(self.owner) if self.categories[c] == 0)

    def choices(self, points: Tensor) -> Tensor:
        """Look up the choices of the categorical columns.

        Parameters
        ----------
        points
            Unit-cube points (..., d).

        Returns
        -------
        Tensor
            The index of the choice in each categorical column, counted from 0: (..., categorical columns).
        """
        columns = list(self.categorical)
        counts = torch.tensor([self.categories[c] for c in columns], dtype=torch.long, device=points.device)
        return (points[..., columns] * counts).long().clamp_min(0).minimum(counts - 1)

    def features(self, points: Tensor) -> Tensor:
        """Turn points into features.

        Parameters
        ----------
        points
            Unit-cube points (..., d).

        Returns
        -------
        Tensor
            Features (..., width), not yet divided by lengthscales.
        """
        if not any(self.categories):
            return points
        choices = self.choices(points)
        if self.coded:
            features = points.clone()
            features[..., list(self.categorical)] = choices.to(points.dtype)
            return features
        parts = [points[..., column, None] for column in range(len(self.categories))]
        for place, column in enumerate(self.categorical):
            one_hot = torch.nn.functional.one_hot(choices[..., place], self.categories[column])
            parts[column] = one_hot.to(points.dtype) / sqrt(2.0)
        return torch.cat(parts, -1)

    def points(self, features: Tensor) -> Tensor:
        """Turn features back into points; a category becomes the center of its interval in the unit cube.

        Parameters
        ----------
        features
            Features (..., width).

        Returns
        -------
        Tensor
            Unit-cube points (..., d).
        """
        if not any(self.categories):
            return features
        parts, start = [], 0
        for count in self.categories:
            own = features[..., start : start + self._width(count)]
            if count:
                choice = own[..., 0] if self.coded else own.argmax(-1).to(features.dtype)
                parts.append((choice + 0.5) / count)
            else:
                parts.append(own[..., 0])
            start += self._width(count)
        return torch.stack(parts, -1)


def same_choices(a: Tensor, b: Tensor) -> Tensor:
    """Return δ (..., p, q): 1 if two states have the same choices in all categorical columns, else 0.

    The choices of p and q states, as indices, are a (..., p, columns) and b (..., q, columns).
    """
    return (a[..., :, None, :] == b[..., None, :, :]).all(-1).to(torch.float64)
