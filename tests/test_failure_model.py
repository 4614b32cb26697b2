"""Failures teach only if they depend on the point, which a model fitted to a few of them seems to show too often."""

import math
import random

import pytest
import torch

import conbo
from conbo.failure_model import (
    ACCIDENT_MARGIN,
    MOST_LABELS,
    best_fits,
    evidence,
    gain_of_left_out,
    success_model,
    thinned,
    typical_parameters,
)
from conbo.learned_constraints import LearnedConstraint
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior, condition
from conbo.models.fit_memory import FitMemory
from conbo.models.kernel_families import ProductFamily
from conbo.models.structures import Structures
from conbo.observations import Observations
from conbo.quasi_random import sobol
from conbo.spaces import Space

SPACE = conbo.Space({"s": conbo.Real(0, 1)}, {f"x{i}": conbo.Real(0, 1) for i in range(5)})


def labeled(points: torch.Tensor, failed: torch.Tensor) -> Observations:
    return Observations(points, torch.where(failed, -0.5, 0.5).to(points), pending=points[:0])


def learned(labels: Observations, space: Space = SPACE) -> LearnedConstraint | None:
    return success_model(space, labels, FitMemory())


def accidents(seed: int, n: int, failures: int) -> Observations:
    failed = torch.zeros(n, dtype=torch.bool)
    failed[random.Random(seed).sample(range(n), failures)] = True
    return labeled(sobol(n, 6, seed), failed)


def height(points: torch.Tensor) -> torch.Tensor:
    return points[:, 1] + 0.3 * points[:, 0]


def in_a_corner(seed: int, n: int, failures: int) -> Observations:
    points = sobol(n, 6, seed)
    return labeled(points, height(points) >= height(points).sort().values[-failures])


@pytest.mark.parametrize(("n", "failures"), [(12, 3), (18, 10), (30, 9), (60, 6), (100, 30)])
def test_accidents_are_seldom_learned_from(n: int, failures: int) -> None:
    assert sum(learned(accidents(seed, n, failures)) is not None for seed in range(20)) <= 1


@pytest.mark.parametrize(("n", "failures"), [(30, 9), (60, 6), (100, 6), (101, 6), (400, 8)])
def test_a_corner_in_which_evaluations_fail_is_learned(n: int, failures: int) -> None:
    right = []
    for seed in range(4):
        labels = in_a_corner(seed, n, failures)
        success = learned(labels)
        assert success is not None
        new = sobol(512, 6, seed + 100)
        cut = height(labels.points[labels.rewards < 0]).min()
        fails, chance = height(new) >= cut, torch.special.ndtr(success.averaged.margins(new))
        right.append([float((chance[fails] < 0.5).double().mean()), float((chance[~fails] > 0.5).double().mean())])
    of_failures, of_successes = torch.tensor(right).mean(0).tolist()
    assert of_failures > 0.7
    assert of_successes > 0.9


def test_what_is_learned_does_not_flicker_from_trial_to_trial() -> None:
    """Six failures in a corner, and then only successes elsewhere."""
    all_labels = in_a_corner(2, 108, 6)
    last = int(torch.nonzero(all_labels.rewards < 0).max())
    assert all(learned(all_labels.first(n)) is not None for n in range(max(last + 1, 90), 109))


@pytest.mark.parametrize("chosen", ["b", "d"])
def test_a_category_in_which_evaluations_fail_is_learned(chosen: str) -> None:
    space = conbo.Space({"s": conbo.Real(0, 1)}, {"c": conbo.Categorical(list("abcde")), "x": conbo.Real(0, 1)})
    points = space.snap(sobol(40, 3, 0).numpy())
    failed = torch.tensor([action["c"] == chosen for action in space.decode_actions(points[:, 1:])])
    success = learned(labeled(torch.from_numpy(points), failed), space)
    assert success is not None
    new = torch.from_numpy(space.encode_actions([{"c": c, "x": 0.3} for c in "abcde"]))
    chance = torch.special.ndtr(success.margins(torch.cat([torch.full((5, 1), 0.6), new], 1)))
    assert [c for c, likely in zip("abcde", chance, strict=True) if likely < 0.5] == [chosen]


