"""The shape of the posterior density of hyperparameters around one of its local maxima."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Peak:
    """Laplace's approximation of the hyperparameters' posterior at a mode θ: the normal distribution N(θ, H⁻¹).

    H is the negated Hessian of the log posterior density at θ. The log evidence is this log-density at θ plus

        `log_volume` = ½ log |2π H⁻¹| + aᵀθ + ½ aᵀH⁻¹a.

    The vector a has a 1 for each parameter whose prior is a density of exp(parameter), and a 0 for each other one. So
    the log Jacobian, which turns these priors into densities of the parameters, is aᵀθ at θ. The last term is due to
    its change around θ. In this term, a also has a 0 for the noise level, in which the log-density is far from
    quadratic. With heteroscedastic noise, `log_volume` includes another constant, which the log-density lacks: the one
    that normalizes the prior of the slopes of the noise's log-variance.
    """

    mean: float  # the constant mean of the rewards
    log_volume: float  # ½ log |2π H⁻¹| + aᵀθ + ½ aᵀH⁻¹a at the mode θ, which Laplace's method adds to the log-density
    curvature: Tensor  # H (p, p), made positive definite
    gain: float  # nats by which a Newton step from θ promises to raise the log-density; 0 at a mode
