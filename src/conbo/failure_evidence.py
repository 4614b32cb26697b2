"""Decides whether evaluations fail at certain points, or by accident.

Successes and failures are predicted by a model and by the rate of successes.  How much better the model is can be
measured in two ways.  If its hyperparameters were fitted to the very trials that it predicts, the result is too high: a
fit to a handful of failures explains them even if they happened at random.  If it is fitted again without these trials,
the result is too low, because it knows less.  The decision rests on the mean of both.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from conbo.learned_constraints import LearnedConstraint
from conbo.observations import Observations

# Nats by which the model must predict successes and failures better than the rate of successes does.  Otherwise
# failures are taken for accidents: flaky simulators and mended mistakes would keep the policy away from good actions.
ACCIDENT_MARGIN = 3.0
CERTAIN = 30.0  # nats that fitted hyperparameters do not gain by chance: no model is fitted again to confirm them
FOLDS = 5  # number of groups of trials, each of which is predicted by a model that is fitted to all others
MANY = 100  # number of trials above which there are only two groups, because fits take longer and half of them suffice
LEAST_CHANCE = 0.05  # probabilities of success and failure that are predicted are at least this

Fit: TypeAlias = Callable[[Observations], LearnedConstraint]


def depend_on_point(success: LearnedConstraint, labels: Observations, fit: Fit) -> bool:
    """Return whether failures depend on the point, because a model predicts them clearly better than their rate does.

    The rewards of `labels` are one number for every success and a lower one for every failure.  `fit` returns the model
    of such labels, and `success` is the model of all of them.  Models are fitted again, without a part of the labels,
    only if `success` itself predicts the labels that it was fitted to well enough, but not so well that there is no
    doubt.
    """
    high = gain_of_left_out(success)
    if not ACCIDENT_MARGIN < high <= CERTAIN:
        return high > CERTAIN
    return (high + gain_of_refitted(labels, fit)) / 2 > ACCIDENT_MARGIN


def gain_of_left_out(success: LearnedConstraint) -> float:
    """Return by how many nats a model predicts successes and failures better than the rate of successes does.

    Each label is predicted from all others, but with hyperparameters that were fitted to all labels, which makes the
    result too high.  It is 0 if the labels are all equal, or if the model has no leave-one-out predictions.
    """
    labels, left_out = success.observations.rewards, success.posterior.leave_one_out()
    worst, best = labels.aminmax()
    if left_out is None or not best > worst:
        return 0.0
    succeeded, n = labels == best, len(labels)
    rate = _rate(succeeded.sum() - succeeded.to(labels), n - 1)
    return _gain((labels - left_out[0] - worst) / (best - worst), rate, succeeded)


def gain_of_refitted(labels: Observations, fit: Fit) -> float:
    """Return by how many nats models predict successes and failures better than the rate of successes does.

    The labels are divided into groups.  Each group is predicted from all others, by a model that is fitted to them.
    The result is too low, because these models know fewer labels.
    """
    highest = labels.rewards.max()
    folds = FOLDS if len(labels) <= MANY else 2
    group = torch.arange(len(labels), device=labels.points.device) % folds
    gain = 0.0
    for k in range(folds):
        known, asked = _rows(labels, group != k), _rows(labels, group == k)
        succeeded = known.rewards == highest
        if bool(succeeded.all()) or not bool(succeeded.any()):
            continue  # there is no model of equal labels
        model = fit(known)
        worst, best = model.observations.rewards.aminmax()
        chance = (model.posterior.mean(asked.points) - worst) / (best - worst)
        rate = _rate(succeeded.to(chance).sum(), len(known)).expand_as(chance)
        gain += _gain(chance, rate, asked.rewards == highest)
    return gain


def _rows(labels: Observations, chosen: Tensor) -> Observations:
    """Return the labels whose flags (n,) in `chosen` are true."""
    return Observations(labels.points[chosen], labels.rewards[chosen], pending=labels.pending)


def _rate(successes: Tensor, n: int) -> Tensor:
    """Return the rate of successes, with one more success and one more failure, so that nothing is impossible."""
    return (successes + 1) / (n + 2)


def _gain(predicted: Tensor, rate: Tensor, succeeded: Tensor) -> float:
    """Return the log-likelihood of what happened if `predicted` are the chances of success, minus that of `rate`."""
    predicted = predicted.clamp(LEAST_CHANCE, 1 - LEAST_CHANCE)
    modeled, plain = (torch.where(succeeded, chance, 1 - chance).log().sum() for chance in (predicted, rate))
    return float(modeled - plain)
