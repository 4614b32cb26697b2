"""GP-C-OCBA: which pair of state and action is next, of finitely many."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import conbo
from conbo.errors import SettingError
from conbo.optimizer import Optimizer
from conbo.proposals.budget_allocation import BudgetAllocation, all_pairs, next_pair
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import belief_with, generator, points_in, posterior_of, product_kernel, reals, tensor

SPACE = Space(
    states={"k": Categorical(["a", "b", "c"]), "m": Integer(1, 2)},
    actions={"n": Integer(0, 4), "c": Categorical(["u", "v"])},
)
LIMITED = Space(SPACE.states, SPACE.actions, ["n <= 2 * m - 1"])


def expected(mean: np.ndarray, variance: np.ndarray, counts: np.ndarray, taken: np.ndarray) -> tuple[int, int]:
    """The choice by the paper's formulas, pair by pair, of those that are not taken."""
    lowest, choice = np.inf, (0, 0)
    for c in range(len(mean)):
        b = int(np.argmax(mean[c]))
        for k in range(len(mean[c])):
            zeta = (mean[c, b] - mean[c, k]) ** 2 / (variance[c, b] + variance[c, k])
            if k != b and not taken[c, k] and zeta < lowest:
                lowest, choice = zeta, (c, k)
    c, b = choice[0], int(np.argmax(mean[choice[0]]))
    others = sum(counts[c, k] / variance[c, k] for k in range(len(mean[c])) if k != b)
    return (c, b) if counts[c, b] / variance[c, b] < others and not taken[c, b] else choice


@pytest.mark.parametrize("n_pending", [0, 8])
def test_the_choice_is_that_of_the_papers_formulas(n_pending: int) -> None:
    chosen = []
    for seed in range(40):
        belief = belief_with(SPACE, product_kernel(SPACE), n=10, noise=0.1, seed=seed)
        pending = points_in(SPACE, n_pending, seed + 100)
        belief = replace(belief, observations=belief.observations.with_pending(pending))
        pairs, posterior = all_pairs(belief), posterior_of(belief)
        assert pairs.shape == (6, 10, 4)
        moments = (posterior.mean(pairs.flatten(0, 1)), posterior.variance(pairs.flatten(0, 1)))
        mean, variance = (values.view(6, 10).numpy() for values in moments)
        evaluated, waiting = (
            np.array([[sum(torch.equal(pair, p) for p in points) for pair in row] for row in pairs])
            for points in (belief.observations.points, pending)
        )
        assert (evaluated.sum(), waiting.sum()) == (10, n_pending)
        state, action = expected(mean, variance, evaluated + waiting, waiting > 0)
        assert torch.equal(BudgetAllocation().propose(belief, 1, generator()).points, pairs[state, action][None])
        chosen.append(action == mean[state].argmax())
    assert 5 < sum(chosen) < 35  # both the best actions and their rivals are chosen


def test_what_is_uncertain_about_both_actions_makes_them_hard_to_tell_apart() -> None:
    mean, variance = tensor([[0.0, 0.7], [1.0, 0.0]]), tensor([[1.0, 0.1], [10.0, 0.1]])
    free = torch.ones(2, 2, dtype=torch.bool)
    assert next_pair(mean, variance, torch.zeros(2, 2), free) == (1, 1)


def test_the_best_action_is_evaluated_until_it_is_known_as_well_as_its_rivals_together() -> None:
    mean, variance = tensor([[0.0, 5.0, 1.0], [2.0, 1.9, -3.0]]), tensor([[0.1, 0.1, 0.1], [0.5, 0.2, 0.1]])
    free = torch.ones(2, 3, dtype=torch.bool)
    assert next_pair(mean, variance, tensor([[0, 0, 0], [4, 1, 0]]), free) == (1, 1)  # 8 against 5
    assert next_pair(mean, variance, tensor([[0, 0, 0], [4, 1, 1]]), free) == (1, 0)  # 8 against 15


