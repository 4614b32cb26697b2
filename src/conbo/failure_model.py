"""The model of where evaluations fail, if failures depend on the point at all.

The model is a regression on labels: 1/2 for a success, -1/2 for a failure.  It is a Gaussian process whose mean is
positive where evaluations succeed more often than not.

Failures may also be accidents, which would keep the policy away from good actions for no reason.  So the labels are
first predicted by models with hyperparameters that are fixed beforehand, each label from all others.  Some of these
models have a single relevant parameter, the others count all parameters equally.  The evidence that failures depend on
the point is the log of the mean likelihood of these predictions, minus the log-likelihood of predictions by the rate of
successes alone.  Nothing is fitted to the labels that are predicted, so accidents seldom look like structure.

Only then are the hyperparameters fitted, starting from those that predict the labels best.  The marginal likelihood of
such labels often has modes that explain a few failures as noise.  The fit is therefore chosen by its predictions, too.
"""

from collections.abc import Iterator
from functools import partial
from math import log, sqrt

import torch
from torch import Tensor

from conbo.belief import standardization, standardized
from conbo.learned_constraints import LearnedConstraint
from conbo.models.columns import Columns
from conbo.models.exact import condition
from conbo.models.fit import Fit, restored
from conbo.models.fit_memory import FitMemory, fit_key
from conbo.models.hyperparameter_average import averaged
from conbo.models.hyperparameter_prior import LOG_LENGTHSCALE_BOUNDS
from conbo.models.kernel_families import ProductFamily
from conbo.models.log_posterior import LogPosterior
from conbo.models.modes import local_search
from conbo.models.moving import moved
from conbo.models.posterior import Posterior
from conbo.models.schedule import fitted_rewards
from conbo.models.structures import Structures
from conbo.observations import Observations
from conbo.outcome_constraints import SUCCESS
from conbo.spaces import Space

# Nats of evidence above which failures count as dependent on the point.  Accidents exceed it in about 1 of 50 cases.
ACCIDENT_MARGIN = 4.0
TRIED_LENGTHSCALES = (0.15, 0.3, 0.6)  # of a single relevant column of the unit cube; times √k for k columns
TRIED_SHARES = (0.5, 0.9)  # shares of the labels' variance that depend on the point; the rest is noise
SEARCHES = 3  # number of local searches for hyperparameters, from those that predict the labels best
MOST_LABELS = 300  # largest number of labels that are predicted and fitted, because both cost n³
LEAST_CHANCE = 0.05  # least predicted probability of what happened, unless its rate is below twice this number


def success_model(space: Space, labels: Observations, memory: FitMemory) -> LearnedConstraint | None:
    """Return the model of successes and failures; None if failures do not seem to depend on the point.

    The rewards of `labels` are 1/2 for every success and -1/2 for every failure.  The model is fitted on the schedule
    of models of rewards.  A `memory` of earlier fits saves time and does not change the result.
    """
    known = labels.to(torch.device("cpu"))
    some = thinned(known.first(fitted_rewards(len(known))))
    if not bool((some.rewards != some.rewards[:1]).any()):
        return None
    shift, scale = standardization(some.rewards)
    seen = standardized(some, shift, scale)
    family = ProductFamily(Columns(space.state_categories), Columns(space.action_categories))
    structures = Structures((family,))
    fits = memory.recall(
        fit_key([SUCCESS, family], seen.points, seen.rewards),
        lambda: best_fits(structures, seen),
        lambda made: [one.record for one in made],
        lambda records: [restored(record, structures, seen.points) for record in records],
        shared=True,
    )
    if not fits:
        return None
    every = standardized(known, shift, scale)
    device, posterior = labels.points.device, fits[0].posterior(every.points, every.rewards)
    average = partial(averaged, fits, structures, seen, every, small_noise=False)
    return LearnedConstraint(SUCCESS, moved(posterior, device), -shift / scale, every.to(device), average)


def best_fits(structures: Structures, seen: Observations) -> list[Fit]:
    """Return a list with the fit to standardized labels that predicts left-out labels best; empty for accidents.

    All fits have the only kernel family of `structures`.
    """
    (family,), points, labels = structures.plain, seen.points, seen.rewards
    tried = torch.stack(list(typical_parameters(family.n_lengthscales)))
    models = (condition(family.kernel(row[:-1]), 0.0, float(row[-1].exp()), points, labels) for row in tried)
    gains = torch.tensor([gain_of_left_out(model, labels) for model in models])
    if evidence(gains) <= ACCIDENT_MARGIN:
        return []
    starts = tried[gains.argsort(descending=True, stable=True)[:SEARCHES]]
    modes = local_search(LogPosterior(family, points, labels, "moderate"), starts)
    fits = [restored(mode.record(structures), structures, points) for mode in modes]
    return [max(fits, key=lambda fit: gain_of_left_out(fit.posterior(points, labels), labels))]


def typical_parameters(columns: int) -> Iterator[Tensor]:
    """Yield the log-hyperparameters (columns + 2,) with which labels are predicted before any are fitted.

    They are the lengthscales of all columns, the variance of the kernel, and the noise variance, for standardized
    labels.  Columns that are not relevant have the largest lengthscale.
    """
    relevant = [[column] for column in range(columns)] + ([list(range(columns))] if columns > 1 else [])
    for chosen in relevant:
        for lengthscale in TRIED_LENGTHSCALES:
            for share in TRIED_SHARES:
                logs = torch.full((columns + 2,), LOG_LENGTHSCALE_BOUNDS[1], dtype=torch.float64)
                logs[chosen] = log(lengthscale * sqrt(len(chosen)))
                logs[-2:] = torch.tensor([share, 1 - share], dtype=torch.float64).log()
                yield logs


def evidence(gains: Tensor) -> float:
    """Return the log of the mean of exp(gain) over models, which are equally probable beforehand."""
    return float(torch.logsumexp(gains, 0)) - log(len(gains))


def gain_of_left_out(posterior: Posterior, labels: Tensor) -> float:
    """Return by how many nats a model predicts labels (n,) better than the rate of successes does.

    There are two different labels, and the higher one is that of a success.  Each label is predicted from all others.
    """
    left_out = posterior.leave_one_out()
    assert left_out is not None
    failure, success = labels.aminmax()
    happened = labels == success
    rate = (happened.sum() - happened.to(labels) + 1) / (len(labels) + 1)  # of the others, and never 0 or 1
    least, most = (rate / 2).clamp_max(LEAST_CHANCE), 1 - ((1 - rate) / 2).clamp_max(LEAST_CHANCE)
    chance = ((labels - left_out[0] - failure) / (success - failure)).clamp(least, most)
    return float((torch.where(happened, chance, 1 - chance) / torch.where(happened, rate, 1 - rate)).log().sum())


def thinned(labels: Observations) -> Observations:
    """Return at most MOST_LABELS labels, evenly chosen from successes and failures, with at most half of the rarer."""
    if len(labels) <= MOST_LABELS:
        return labels
    groups = [torch.nonzero(labels.rewards == label)[:, 0] for label in labels.rewards.aminmax()]
    rare = min(MOST_LABELS // 2, *(len(group) for group in groups))
    counts = (rare if len(group) <= len(labels) - len(group) else MOST_LABELS - rare for group in groups)
    chosen = [group[torch.linspace(0, len(group) - 1, n).long()] for group, n in zip(groups, counts, strict=True)]
    return labels.rows(torch.cat(chosen).sort().values)
