"""Stationary correlations (profiles) as functions of a distance, with their derivatives and spectral densities.

A profile is a function φ of the Euclidean distance r between scaled inputs a and b, which are inputs divided by their
lengthscales and multiplied by the profile's `unit`.  The gradient of φ with respect to a is -ψ (a-b), and its Hessian
is -ψ I + χ (a-b)(a-b)ᵀ, with ψ = -φ'/r and χ = -ψ'/r.

The same formulas are in `loops/profiles.py` for the compiled loops and in `reports/profiles.js` for the report's page;
tests compare the three.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, TypeAlias

import torch
from torch import Tensor

from conbo.errors import SettingError

Tables: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]  # r² → φ, ψ, χ
Spectrum: TypeAlias = Callable[[int, int, torch.Generator], Tensor]  # input dimensions f, n, generator → (f, n)


@dataclass(frozen=True)
class Profile:
    """A stationary correlation φ(r), such as Matérn-5/2, as a function of the distance r between scaled inputs.

    Scaled inputs are inputs divided by their lengthscales and multiplied by `unit`. The gradient of φ(‖a - b‖) with
    respect to a is -ψ (a-b), and the Hessian is -ψ I + χ (a-b)(a-b)ᵀ, with ψ = -φ'/r and χ = -ψ'/r.

    Parameters
    ----------
    name
        Name in stored settings and saved policies.
    tables
        A function from squared distances r² to φ, ψ and χ, elementwise.
    unit
        The distance r between inputs that are one lengthscale apart.
    spectrum
        Draws n frequencies from the spectral density: ``spectrum(features, n, generator)`` returns a tensor
        (features, n), where `features` is the number of input dimensions. With it, sample paths are drawn by random
        Fourier features; without it, by the Nyström method.

    Raises
    ------
    SettingError
        If the name is empty or "auto", or the unit is not positive.

    Examples
    --------
    >>> import torch
    >>> from conbo.models.profiles import Profile, squared_exponential
    >>> Profile("mine", squared_exponential).value(torch.zeros(1))
    tensor([1.])
    """

    name: str
    tables: Tables = field(repr=False)
    unit: float = 1.0
    spectrum: Spectrum | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name == "auto":
            raise SettingError(f"`name` of a profile must be a string other than 'auto', but got {self.name!r}.")
        if not self.unit > 0:
            raise SettingError(f"`unit > 0` must hold for a profile, but got unit={self.unit!r}.")

    @property
    def built_in(self) -> bool:
        """Whether the profile is one of `PROFILES`, which the compiled loops and the report's page can compute."""
        known = PROFILES.get(self.name)
        return known is not None and (known.tables, known.unit) == (self.tables, self.unit)

    def value(self, squared_distance: Tensor) -> Tensor:
        """Compute the correlation φ at given squared distances.

        Parameters
        ----------
        squared_distance
            Squared distances r² between scaled inputs. This tensor may be overwritten.

        Returns
        -------
        Tensor
            φ, elementwise.
        """
        if squared_distance.requires_grad:
            differentiable: Tensor = _Correlation.apply(squared_distance, self.tables)  # type: ignore[no-untyped-call]
            return differentiable
        return _matern52_in_place(squared_distance) if self.tables is matern52 else self.tables(squared_distance)[0]

    def frequencies(self, features: int, n: int, generator: torch.Generator) -> Tensor:
        """Draw frequencies from the spectral density.

        Parameters
        ----------
        features
            Number of input dimensions.
        n
            Number of frequencies.
        generator
            Source of all randomness.

        Returns
        -------
        Tensor
            The frequencies (features, n).

        Raises
        ------
        SettingError
            If the profile has no `spectrum`.
        """
        if self.spectrum is None:
            raise SettingError(
                f"functions can be drawn only if the profile has a `spectrum`, but {self.name!r} has none."
            )
        return self.spectrum(features, n, generator)


class _Correlation(torch.autograd.Function):
    """The correlation φ as a function of the squared distance r² between scaled inputs, for autograd.

    The derivative with respect to r² is -ψ/2, with ψ = -φ'/r. It is finite at r = 0, where autograd could not
    differentiate the square root of r².
    """

    @staticmethod
    def forward(context: Any, squared_distance: Tensor, tables: Tables) -> Tensor:
        value, psi, _ = tables(squared_distance)
        context.save_for_backward(psi)
        return value

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (psi,) = context.saved_tensors
        return -0.5 * psi * gradients[0], None


def matern52(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Matérn-5/2 correlation φ, ψ = -φ'/r and χ = -ψ'/r, elementwise, as functions of r².

    `squared_distance` holds r², where r is √5 times the distance between inputs that are divided by their lengthscales.
    """
    r = squared_distance.sqrt()
    decay = torch.exp(-r)
    third, start = decay / 3, 1 + r
    return (start + squared_distance / 3) * decay, start * third, third


def _matern52_in_place(squared_distance: Tensor) -> Tensor:
    """Return the Matérn-5/2 correlation as a function of r², elementwise, and overwrite the memory of the argument.

    `squared_distance` holds r², where r is √5 times the distance between inputs that are divided by their lengthscales.
    """
    r = squared_distance.sqrt()
    polynomial = squared_distance.div_(3).add_(r).add_(1)
    return r.neg_().exp_().mul_(polynomial)


def matern52_spectrum(features: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw n frequencies (features, n) from the spectral density of the Matérn-5/2 correlation.

    They are draws from a multivariate t distribution with 5 degrees of freedom, divided by √5. `features` is the number
    of input dimensions.
    """
    normal = _normal(generator, features, n)
    return normal / _normal(generator, 5, n).square().sum(0).sqrt()


def squared_exponential(squared_distance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the squared-exponential correlation φ, ψ = -φ'/r and χ = -ψ'/r as functions of r²; all three are equal.

    `squared_distance` holds r², where r is the distance between inputs that are divided by their lengthscales.
    """
    value = torch.exp(-squared_distance / 2)
    return value, value, value


def squared_exponential_spectrum(features: int, n: int, generator: torch.Generator) -> Tensor:
    """Draw n frequencies (features, n) from the spectral density of the squared-exponential correlation.

    They are standard normal. `features` is the number of input dimensions.
    """
    return _normal(generator, features, n)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


MATERN52 = Profile("matern52", matern52, sqrt(5.0), matern52_spectrum)
SQUARED_EXPONENTIAL = Profile("squared-exponential", squared_exponential, 1.0, squared_exponential_spectrum)
PROFILES: dict[str, Profile] = {profile.name: profile for profile in (MATERN52, SQUARED_EXPONENTIAL)}


def profile_of(profile: str | Profile) -> Profile:
    """Look up a built-in profile by its name.

    A profile is a stationary correlation as a function of the distance between scaled inputs.

    Parameters
    ----------
    profile
        A name; or a profile, which is returned unchanged.

    Returns
    -------
    Profile
        The profile.

    Raises
    ------
    SettingError
        If the name is unknown.

    Examples
    --------
    >>> from conbo.models.profiles import profile_of
    >>> profile_of("matern52").unit
    2.23...
    """
    if not isinstance(profile, str):
        return profile
    if profile not in PROFILES:
        raise SettingError(f"`profile` must be one of {', '.join(PROFILES)}, but got {profile!r}.")
    return PROFILES[profile]
