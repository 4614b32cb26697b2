"""The shape of the posterior density of hyperparameters around one of its local maxima."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Peak:
    """Laplace's approximation at a mode θ of the parameters: a normal distribution, N(θ, H⁻¹).

    H holds the negated second derivatives of the log posterior density at θ. The log evidence is the log-density at θ
    plus `log_volume` = ½ log |2π H⁻¹| + aᵀθ + ½ aᵀH⁻¹a. The terms with a come from a Jacobian, because most priors are
    densities of exp(parameter): a is 1 for such parameters and 0 for others. In the last term, a is 0 for the noise
    level, too, because the log-density as a function of this level is far from quadratic. With heteroscedastic noise,
    `log_volume` also includes the constant that normalizes the prior of the slopes, which the log-density lacks.
    """

    mean: float  # the constant mean of the rewards
    log_volume: float  # ½ log |2π H⁻¹| + aᵀθ + ½ aᵀH⁻¹a at the mode θ, which Laplace's method adds to the log-density
    curvature: Tensor  # H (p, p), made positive definite
    gain: float  # nats by which a Newton step from θ promises to raise the log-density; 0 at a mode