def test_a_pending_pair_counts_and_is_not_repeated() -> None:
    belief = belief_with(SPACE, product_kernel(SPACE), n=12, noise=0.1)
    batch = BudgetAllocation().propose(belief, 60, generator()).points
    assert len(batch.unique(dim=0)) == 60
    again = BudgetAllocation().propose(belief, 65, generator()).points[60:]  # there are 60 pairs
    assert len(again.unique(dim=0)) == 5
    waiting = replace(belief, observations=belief.observations.with_pending(batch[:2]))
    assert torch.equal(BudgetAllocation().propose(waiting, 2, generator()).points, batch[2:4])


def test_only_feasible_actions_are_proposed_and_compared() -> None:
    belief = belief_with(LIMITED, product_kernel(LIMITED), n=12, noise=0.1)
    feasible = belief.contains(all_pairs(belief))
    assert 0 < feasible.sum() < feasible.numel()
    batch = BudgetAllocation().propose(belief, int(feasible.sum()), generator()).points
    assert bool(belief.contains(batch).all())
    assert len(batch.unique(dim=0)) == feasible.sum()
    given = BudgetAllocation().propose(belief, 3, generator(), tensor([0.5, 0.25])).points
    assert given[:, :2].tolist() == [[0.5, 0.25]] * 3
    assert bool(belief.contains(given).all())


def test_evaluations_keep_away_from_pairs_that_failed() -> None:
    study = conbo.Study(Space({"m": Integer(1, 3)}, {"n": Integer(0, 4)}), method="gp-c-ocba", initial=8, seed=1)
    failed = []
    for _ in range(24):
        trial = study.ask()
        if trial.action["n"] == 4:
            study.fail(trial, "it diverged")
            failed.append(trial.number)
        else:
            study.tell(trial, float(trial.action["n"]) + 0.3 * np.sin(trial.number))  # the best action would be 4
    assert 2 <= len(failed) < 8
    assert max(failed) < 20


def test_one_action_or_no_states_are_no_obstacle() -> None:
    for space in (Space({"m": Integer(1, 3)}, {"c": Categorical(["u"])}), Space(actions={"n": Integer(0, 4)})):
        belief = belief_with(space, product_kernel(space), n=3)
        assert len(BudgetAllocation().propose(belief, 3, generator()).points.unique(dim=0)) == 3


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (reals(1, 1), r"'gp-c-ocba' must have finitely many states, but 's0' is Real\(low=0"),
        (Space({"m": Integer(1, 2)}, {"n": Integer(0, 4), "x": Real(0, 1)}), "finitely many actions, but 'x' is Real"),
        (
            Space({"m": Integer(1, 200_000)}, {"n": Integer(0, 4)}),
            "'gp-c-ocba' must have at most 100,000 states, but there are more: use 'pei'",
        ),
        (
            Space({"m": Integer(1, 2)}, {**{f"n{i}": Integer(0, 10**12) for i in range(30)}, "x": Real(0, 1)}),
            "finitely many actions, but 'x' is Real",
        ),
        (
            Space({"m": Integer(1, 1000)}, {"n": Integer(1, 101)}),
            "'gp-c-ocba' must have at most 100,000 pairs of a state and an action, but there are 101,000: use 'pei'",
        ),
    ],
)
def test_what_cannot_be_listed_is_refused(space: Space, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Optimizer(space, method="gp-c-ocba")


@pytest.mark.parametrize("space", [reals(1, 1), Space({"m": Integer(1, 2)}, {"x": Real(0, 1)})])
def test_the_proposal_alone_refuses_it_too(space: Space) -> None:
    belief = belief_with(space, product_kernel(space))
    with pytest.raises(SettingError, match="budget allocation needs finitely many states and actions"):
        BudgetAllocation().propose(belief, 1, generator())


def test_minimizing_is_maximizing_the_negative() -> None:
    trials = []
    for direction, sign in (("maximize", 1.0), ("minimize", -1.0)):
        optimizer = Optimizer(SPACE, method="gp-c-ocba", direction=direction, initial=12)
        for trial in optimizer.ask(12):
            optimizer.tell(trial, sign * np.sin(3.0 * float(trial.action["n"]) + float(trial.state["m"])))
        trials.append(optimizer.ask(3))
    assert trials[0] == trials[1]
