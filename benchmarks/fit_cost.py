"""Compares a hyperparameter fit of the product kernel with BoTorch's `fit_gpytorch_mll` (same kernel, same priors).

python benchmarks/fit_cost.py [--json]
"""

import argparse
import json
import statistics
import time
import warnings
from math import log, sqrt

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior

from conbo.models.columns import Columns
from conbo.models.fit import fit
from conbo.models.heteroscedastic_noise import LOG_NOISE_BOUNDS
from conbo.models.hyperparameter_prior import LOG_LENGTHSCALE_BOUNDS, LOG_VARIANCE_BOUNDS
from conbo.models.kernel_families import ProductFamily
from conbo.models.log_posterior import LogPosterior
from conbo.models.structures import Structures

SIZES = [(1, 1), (2, 6), (1, 8)]
N_OBSERVATIONS = 100


def data(d_s: int, d_x: int, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(n, d_s + d_x, generator=generator, dtype=torch.float64)
    wave = torch.sin(3 * points[:, :d_s].sum(1) + 4 * points[:, d_s:].pow(2).mean(1) * d_x**0.5)
    rewards = wave + points.sum(1) * 0.3 + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
    return points, (rewards - rewards.mean()) / rewards.std()


def peer(points: torch.Tensor, rewards: torch.Tensor, d_s: int) -> ExactMarginalLogLikelihood:
    d = points.shape[1]

    def factor(columns: list[int]) -> MaternKernel:
        return MaternKernel(
            nu=2.5,
            ard_num_dims=len(columns),
            active_dims=columns,
            lengthscale_prior=LogNormalPrior(sqrt(2) + 0.5 * log(d), sqrt(3)),
            lengthscale_constraint=Interval(
                *(torch.tensor(b).exp().item() for b in LOG_LENGTHSCALE_BOUNDS),
                transform=None,
                initial_value=exp_mode(d),
            ),
        )

    kernel = ScaleKernel(
        factor(list(range(d_s))) * factor(list(range(d_s, d))),
        outputscale_prior=LogNormalPrior(0.0, 1.0),
        outputscale_constraint=Interval(
            *(torch.tensor(b).exp().item() for b in LOG_VARIANCE_BOUNDS), transform=None, initial_value=1.0
        ),
    )
    likelihood = GaussianLikelihood(
        noise_prior=LogNormalPrior(-6.0, 2.0),
        noise_constraint=Interval(
            *(torch.tensor(b).exp().item() for b in LOG_NOISE_BOUNDS), transform=None, initial_value=1e-2
        ),
    )
    model = SingleTaskGP(points, rewards[:, None], covar_module=kernel, likelihood=likelihood, outcome_transform=None)
    return ExactMarginalLogLikelihood(likelihood, model)


def exp_mode(d: int) -> float:
    return float(torch.tensor(sqrt(2) + 0.5 * log(d) - 3).exp())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    torch.set_num_threads(1)  # at this size, both are faster with one thread, and their times vary less
    for d_s, d_x in SIZES:
        ours, theirs, gains = [], [], []
        for seed in range(arguments.repeats):
            points, rewards = data(d_s, d_x, N_OBSERVATIONS, seed)
            family = ProductFamily(Columns((0,) * d_s), Columns((0,) * d_x))
            start = time.perf_counter()
            (ours_fit,) = fit(Structures((family,)), points, rewards, small_noise=True)
            ours.append(time.perf_counter() - start)
            mll = peer(points, rewards, d_s)
            start = time.perf_counter()
            fit_gpytorch_mll(mll)
            theirs.append(time.perf_counter() - start)
            # both results are compared by conbo's objective, at the hyperparameters that each has found
            kernel = mll.model.covar_module
            lengthscales = torch.cat([k.lengthscale.detach()[0] for k in kernel.base_kernel.kernels])
            parameters = torch.cat(
                [lengthscales, kernel.outputscale.detach()[None], mll.likelihood.noise.detach()]
            ).log()
            with torch.no_grad():
                target = LogPosterior(family, points, rewards, "small")
                gains.append(ours_fit.objective - float(target(parameters[None])[0]))
        row = {
            "dimensions": f"{d_s}+{d_x}",
            "n": N_OBSERVATIONS,
            "conbo_ms": 1e3 * statistics.median(ours),
            "botorch_ms": 1e3 * statistics.median(theirs),
            "ratio": statistics.median(ours) / statistics.median(theirs),
            "objective_gain_median": statistics.median(gains),
            "objective_gain_worst": min(gains),
        }
        rows.append(row)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        f"{'dimensions':>10} {'n':>5} {'conbo':>9} {'BoTorch':>9} {'ratio':>6} {'objective gain, median / worst':>32}"
    )
    for row in rows:
        print(
            f"{row['dimensions']:>10} {row['n']:>5} {row['conbo_ms']:>6.0f} ms {row['botorch_ms']:>6.0f} ms "
            f"{row['ratio']:>6.2f} {row['objective_gain_median']:>18.4f} / {row['objective_gain_worst']:.4f}"
        )


if __name__ == "__main__":
    main()
