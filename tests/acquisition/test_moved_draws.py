"""Which action is best in how many of the moved draws: the compiled count, that of torch, and a plain loop agree."""

import pytest
import torch

from conbo.acquisition.moved_draws import _best_counts, best_counts
from conbo.loops.moved_draws import BLOCK
from random_beliefs import generator


@pytest.mark.parametrize("draws", [5, BLOCK, 2 * BLOCK + 3])
def test_counts_are_those_of_a_plain_loop(draws: int) -> None:
    seeds = generator(draws)
    values = torch.randn(3, 4, draws, generator=seeds, dtype=torch.float64)
    values[:, 3] = values[:, 1]  # a tie, which the first of both wins if their slopes are the same, too
    slope = torch.randn(3, 4, generator=seeds, dtype=torch.float64)
    slope[0, 3] = slope[0, 1]
    outcomes = torch.randn(3, draws, generator=seeds, dtype=torch.float64)
    nodes = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.float64)
    expected = torch.zeros(3, 3, 2, 4, dtype=torch.float64)
    for pair in range(3):
        for node, z in enumerate(nodes):
            moved = values[pair] + slope[pair, :, None] * (z - outcomes[pair])
            for draw, best in enumerate(moved.argmax(0).tolist()):
                expected[pair, node, draw * 2 // draws, best] += 1
    assert torch.equal(best_counts(values, slope, outcomes, nodes), expected)
    assert torch.equal(_best_counts(values, slope, outcomes, nodes), expected)
    assert int(expected[0, :, :, 3].sum()) == 0
