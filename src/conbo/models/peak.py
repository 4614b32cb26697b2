"""The shape of the posterior density of hyperparameters around one of its local maxima."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Peak:
    """Laplace's approximation of the hyperparameters' posterior at a mode θ: the normal distribution N(θ, H⁻¹).

    H is the negated Hessian of the log posterior density at θ. The log evidence is this log-density at θ plus

        `log_volume` = ½ log |2π H⁻¹| + aᵀθ + ½ aᵀH⁻¹a.

    The vector `a` has a 1 for each parameter whose prior is a density of exp(parameter), and a 0 for all other
    parameters. The log Jacobian that converts these priors to densities of the parameters themselves is aᵀθ. The term
    ½ aᵀH⁻¹a accounts for the change of this log Jacobian around θ. In this term, the entry of `a` for the noise level
    is 0, because the log-density is far from quadratic in the noise level. With heteroscedastic noise, `log_volume`
    also includes a constant that normalizes the prior of the slopes of the noise's log-variance.
    """

    mean: float  # the constant mean of the rewards
    log_volume: float  # ½ log |2π H⁻¹| + aᵀθ + ½ aᵀH⁻¹a at the mode θ, which Laplace's method adds to the log-density
    curvature: Tensor  # H (p, p), made positive definite
    gain: float  # nats by which a Newton step from θ promises to raise the log-density; 0 at a mode
