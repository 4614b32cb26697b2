"""Measures the errors of the entropy estimates, by comparison with plain sampling, for docs/entropy.md.

    python benchmarks/entropy_errors.py                  all posteriors, ten minutes; adds to results/entropy.json.xz
    python benchmarks/entropy_errors.py --posteriors 1   only one posterior

For every posterior, the function values at 4 states × 8 actions and the observation at a candidate are drawn jointly
and counted, which gives the true mutual informations.  They are then estimated with several seeds.  The estimates'
settings were chosen on posteriors like the first half.  `scripts/update_reproduction.py` creates the table.
"""

import argparse
import json
import lzma
from math import sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from conbo.acquisition.entropy import EntropySearch, MaxValueEntropySearch, PredictiveEntropySearch
from conbo.acquisition.entropy_estimates import log_ratio
from conbo.belief import Belief
from conbo.bound_states import bind
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior, condition
from conbo.models.factorization import cholesky
from conbo.models.kernels import Factor, ProductKernel
from conbo.observations import Observations
from conbo.quasi_random import sobol
from conbo.spaces import Integer, Space

RESULTS = Path(__file__).parents[1] / "results/entropy.json.xz"
SPACE = Space(states={"s": Integer(1, 4)}, actions={"x": Integer(1, 8)})
STATES, ACTIONS = (torch.from_numpy(p["sx"[i]].levels()) for i, p in enumerate((SPACE.states, SPACE.actions)))
NOISES = (0.002, 0.01, 0.03, 0.1, 0.3)  # noise variances; the prior variance is 1
OBSERVED, CANDIDATES = 6, 8  # numbers of observations and of candidates
SAMPLES, AT_ONCE, CELLS = 3_000_000, 100_000, 250  # number of draws, draws per pass, and bins of a value
SEEDS = 6  # number of seeds of every estimate
ESTIMATES: dict[str, Any] = {
    "ES, retrospective, 512": EntropySearch(draws=512),
    "ES, retrospective, 2048": EntropySearch(draws=2048),
    "ES, retrospective, 4096 (default)": EntropySearch(),
    "PES, density, 512": PredictiveEntropySearch(draws=512),
    "PES, density, 4096": PredictiveEntropySearch(draws=4096),
    "PES, density, 8192 (default)": PredictiveEntropySearch(),
    "PES, moments, 8192": PredictiveEntropySearch(estimate="moments"),
    "MES, density, 4096": MaxValueEntropySearch(draws=4096),
    "MES, density, 8192": MaxValueEntropySearch(draws=8192),
    "MES, density, 16384 (default)": MaxValueEntropySearch(),
    "MES, moments, 16384": MaxValueEntropySearch(estimate="moments"),
}


def posterior_of(number: int) -> Belief:
    """Return a belief with a few noisy observations of a function that is drawn from the belief's prior.

    `number` determines the noise variance, the points and the function.
    """
    noise = NOISES[number % len(NOISES)]
    kernel = ProductKernel(*(Factor(Columns((0,)), torch.tensor([length]).double()) for length in (0.4, 0.3)), 1.0)
    points = torch.from_numpy(SPACE.snap(sobol(OBSERVED, 2, seed=number).numpy()))
    scaled = kernel.scaled(points)
    covariance = kernel.covariance(scaled, scaled) + noise * torch.eye(OBSERVED, dtype=torch.float64)
    normal = torch.randn(OBSERVED, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    rewards = cholesky(covariance) @ normal
    fitted = condition(kernel, 0.0, noise, points, rewards)
    return Belief(SPACE, bind(None, SPACE), Observations(points, rewards, points[:0]), fitted, 0.0, 1.0)


def sampled(posterior: ExactPosterior, candidates: Tensor, samples: int) -> Tensor:
    """Return mutual informations I(y; x*) and I(y; y*) for each of c candidates and m states, as a tensor (c, m, 2).

    Here y is the observation at the candidate, x* the best action of the state, and y* the highest function value in
    the state. They are drawn jointly, and counted in bins.
    """
    grid, seeds = torch.cartesian_prod(STATES, ACTIONS), torch.Generator().manual_seed(99)
    joint = torch.cat([grid, candidates])
    eye = torch.eye(len(joint), dtype=torch.float64)
    root, mean = cholesky(posterior.covariance(joint, joint) + 1e-10 * eye), posterior.mean(joint)
    sd = (posterior.variance(candidates) + posterior.noise).sqrt()
    c, s, x = len(candidates), len(STATES), len(ACTIONS)
    tables = [torch.zeros(c, s, CELLS, width, dtype=torch.float64) for width in (x, CELLS)]
    edges: Tensor | None = None
    for _ in range(samples // AT_ONCE):
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
                tables[0][k, i] += _counted(cell[:, k], best_action[:, i], x)
                tables[1][k, i] += _counted(cell[:, k], value_cell[i], CELLS)
    # the bias of plug-in estimates, to first order (Miller & Madow)
    total = samples // AT_ONCE * AT_ONCE
    bias = [((t.sum(-2) > 0).sum(-1) - 1) * (CELLS - 1) / (2 * total) for t in tables]
    informations = [(t / total * log_ratio(t / total)).sum((-2, -1)) for t in tables]
    return torch.stack([i - b for i, b in zip(informations, bias, strict=True)], -1)


def measured(number: int, samples: int) -> dict[str, Any]:
    """Return the true mutual informations for one posterior, and all estimates of them."""
    belief = posterior_of(number)
    assert isinstance(belief.posterior, ExactPosterior)
    candidates = torch.from_numpy(SPACE.snap(sobol(CANDIDATES, 2, seed=1000 + number).numpy()))
    truth = sampled(belief.posterior, candidates, samples)
    states = STATES[:, None].expand(CANDIDATES, -1, -1)
    estimates: dict[str, list[list[float]]] = {}
    for name, recipe in ESTIMATES.items():
        for seed in range(SEEDS):
            ahead = recipe.build(belief, torch.Generator().manual_seed(seed)).at(states)
            values = ahead(candidates, torch.arange(CANDIDATES)).values
            estimates.setdefault(name, []).append(_rounded(values))
    about = {"x*": _rounded(truth[..., 0]), "y*": _rounded(truth[..., 1])}
    return {"posterior": number, "noise": belief.posterior.noise, "truth": about, "estimates": estimates}


def _counted(a: Tensor, b: Tensor, n_b: int) -> Tensor:
    return torch.bincount(a * n_b + b, minlength=CELLS * n_b).reshape(CELLS, n_b).to(torch.float64)


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.flatten().tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posteriors", type=int, default=2 * len(NOISES))
    parser.add_argument("--samples", type=int, default=SAMPLES, help="number of draws for the true mutual informations")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    lines = lzma.decompress(given.out.read_bytes()).decode().splitlines() if given.out.exists() else []
    for number in range(len(lines), given.posteriors):
        lines.append(json.dumps(measured(number, given.samples)))
        print(f"posterior {number} of {given.posteriors}", flush=True)
        given.out.write_bytes(lzma.compress("\n".join([*lines, ""]).encode(), preset=9))


if __name__ == "__main__":
    main()
