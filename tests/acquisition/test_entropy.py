"""Entropy search per state against plain sampling, and what any information must satisfy."""

from math import sqrt

import pytest
import torch
from torch import Tensor

from conbo.acquisition.entropy import (
    EntropySearch,
    MaxValueEntropySearch,
    PredictiveEntropySearch,
)
from conbo.acquisition.entropy_estimates import log_ratio, which_peak, which_value
from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.models.factorization import cholesky
from conbo.search.path_peaks import path_peaks
from conbo.spaces import Categorical, Integer, Real, Space
from random_beliefs import (
    belief_with,
    finite_differences,
    generator,
    points_in,
    posterior_of,
    product_kernel,
    reals,
    trend_kernel,
)

DISCRETE = Space(states={"s": Integer(1, 3)}, actions={"x": Integer(1, 8)})
CATEGORIES = Space(states={"k": Categorical(["a", "b"])}, actions={"x": Real(0, 1)})
STATES = torch.from_numpy(DISCRETE.states["s"].levels())  # type: ignore[union-attr]
ACTIONS = torch.from_numpy(DISCRETE.actions["x"].levels())  # type: ignore[union-attr]
SAMPLES, AT_ONCE, CELLS = 1_600_000, 100_000, 100
ENTROPIES = [
    (EntropySearch(), 0),
    (PredictiveEntropySearch(), 0),
    (MaxValueEntropySearch(), 1),
]
CHEAP = [PredictiveEntropySearch(estimate="moments"), MaxValueEntropySearch(estimate="moments")]


def discrete_belief(seed: int, noise: float) -> Belief:
    return belief_with(DISCRETE, product_kernel(DISCRETE, 0.4, 0.3), n=6, noise=noise, seed=seed)


def mutual_information(joint: Tensor) -> Tensor:
    return (joint * log_ratio(joint)).sum((-2, -1))


def counted(a: Tensor, n_a: int, b: Tensor, n_b: int) -> Tensor:
    return torch.bincount(a * n_b + b, minlength=n_a * n_b).reshape(n_a, n_b).to(torch.float64)


def sampled_information(belief: Belief, candidates: Tensor) -> Tensor:
    """I(y; x*) and I(y; y*) of every candidate and state, by sampling and counting: (c, states, 2)."""
    posterior, grid, seeds = posterior_of(belief), torch.cartesian_prod(STATES, ACTIONS), generator(99)
    joint = torch.cat([grid, candidates])
    eye = torch.eye(len(joint), dtype=torch.float64)
    root, mean = cholesky(posterior.covariance(joint, joint) + 1e-10 * eye), posterior.mean(joint)
    sd = (posterior.variance(candidates) + posterior.noise).sqrt()
    c, s, x = len(candidates), len(STATES), len(ACTIONS)
    tables = [torch.zeros(c, s, CELLS, width, dtype=torch.float64) for width in (x, CELLS)]
    edges: Tensor | None = None
    for _ in range(SAMPLES // AT_ONCE):
        normal = torch.randn(AT_ONCE, len(joint) + c, generator=seeds, dtype=torch.float64)
        f = mean + normal[:, : len(joint)] @ root.mT
        best_value, best_action = f[:, : len(grid)].unflatten(1, (s, x)).max(-1)
        if edges is None:
            ranks = torch.arange(1, CELLS) * AT_ONCE // CELLS
            edges = best_value.sort(0).values[ranks].mT.contiguous()
        y = f[:, len(grid) :] + sqrt(posterior.noise) * normal[:, len(joint) :]
        cell = (torch.special.ndtr((y - mean[len(grid) :]) / sd) * CELLS).long().clamp(0, CELLS - 1)
        value_cell = [torch.bucketize(best_value[:, i].contiguous(), edges[i]) for i in range(s)]
        for k in range(c):
            for i in range(s):
                tables[0][k, i] += counted(cell[:, k], CELLS, best_action[:, i], x)
                tables[1][k, i] += counted(cell[:, k], CELLS, value_cell[i], CELLS)
    # the leading bias of counting (Miller & Madow)
    bias = [((t.sum(-2) > 0).sum(-1) - 1) * (CELLS - 1) / (2 * SAMPLES) for t in tables]
    return torch.stack([mutual_information(t / SAMPLES) - b for t, b in zip(tables, bias, strict=True)], -1)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "noise"), [(0, 0.01), (1, 0.05), (2, 0.3)])
