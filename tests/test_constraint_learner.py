"""What is learned of constrained outcomes."""

import pytest
import torch
from torch import Tensor

from conbo.belief import fit_belief
from conbo.bound_states import bind
from conbo.constraint_learner import MODEL, ConstraintLearner
from conbo.gaussian_process import GaussianProcess
from conbo.observations import Observations
from conbo.outcome_constraints import AtMost
from conbo.quasi_random import sobol
from random_beliefs import reals

NO_LABELS = Observations(torch.empty(0, 2), torch.empty(0), pending=torch.empty(0, 2))


def load(points: Tensor) -> Tensor:
    """Quadratic in the action, the second column, and wavy in the state."""
    return (points[:, 1] - 0.5 - 0.3 * torch.sin(4 * points[:, 0])).square()


def test_an_outcome_that_is_a_polynomial_of_the_action_is_learned_more_accurately_than_with_the_usual_prior() -> None:
    space = reals(1, 1)
    seen, other = sobol(30, 2, seed=0), sobol(100, 2, seed=5)
    errors = []
    for model in (GaussianProcess(members=1, output_warping="none"), MODEL):
        belief = fit_belief(space, bind(None, space), Observations(seen, load(seen), pending=seen[:0]), model)
        errors.append(float((belief.to_reward(belief.posterior.mean(other)) - load(other)).square().mean().sqrt()))
    usual, ours = errors
    assert ours < 0.5 * usual
    assert ours < 1e-3


@pytest.mark.parametrize(("n", "seed"), [(40, 10), (40, 26), (38, 11)])
def test_exact_outcomes_are_not_taken_for_noise(n: int, seed: int) -> None:
    """The search from noise to signal climbs slowly, and was once given up. In the last case it found only noise."""
    space = reals(1, 1)
    seen, other = sobol(n, 2, seed=seed), sobol(100, 2, seed=5)
    wavy = [(15 * points[:, 1] - 7 - 3 * torch.sin(15 * points[:, 0] - 5)).square() for points in (seen, other)]
    belief = fit_belief(space, bind(None, space), Observations(seen, wavy[0], pending=seen[:0]), MODEL)
    errors = belief.to_reward(belief.posterior.mean(other)) - wavy[1]
    assert float(errors.square().mean().sqrt()) < 0.5 * float(wavy[1].std())
    assert float(belief.posterior.noise_at(other).max()) < 0.01


def test_the_constraint_is_kept_with_confidence_close_to_its_boundary() -> None:
    space = reals(1, 1)
    seen, states = sobol(30, 2, seed=0), torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    told = Observations(seen, seen[:, 1], pending=seen[:0], measured={"load": load(seen)})
    learned = ConstraintLearner({"load": AtMost(0.01)}, 0.95).learn(space, bind(None, space), told, NO_LABELS)
    assert learned is not None
    boundary = 0.5 + 0.3 * torch.sin(4 * states) + 0.1
    inside, outside = (torch.stack([states, boundary + step], -1) for step in (-0.02, 0.02))
    assert bool(learned.is_sure(learned.log_probability(inside)).all())
    assert float(learned.probability(outside).max()) < 0.05


def test_the_policy_s_probability_does_not_treat_hyperparameters_as_known() -> None:
    space = reals(1, 1)
    seen = sobol(15, 2, seed=0)
    told = Observations(seen, seen[:, 1], pending=seen[:0], measured={"load": load(seen)})
    learned = ConstraintLearner({"load": AtMost(0.01)}, 0.95).learn(space, bind(None, space), told, NO_LABELS)
    assert learned is not None
    (one,) = learned.outcomes
    points, known = sobol(100, 2, seed=5), learned.of_most_probable()
    assert float((one.averaged.posterior.variance(points) / one.posterior.variance(points)).mean()) > 1.1
    assert int(learned.is_sure(learned.log_probability(points)).sum()) <= int(
        known.is_sure(known.log_probability(points)).sum()
    )
    assert known.probability(points).tolist() != learned.probability(points).tolist()
    assert known.outcomes[0].averaged is known.outcomes[0]


@pytest.mark.parametrize("measured", [1.0, 0.0, -3.0])
def test_equal_outcomes_do_not_make_the_model_certain(measured: float) -> None:
    """An outcome that is only 0 or 1, say, may be the same at all first points."""
    space = reals(1, 1)
    seen, other = sobol(6, 2, seed=0), sobol(100, 2, seed=5)
    outcomes = {"load": torch.full((6,), measured, dtype=torch.float64)}
    told = Observations(seen, seen[:, 1], pending=seen[:0], measured=outcomes)
    learned = ConstraintLearner({"load": AtMost(0.5)}, 0.95).learn(space, bind(None, space), told, NO_LABELS)
    assert learned is not None
    as_seen = [learned.probability(points) for points in (seen, other)]
    if measured > 0.5:
        as_seen = [1 - likely for likely in as_seen]
    assert float(as_seen[0].min()) > 0.999
    assert 0.5 < float(as_seen[1].min()) < 0.98
