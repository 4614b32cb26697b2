"""Failures teach only if they depend on the point, which a model fitted to a few of them seems to show too often."""

import math
import random
from functools import partial

import pytest
import torch

import conbo
from conbo.constraint_learner import MODEL
from conbo.failure_evidence import ACCIDENT_MARGIN, depend_on_point, gain_of_left_out, gain_of_refitted
from conbo.gaussian_process import GaussianProcess
from conbo.learned_constraints import LearnedConstraint
from conbo.observations import Observations
from conbo.quasi_random import sobol
from conbo.spaces import Space

SPACE = conbo.Space({"s": conbo.Real(0, 1)}, {f"x{i}": conbo.Real(0, 1) for i in range(5)})


def fitted(space: Space, labels: Observations, model: GaussianProcess = MODEL) -> LearnedConstraint:
    return LearnedConstraint("success", model.fit(space, labels), 0.0, labels)


def labeled(points: torch.Tensor, failed: torch.Tensor) -> Observations:
    """Labels in the order in which a study has them: first the successes, then the failures."""
    labels = torch.cat([torch.ones(int((~failed).sum())), -torch.ones(int(failed.sum()))]).to(points)
    return Observations(torch.cat([points[~failed], points[failed]]), labels, pending=points[:0])


def accidents(seed: int, n: int = 18, failures: int = 10) -> Observations:
    failed = torch.zeros(n, dtype=torch.bool)
    failed[random.Random(seed).sample(range(n), failures)] = True
    return labeled(sobol(n, 6, seed), failed)


def in_a_corner(seed: int, n: int = 30, failures: int = 9) -> Observations:
    points = sobol(n, 6, seed)
    height = points[:, 1] + 0.3 * points[:, 0]
    return labeled(points, height >= height.sort().values[-failures])


def test_accidents_in_six_dimensions_are_not_learned_from() -> None:
    fit = partial(fitted, SPACE)
    cases = [accidents(seed) for seed in range(6)]
    assert not any(depend_on_point(fit(labels), labels, fit) for labels in cases)
    # the fitted hyperparameters alone would have explained most of these accidents
    assert sum(gain_of_left_out(fit(labels)) > ACCIDENT_MARGIN for labels in cases) >= 3


@pytest.mark.parametrize("seed", range(3))
def test_a_corner_in_which_evaluations_fail_is_learned(seed: int) -> None:
    labels, fit = in_a_corner(seed), partial(fitted, SPACE)
    assert depend_on_point(fit(labels), labels, fit)


@pytest.mark.parametrize(("n", "fits"), [(30, 5), (102, 2)])
def test_predictions_come_from_models_that_have_not_seen_what_they_predict(n: int, fits: int) -> None:
    labels, seen = in_a_corner(0, n), []

    def fit(known: Observations) -> LearnedConstraint:
        seen.append(known)
        return fitted(SPACE, known)

    gain = gain_of_refitted(labels, fit)
    assert len(seen) == fits
    expected = 0.0
    for known in seen:
        left_out = [i for i, point in enumerate(labels.points) if not bool((known.points == point).all(-1).any())]
        assert len(left_out) == len(labels) - len(known)
        rate = (int((known.rewards > 0).sum()) + 1) / (len(known) + 2)
        mean = fitted(SPACE, known).posterior.mean(labels.points[left_out])
        for chance, label in zip(((mean + 1) / 2).clamp(0.05, 0.95).tolist(), labels.rewards[left_out], strict=True):
            ratio = chance / rate if label > 0 else (1 - chance) / (1 - rate)
            expected += math.log(ratio)
    assert sum(len(labels) - len(known) for known in seen) == len(labels)
    assert gain == pytest.approx(expected, abs=1e-6)


def test_equal_labels_say_nothing() -> None:
    labels = labeled(sobol(8, 6, 0), torch.ones(8, dtype=torch.bool))
    assert gain_of_refitted(labels, partial(fitted, SPACE)) == 0.0


def test_what_is_beyond_doubt_is_not_fitted_again() -> None:
    points = sobol(120, 6, 0)
    labels = labeled(points, points[:, 1] > 0.5)

    def never(_: Observations) -> LearnedConstraint:
        raise AssertionError("the models are fitted again")

    assert depend_on_point(fitted(SPACE, labels), labels, never)