def test_information_is_that_of_plain_sampling(seed: int, noise: float) -> None:
    belief = discrete_belief(seed, noise)
    candidates = points_in(DISCRETE, 4, seed=10)
    truth = sampled_information(belief, candidates)
    for recipe, column in ENTROPIES:
        ahead = recipe.build(belief, generator(3)).at(STATES[:, None].expand(len(candidates), -1, -1))
        values = ahead(candidates, torch.arange(len(candidates))).values
        expected = truth[..., column]
        real = expected > 0.02
        assert int(real.sum()) >= 3
        worst = float(((values - expected) / expected)[real].abs().amax())
        assert worst < 0.1, f"{recipe} is off by {worst:.0%}"
        assert float((values - expected)[~real].abs().amax()) < 0.005


def ranks(values: Tensor, cells: int) -> Tensor:
    """In which of so many cells of equal probability; equal values share one."""
    return torch.searchsorted(values.sort().values, values) * cells // len(values)


@pytest.mark.parametrize("seed", [0, 1])
def test_little_is_left_to_learn_and_that_is_seen(seed: int) -> None:
    """Nearly exact rewards at thirty points: likely peaks are so close that their covariance is singular."""
    samples, cells, noise = 100_000, 40, 1e-6
    belief = belief_with(reals(1, 1), product_kernel(reals(1, 1), 0.5), n=30, noise=noise, seed=seed)
    posterior, state = posterior_of(belief), torch.tensor([[0.4]], dtype=torch.float64)
    grid = torch.cat([state.expand(201, 1), torch.linspace(0, 1, 201, dtype=torch.float64)[:, None]], -1)
    best = grid[posterior.mean(grid).argmax()]
    candidates = (best + torch.tensor([[0.0, 0.0], [0.02, 0.05], [-0.05, -0.1]], dtype=torch.float64)).clamp(0, 1)
    joint = torch.cat([grid, candidates])
    variances, vectors = torch.linalg.eigh(posterior.covariance(joint, joint))
    normal = torch.randn(samples, len(joint) + 3, generator=generator(1), dtype=torch.float64)
    f = posterior.mean(joint) + normal[:, :-3] @ (vectors * variances.clamp_min(0).sqrt()).mT
    y = f[:, 201:] + sqrt(noise) * normal[:, -3:]
    best_value, best_action = f[:, :201].max(-1)
    labels = ranks(best_action, cells), ranks(best_value, cells)
    for recipe, column in ENTROPIES:
        ahead = recipe.build(belief, generator(3)).at(state.expand(3, 1, 1))
        for value, outcome in zip(ahead(candidates, torch.arange(3)).values[:, 0], y.mT.contiguous(), strict=True):
            table = counted(ranks(outcome, cells), cells, labels[column], cells)
            bias = (cells - 1) * (int((table.sum(0) > 0).sum()) - 1) / (2 * samples)
            truth = float(mutual_information(table / samples)) - bias
            if 0.02 < truth < 2:  # more does not fit into the cells
                # cells lose some of the truth, and it is one draw of the estimate; one that saw nothing would be 0
                assert float(value) == pytest.approx(truth, rel=0.3), recipe


