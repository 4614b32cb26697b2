"""The pool of actions: spread out, valid, with every category and the best that was observed."""

import numpy as np
import torch

from conbo.search.action_candidates import MOST_COMBINATIONS, MOST_OBSERVED, action_candidates
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import belief_with, generator, product_kernel, reals


def test_the_pool_is_spread_over_the_actions_and_holds_the_best_observed() -> None:
    space = reals(1, 2)
    belief = belief_with(space, product_kernel(space), n=50)
    told = belief.observations

    pool = action_candidates(belief, 64, generator())

    assert pool.shape == (64 + MOST_OBSERVED, 2)
    counts = torch.histogramdd(pool[:64], bins=[4, 4], range=[0.0, 1.0, 0.0, 1.0]).hist
    assert counts.min() >= 2
    best = told.points[told.rewards.argsort(descending=True)[:MOST_OBSERVED], 1:]
    assert torch.equal(pool[64:], best)
    assert torch.equal(pool, action_candidates(belief, 64, generator()))
    assert not torch.equal(pool, action_candidates(belief, 64, generator(1)))
    assert pool.dtype == torch.float64


def test_every_combination_of_few_categories_is_in_the_pool() -> None:
    space = Space(actions={"c": Categorical(range(5)), "x": Real(0, 1), "k": Categorical([*"abc"]), "n": Integer(1, 4)})
    belief = belief_with(space, product_kernel(space), n=5)
    for n in (4, 16, 40):
        pool = action_candidates(belief, n, generator())

        assert len({(float(c), float(k)) for c, _, k, _ in pool[: max(n, 15)]}) == 15
        np.testing.assert_allclose(space.snap_actions(pool.numpy()), pool.numpy(), atol=1e-12)


def test_very_many_combinations_are_sampled() -> None:
    space = Space(actions={f"c{i}": Categorical(range(MOST_COMBINATIONS)) for i in range(2)})
    belief = belief_with(space, product_kernel(space), n=5)

    pool = action_candidates(belief, 32, generator())

    assert len(pool) == 32 + 5
    assert len({tuple(row) for row in pool[:32].tolist()}) > 24
    np.testing.assert_allclose(space.snap_actions(pool.numpy()), pool.numpy(), atol=1e-12)
