"""The correlation of states, or of actions: one factor of a kernel."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from conbo.models import compiled_correlation
from conbo.models.columns import Columns, squared_distances
from conbo.models.profiles import MATERN52, Profile
from conbo.models.warp import Warp


@dataclass(frozen=True)
class Factor:
    """A stationary correlation of states, or of actions, with a lengthscale for each column and optional input warping.

    Parameters
    ----------
    columns
        How columns become features.
    lengthscales
        One lengthscale for each column (d,), in units of the unit cube.
    profile
        The correlation as a function of the distance between scaled inputs.
    warp
        Input warping; None if there is none.

    Examples
    --------
    >>> import torch
    >>> from conbo.models.columns import Columns
    >>> from conbo.models.kernels import Factor
    >>> factor = Factor(Columns((0,)), torch.tensor([0.5], dtype=torch.float64))
    >>> features = factor.scaled(torch.tensor([[0.2], [0.2]], dtype=torch.float64))
    >>> float(factor.correlation(features, features)[0, 1])
    1.0
    """

    columns: Columns
    lengthscales: Tensor  # (d,)
    profile: Profile = MATERN52
    warp: Warp | None = None

    @cached_property
    def feature_scales(self) -> Tensor:
        """Multipliers (width,) that turn features into scaled inputs.

        Each is the profile's constant `unit`, divided by the lengthscale of the column that the feature comes from.
        """
        return self.profile.unit / self.lengthscales[list(self.columns.owner)]

    @cached_property
    def box(self) -> tuple[Tensor, Tensor, Tensor]:
        """Three tensors (width,): lower bounds, upper bounds and flags, one of each for every scaled input.

        The flag is true if the input comes from a numeric column. Searches change only these inputs.
        """
        upper = self.feature_scales
        free = torch.zeros(len(upper), dtype=torch.bool, device=upper.device)
        free[list(self.columns.numeric_features)] = True
        return torch.zeros_like(upper), upper, free

    def scaled(self, points: Tensor) -> Tensor:
        """Turn points into scaled inputs, whose distances determine the correlation.

        The method warps the points, turns their columns into features (see `Columns`), divides every feature by the
        lengthscale of its column, and multiplies it by `unit`, a constant of the profile.

        Parameters
        ----------
        points
            Unit-cube points (..., d).

        Returns
        -------
        Tensor
            Scaled inputs (..., width).
        """
        warped = points if self.warp is None else self.warp(points)
        return self.columns.features(warped) * self.feature_scales

    def unscaled(self, features: Tensor) -> Tensor:
        """Turn scaled inputs back into points.

        Parameters
        ----------
        features
            Scaled inputs (..., width). They may belong to points outside the unit cube, which are clamped to it.

        Returns
        -------
        Tensor
            Unit-cube points (..., d).
        """
        warped = self.columns.points(features / self.feature_scales).clamp(0, 1)
        return warped if self.warp is None else self.warp.inverse(warped)

    def in_unit_cube(self, gradient: Tensor, features: Tensor) -> Tensor:
        """Convert gradients with respect to scaled inputs (..., width) into gradients with respect to points (..., d).

        `features` (..., width) are the scaled inputs at which the gradients were taken. The results are zero in
        categorical columns.
        """
        gradient = gradient * self.feature_scales
        if self.columns.categorical:
            by_column = gradient.new_zeros(*gradient.shape[:-1], len(self.columns.categories))
            by_column[..., list(self.columns.numeric)] = gradient[..., list(self.columns.numeric_features)]
            gradient = by_column
        return gradient if self.warp is None else gradient * self.warp.slope(self.unscaled(features))

    def tables(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the correlation φ between points, and two quantities ψ and χ, which give the derivatives of φ.

        For two points with scaled inputs a and b, the gradient of φ with respect to a is -ψ (a-b), and the Hessian is
        -ψ I + χ (a-b)(a-b)ᵀ.

        Parameters
        ----------
        a, b
            Scaled inputs of p and q points: (..., p, width) and (..., q, width).

        Returns
        -------
        tuple of Tensor
            φ, ψ and χ (..., p, q).
        """
        return self.profile.tables(squared_distances(a, b))

    def correlation(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute the correlation φ between points, given as scaled inputs.

        Parameters
        ----------
        a, b
            Scaled inputs of p and q points: (..., p, width) and (..., q, width).

        Returns
        -------
        Tensor
            Correlations (..., p, q).
        """
        if compiled_correlation.handles(self.profile, a, b):
            return compiled_correlation.correlation(self.profile.name, a, b)
        return self.profile.value(squared_distances(a, b))

    def record(self) -> dict[str, Any]:
        """Describe lengthscales and input warping by plain values.

        Returns
        -------
        dict
            `lengthscales`, and `warp` if there is input warping.
        """
        record: dict[str, Any] = {"lengthscales": self.lengthscales.tolist()}
        if self.warp is not None:
            record["warp"] = {"log_a": self.warp.log_a.tolist(), "log_b": self.warp.log_b.tolist()}
        return record

    def to(self, device: torch.device) -> "Factor":
        """Return a copy with its tensors on another device."""
        warp = None if self.warp is None else self.warp.to(device)
        return replace(self, lengthscales=self.lengthscales.to(device), warp=warp)