@pytest.mark.parametrize("recipe", [*(recipe for recipe, _ in ENTROPIES), *CHEAP], ids=str)
class TestEveryEstimate:
    def test_nothing_is_learned_of_an_independent_state(self, recipe: EntropySearch) -> None:
        belief = belief_with(CATEGORIES, trend_kernel(CATEGORIES, 0.3, (0.0, 1.0, 0.5)), n=6)
        candidates = torch.tensor([[0.25, 0.3], [0.25, 0.9]], dtype=torch.float64)
        states = torch.tensor([[[0.75], [0.25]]], dtype=torch.float64).expand(2, -1, -1)
        information = recipe.build(belief, generator())
        for values in (
            information.at(states)(candidates, torch.arange(2)).values,
            information.rough(states[0])(candidates),
        ):
            assert float(values[:, 0].abs().amax()) < 1e-12
            assert float(values[:, 1].amin()) > 1e-4

    def test_it_is_not_negative_and_rough_values_are_alike(self, recipe: EntropySearch) -> None:
        belief = belief_with(reals(1, 2), product_kernel(reals(1, 2)), n=12, noise=0.05)
        candidates, states = points_in(belief.space, 12, seed=2), points_in(belief.space, 5, seed=3)[:, :1]
        information, all_states = recipe.build(belief, generator()), states.expand(12, -1, -1)
        values = information.at(all_states)(candidates, torch.arange(12)).values
        rough = information.rough(states)(candidates)
        assert float(values.amin()) >= 0
        assert float(rough.amin()) >= 0
        assert float(torch.corrcoef(torch.stack([values.flatten(), rough.flatten()]))[0, 1]) > 0.8

    def test_noise_hides(self, recipe: EntropySearch) -> None:
        values = []
        for noise in (0.01, 1.0, 100.0):
            belief = belief_with(reals(1, 1), product_kernel(reals(1, 1)), n=2, noise=noise)
            ahead = recipe.build(belief, generator()).at(torch.tensor([[[0.5]]], dtype=torch.float64))
            candidate = torch.tensor([[0.5, 0.2]], dtype=torch.float64)
            values.append(float(ahead(candidate, torch.zeros(1, dtype=torch.long)).values))
        assert values[0] > values[1] > values[2]
        assert values[2] < 0.01

    def test_the_gradient_is_that_of_the_values(self, recipe: EntropySearch) -> None:
        belief = belief_with(reals(1, 2), product_kernel(reals(1, 2), 0.5), n=15, noise=0.05)
        candidates, rows = 0.15 + 0.7 * points_in(belief.space, 6, seed=3), torch.arange(6)
        states = points_in(belief.space, 3, seed=8)[:, :1].expand(6, -1, -1)
        weights = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64).expand(6, -1)
        ahead = recipe.build(belief, generator()).at(states)
        gradient = ahead(candidates, rows).gradient(weights)
        # counts jump: look at differences over a long way
        numeric = finite_differences(lambda p: (weights * ahead(p, rows).values).sum(-1), candidates, 0.02)
        assert float((gradient - numeric).norm() / numeric.norm()) < 0.08


def test_likely_peaks_are_maxima_of_drawn_functions() -> None:
    belief = belief_with(reals(1, 2), product_kernel(reals(1, 2)), n=12)
    paths = belief.draw_paths(6, generator(), features=128)
    states, pool = torch.tensor([[0.2], [0.9]], dtype=torch.float64), points_in(reals(0, 2), 40, seed=1)
    start = path_peaks(belief, paths, pool, states, climb=0)
    peaks = path_peaks(belief, paths, pool, states, climb=30)
    draws = torch.arange(6)
    for k, state in enumerate(states):
        first, _ = paths.along(torch.cat([state.expand(6, -1), start[k]], -1), draws)
        value, gradient = paths.along(torch.cat([state.expand(6, -1), peaks[k]], -1), draws)
        assert (value >= first).all()
        torch.testing.assert_close(first, paths(torch.cat([state.expand(40, -1), pool], -1)).amax(0))
        free = (peaks[k] > 0) & (peaks[k] < 1)
        assert float(torch.where(free, gradient[:, 1:], 0.0).abs().amax()) < 0.02


def test_labels() -> None:
    values = torch.randn(1024, 5, generator=generator(), dtype=torch.float64)
    assert torch.equal(which_peak(values), values.argmax(-1))
    bins = which_value(values)
    highest = values.amax(-1)
    assert torch.equal(bins[highest.argsort()], bins.sort().values)  # bins are in the order of the values
    assert int(torch.bincount(bins).amin()) >= 16


def test_bins_of_best_values_are_finer_at_both_ends() -> None:
    sizes = torch.bincount(which_value(torch.randn(16384, 5, generator=generator(), dtype=torch.float64)))
    assert len(sizes) == 48
    assert int(sizes.amin()) >= 48
    assert int(torch.cat([sizes[:4], sizes[-4:]]).amax()) < int(sizes[24]) / 3


def test_information_of_a_known_distribution() -> None:
    joint = torch.tensor([[0.5, 0.0], [0.0, 0.5]], dtype=torch.float64)
    assert float(mutual_information(joint)) == pytest.approx(0.6931, abs=1e-4)
    assert float(mutual_information(torch.full((2, 3), 1 / 6, dtype=torch.float64))) == pytest.approx(0, abs=1e-12)


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="`peaks >= 2` and `draws >= 4` must hold, but got peaks=1, draws=4096"):
        EntropySearch(peaks=1)
    with pytest.raises(SettingError, match="`estimate` must be 'density' or 'moments', but got 'other'"):
        PredictiveEntropySearch(estimate="other").build(discrete_belief(0, 0.1), generator())