def test_a_space_of_one_column_has_a_model() -> None:
    points = sobol(24, 1, 0)
    assert learned(labeled(points, points[:, 0] > 0.7), conbo.Space({}, {"x": conbo.Real(0, 1)})) is not None


@pytest.mark.parametrize("failed", [True, False])
def test_equal_labels_and_no_labels_say_nothing(failed: bool) -> None:
    assert learned(labeled(sobol(8, 6, 0), torch.full((8,), failed))) is None
    assert learned(labeled(sobol(8, 6, 0)[:0], torch.full((0,), failed))) is None


def model_of(labels: Observations) -> ExactPosterior:
    """A model whose labels have mean zero and variance one."""
    values = (labels.rewards - labels.rewards.mean()) / labels.rewards.std()
    family = ProductFamily(Columns((0,)), Columns((0,) * 5))
    row = list(typical_parameters(6))[9]
    return condition(family.kernel(row[:-1]), 0.0, float(row[-1].exp()), labels.points, values)


def test_the_gain_is_that_of_predictions_from_all_other_labels() -> None:
    labels = in_a_corner(0, 20, 6)
    model, succeeded = model_of(labels), (labels.rewards > 0).tolist()
    values = (labels.rewards - labels.rewards.mean()) / labels.rewards.std()
    expected = 0.0
    for i in range(20):
        others = [j for j in range(20) if j != i]
        without = condition(
            model.kernel, 0.0, float(model.noise_at(labels.points[:1])), labels.points[others], values[others]
        )
        mean = float(without.mean(labels.points[i : i + 1]))
        rate = (sum(succeeded[j] for j in others) + 1) / 21
        chance = (mean - float(values.min())) / float(values.max() - values.min())
        chance = min(max(chance, min(0.05, rate / 2)), 1 - min(0.05, (1 - rate) / 2))
        expected += math.log(chance / rate) if succeeded[i] else math.log((1 - chance) / (1 - rate))
    assert gain_of_left_out(model, values) == pytest.approx(expected, abs=1e-9)


def test_the_evidence_is_the_log_of_the_mean_likelihood() -> None:
    assert evidence(torch.tensor([1.0, 3.0])) == pytest.approx(math.log((math.e + math.e**3) / 2))
    assert evidence(torch.tensor([2.0] * 7)) == pytest.approx(2.0)


def test_the_fit_predicts_at_least_as_well_as_typical_hyperparameters() -> None:
    """By density alone, a fit would often explain the failures as noise."""
    labels = in_a_corner(5, 101, 6)
    seen = Observations(labels.points, (labels.rewards - labels.rewards.mean()) / labels.rewards.std(), labels.pending)
    family = ProductFamily(Columns((0,)), Columns((0,) * 5))
    (fit,) = best_fits(Structures((family,)), seen)
    best = max(
        gain_of_left_out(condition(family.kernel(row[:-1]), 0.0, float(row[-1].exp()), *seen_pair(seen)), seen.rewards)
        for row in typical_parameters(6)
    )
    assert gain_of_left_out(fit.posterior(seen.points, seen.rewards), seen.rewards) > best > ACCIDENT_MARGIN


def seen_pair(seen: Observations) -> tuple[torch.Tensor, torch.Tensor]:
    return seen.points, seen.rewards


@pytest.mark.parametrize(("failures", "kept"), [(20, 20), (400, 150), (990, 290), (0, 0)])
def test_with_many_labels_the_rarer_are_kept(failures: int, kept: int) -> None:
    failed = torch.arange(1000) % 1000 < failures
    some = thinned(labeled(sobol(1000, 6, 0), failed))
    assert len(some) == MOST_LABELS
    assert int((some.rewards < 0).sum()) == kept


def test_a_remembered_fit_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, labels = FitMemory(), in_a_corner(0, 40, 9)
    first = success_model(SPACE, labels, memory)
    monkeypatch.setattr("conbo.failure_model.best_fits", None)
    again = success_model(SPACE, labels, memory)
    assert first is not None
    assert again is not None
    points = sobol(50, 6, 7)
    assert torch.equal(first.margins(points), again.margins(points))
