"""The gain in utility of an evaluation, where actions must satisfy learned constraints.

The utility U of an action averages two cases.  With probability P, the action satisfies the constraints and earns its
expected reward μ.  Otherwise, it earns only M, the lowest expected reward of any action in the state.  The gain of an
evaluation in a state is the expected rise of the largest utility, from Uⁿ before the evaluation to Uⁿ⁺¹ after it:

    U(x') = M + (μ(x') - M) P(x'),      gain = E[max_x' Uⁿ⁺¹(x')] - max_x' Uⁿ(x')

A slack is the amount by which an outcome satisfies its constraint; slacks are standardized.

==========  ====================  =====================================================================
symbol      here                  meaning
==========  ====================  =====================================================================
M           ``worst``             lowest expected reward of the state, over a pool of actions
μ + σ̃ z     ``mean``, ``slope``   expected reward after the evaluation, z ~ N(0, 1)
m + τ̃ ζ     ``mean``, ``slope``   expected slack of a constraint after the evaluation, ζ ~ N(0, 1)
v, v - τ̃²   ``variance``          variance of this slack before and after the evaluation
t           ``threshold``         standardized value of a slack of zero
P(ζ)        ``feasible``          Π Φ((m + τ̃ ζ - t) / √(v - τ̃²)), the probability of satisfying all constraints
==========  ====================  =====================================================================

Given the ζ of all constraints, (μ + σ̃ z - M) P is a line in z for every action, and the expected maximum of these
lines is computed exactly.  The expectation over ζ is approximated by a mean over a few quasi-random values, the
fantasies.  The current utility is a mean over the same fantasies, so gains are never negative.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from conbo.acquisition.expected_max import expected_max
from conbo.learned_constraints import inverse_mills

LEAST_VARIANCE = 1e-10  # least variance of a standardized slack after the evaluation


@dataclass(frozen=True)
class MeansAhead:
    """Posterior means of the reward, or of a constraint's slack, if one of k candidates is evaluated.

    There are q actions in each of m states. After the evaluation, a posterior mean is `mean` + `slope` z, where
    z ~ N(0, 1) is the standardized observation at the candidate. A slack is the amount by which an outcome satisfies
    its constraint.
    """

    mean: Tensor  # (k, m, q)
    slope: Tensor  # (k, m, q)


@dataclass(frozen=True)
class SlackAhead:
    """The posterior of a constraint's standardized slack, at q actions in each of m states, after one more evaluation.

    A slack is the amount by which an outcome satisfies its constraint. The evaluation is at one of k candidates. After
    it, the posterior mean of a slack is `mean` + `slope` ζ, and its variance is `variance` - `slope`².
    Here, ζ ~ N(0, 1) is the standardized observation of the slack at the candidate.
    """

    mean: Tensor  # (k, m, q)
    slope: Tensor  # (k, m, q)
    variance: Tensor  # (k, m, q), before the evaluation
    threshold: float  # slack of an action that just satisfies the constraint


@dataclass(frozen=True)
class GainWithDerivatives:
    """Constrained knowledge gradients of k candidates in m states, with their derivatives.

    A slack is the amount by which an outcome satisfies its constraint. After an evaluation, the posterior means of
    reward and slacks are linear functions of the standardized observation. The derivatives are with respect to the
    slopes of these functions, at q actions per state.
    """

    values: Tensor  # (k, m)
    before: Tensor  # (k, m), the highest utility before the evaluation
    reward: Tensor  # (k, m, q), with respect to the slopes of the rewards
    constraints: list[Tensor]  # for each constraint (k, m, q), with respect to the slopes of its slacks


def gain_of(
    reward: MeansAhead, worst: Tensor, slacks: list[SlackAhead], allowed: Tensor | None, fantasies: Tensor
) -> GainWithDerivatives:
    """Return how much an evaluation is expected to raise the highest utility of each state, with derivatives.

    The utility of an action is p · (expected reward) + (1 - p) · `worst`, where p is the probability that the action
    satisfies the constraints.  The highest utility is the maximum over q actions.  There are k candidates for the
    evaluation, and m states for each.  Derivatives are with respect to the slopes of `reward` and `slacks`.

    Parameters
    ----------
    reward, slacks
        The expected reward, and the slack of each constraint, after the evaluation.  A slack is the amount by which an
        outcome satisfies its constraint.
    worst
        The lowest expected reward (k, m) of each state, over a pool of actions.
    allowed
        Zero for actions (k, m, q) that violate a known limit, and one for others; None if there are no known limits.
    fantasies
        f draws (f, constraints) of the standardized observations of the slacks; the gain is a mean over these draws.
    """
    height, fantasies = reward.mean - worst[..., None], fantasies.to(reward.mean)
    log_feasible, rises = height.new_zeros(*height.shape[:2], len(fantasies), height.shape[2]), []  # (k, m, f, q)
    for slack, zeta in zip(slacks, fantasies.T[:, :, None], strict=True):
        variance = slack.variance - slack.slope.square()
        left = variance.clamp_min(LEAST_VARIANCE)[:, :, None]
        slope = slack.slope[:, :, None]
        margin = (slack.mean[:, :, None] + slope * zeta - slack.threshold) / left.sqrt()
        log_cdf = torch.special.log_ndtr(margin)
        shrinks = torch.where(variance[:, :, None] > LEAST_VARIANCE, margin * slope / left, 0.0)
        rises.append(inverse_mills(margin, log_cdf) * (zeta / left.sqrt() + shrinks))  # ∂ log P / ∂ τ̃
        log_feasible = log_feasible + log_cdf
    feasible = log_feasible.exp()
    if allowed is not None:
        feasible = feasible * allowed[:, :, None]
    value = height[:, :, None] * feasible
    lines = expected_max(value, reward.slope[:, :, None] * feasible)
    before = value.mean(2)  # (k, m, q)
    now, best = before.max(-1, keepdim=True)
    values = lines.gain.mean(-1) + (value.amax(-1).mean(-1) - now[..., 0]).clamp_min(0)
    steep = (lines.probability * height[:, :, None] + lines.density * reward.slope[:, :, None]) * feasible
    present = torch.zeros_like(before).scatter(-1, best, 1.0)[:, :, None] * value
    return GainWithDerivatives(
        values,
        worst + now[..., 0],
        (lines.density * feasible).mean(2),
        [((steep - present) * rise).mean(2) for rise in rises],
    )
