"""How long a suggestion and a fit take with hundreds of categorical states, compared with BoTorch and with five states.

    python benchmarks/many_states.py                       everything, in a few minutes
    python benchmarks/many_states.py suggestion fit        some parts only
    python benchmarks/many_states.py --quick --json        fewer repetitions, as JSON

Parts: states (a suggestion with 500 states compared with one with 5, and its memory), fit (the trend kernel compared
with BoTorch's MultiTaskGP), suggestion (compared with optimize_acqf and qLogEI on the same model), accuracy (of the
integral over states with twenty states instead of all), search (the value of a suggestion compared with that of a far
larger search). There are always seven action parameters.  Torch uses one thread, and runs of conbo alternate with those
that it is compared with.  Figures are medians of processor time, which hardly depends on other load, and of wall time.
"""

import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import sqrt
from typing import Any

import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP, SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.kernels import IndexKernel, MaternKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from parts import Parts, Row, command_line, run
from torch import Tensor

from conbo.acquisition.integral_over_states import ConBO, ConditionalAcquisition
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.acquisition.quadrature_states import ExactStates
from conbo.belief import Belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.method_table import METHODS
from conbo.models.category_kernels import CategoryKernel, Trend
from conbo.models.columns import Columns
from conbo.models.exact import ExactPosterior, condition
from conbo.models.factorization import cholesky
from conbo.models.fit import fit
from conbo.models.kernels import Factor
from conbo.models.structures import Structures
from conbo.observations import Observations
from conbo.spaces import Categorical, Real, Space

ACTIONS = 7
TREND, DIFFERENCE, CONSTANT, NOISE = 1.0, 0.4, 0.2, 1e-2  # variances of the trend kernel and of the noise
CONBO = METHODS["conbo"].proposal
Times = dict[str, list[tuple[float, float]]]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def discrete_belief(n_states: int, n: int, seed: int, trend: float = TREND, difference: float = DIFFERENCE) -> Belief:
    """Return a belief with n noisy observations, at random points, of a function drawn from the trend kernel."""
    space = Space(
        states={"dataset": Categorical(range(n_states))}, actions={f"x{i}": Real(0, 1) for i in range(ACTIONS)}
    )
    states = Factor(Columns((n_states,), coded=True), torch.ones(1, dtype=torch.float64))
    actions = Factor(Columns((0,) * ACTIONS), torch.full((ACTIONS,), 0.5 * sqrt(ACTIONS / 2), dtype=torch.float64))
    kernel = CategoryKernel(states, actions, Trend(trend, difference), CONSTANT)
    drawn = torch.rand(n, 1 + ACTIONS, generator=generator(seed), dtype=torch.float64)
    points = torch.from_numpy(space.snap(drawn.numpy()))
    scaled = kernel.scaled(points)
    covariance = kernel.covariance(scaled, scaled) + NOISE * torch.eye(n, dtype=torch.float64)
    rewards = cholesky(covariance) @ torch.randn(n, generator=generator(seed + 1), dtype=torch.float64)
    posterior = condition(kernel, 0.0, NOISE, points, rewards)
    return Belief(space, bind(None, space), Observations(points, rewards, points[:0]), posterior, 0.0, 1.0)


def numbered(belief: Belief) -> Tensor:
    """Return the observed points with the number of the state in the first column, as BoTorch's kernels need them."""
    points = belief.observations.points.clone()
    points[:, 0] = (points[:, 0] * belief.space.state_categories[0]).floor()
    return points


def same_model(belief: Belief) -> SingleTaskGP:
    """Return a BoTorch model with the same posterior as a belief, with fixed hyperparameters."""
    posterior, count = belief.posterior, belief.space.state_categories[0]
    assert isinstance(posterior, ExactPosterior)

    def index(shared: float, own: float) -> IndexKernel:
        kernel = IndexKernel(num_tasks=count, rank=1, active_dims=[0]).double()
        kernel.covar_factor.data.fill_(sqrt(shared))
        kernel.var = torch.full((count,), own, dtype=torch.float64)
        return kernel

    actions = MaternKernel(nu=2.5, ard_num_dims=ACTIONS, active_dims=list(range(1, 1 + ACTIONS))).double()
    actions.lengthscale = posterior.kernel.actions.lengthscales
    kernel = index(TREND, DIFFERENCE) * actions + index(0.0, CONSTANT)
    rewards = belief.observations.rewards[:, None]
    model = SingleTaskGP(numbered(belief), rewards, covar_module=kernel, outcome_transform=None)
    model.likelihood.noise = NOISE
    model.mean_module.constant.data.fill_(0.0)
    model.requires_grad_(False)
    return model.eval()


def measure(times: Times, name: str, function: Callable[[], Any]) -> None:
    wall, processor = time.perf_counter(), time.process_time()
    function()
    times.setdefault(name, []).append((time.process_time() - processor, time.perf_counter() - wall))


def compared(times: Times, ours: str, theirs: str) -> Row:
    """Return the median times by name in milliseconds, and the ratios of the times of `ours` to those of `theirs`."""
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in times.items()}
    row: Row = {}
    for name, (processor, wall) in medians.items():
        row |= {f"{name}_cpu_ms": 1e3 * processor, f"{name}_wall_ms": 1e3 * wall}
    pairs = zip(medians[ours], medians[theirs], strict=True)
    cpu, wall = (mine / other for mine, other in pairs)
    return row | {"ratio": cpu, "wall_ratio": wall}


def states(quick: bool) -> Iterable[Row]:
    """Time a suggestion at 2,000 observations with hundreds of states and with five, and report the peak memory."""
    few = discrete_belief(5, 2000, 0)
    for count in (500,) if quick else (50, 200, 500, 1000):
        many, times = discrete_belief(count, 2000, 0), Times()
        for seed in range(3 if quick else 7):
            measure(times, "few", lambda seed=seed: CONBO.propose(few, 1, generator(seed)))
            measure(times, "many", lambda seed=seed, many=many: CONBO.propose(many, 1, generator(seed)))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        yield {"states": count, "n": 2000, **compared(times, "many", "few"), "peak_gib": memory}


def fits(quick: bool) -> Iterable[Row]:
    """Time a fit to 100 observations, compared with BoTorch's MultiTaskGP of full rank (its default) and low rank."""
    for name, rank in (("trend", None), ("trend", 1), ("multi-task", 2)):
        times = Times()
        for seed in range(1 if quick else 5):
            belief = discrete_belief(5, 100, seed)
            points, rewards = belief.observations.points, belief.observations.rewards
            rewards = (rewards - rewards.mean()) / rewards.std()
            family, *_ = GaussianProcess("matern52", name).structures(belief.space).plain
            model = MultiTaskGP(numbered(belief), rewards[:, None], task_feature=0, rank=rank, outcome_transform=None)
            mll = ExactMarginalLogLikelihood(model.likelihood, model)
            measure(times, "conbo", lambda f=family, p=points, r=rewards: fit(Structures((f,)), p, r))
            measure(times, "botorch", lambda mll=mll: fit_gpytorch_mll(mll))
        yield {
            "kernel": f"{name:>12}",
            "peer_rank": rank or 5,
            "states": 5,
            "n": 100,
            **compared(times, "conbo", "botorch"),
        }


def suggestion(quick: bool) -> Iterable[Row]:
    """Time a suggestion, without fitting, compared with optimize_acqf and qLogEI (10 restarts, 512 raw samples)."""
    for n in (100,) if quick else (50, 100, 200):
        times = Times()
        for seed in range(3 if quick else 9):
            belief = discrete_belief(5, n, seed)
            model, best = same_model(belief), belief.observations.rewards.max()
            bounds = torch.tensor([[0.0] * (1 + ACTIONS), [4.999] + [1.0] * ACTIONS], dtype=torch.float64)

            def peer(model: SingleTaskGP = model, best: Tensor = best, bounds: Tensor = bounds) -> None:
                acquisition = qLogExpectedImprovement(model, best_f=best)
                optimize_acqf(acquisition, bounds, q=1, num_restarts=10, raw_samples=512)

            measure(times, "conbo", lambda b=belief, s=seed: CONBO.propose(b, 1, generator(s)))
            measure(times, "qlogei", peer)
        yield {"states": 5, "n": n, **compared(times, "conbo", "qlogei")}


def accuracy(quick: bool) -> Iterable[Row]:
    """Measure the root mean square error, in percent, of integrals with twenty states instead of all states."""
    for count in (100,) if quick else (100, 500):
        for trend, difference in ((1.0, 0.4), (1.0, 0.05), (0.2, 1.0)):
            errors = []
            for seed in range(2 if quick else 4):
                belief = discrete_belief(count, 100, seed, trend, difference)
                points = discrete_belief(count, 8, seed + 50).observations.points
                truth = exact_sum(belief, seed)(points)
                errors.append((ConBO(HybridKG()).build(belief, generator(seed)).integral(points) - truth) / truth)
            rms = 100 * float(torch.cat(errors).square().mean().sqrt())
            yield {"states": count, "trend": trend, "difference": difference, "rms_percent": rms}


def exact_sum(belief: Belief, seed: int) -> ConditionalAcquisition:
    """Return the acquisition function of the method 'conbo', summed over all states."""
    sampled = ConBO(HybridKG()).build(belief, generator(seed))
    assert not isinstance(sampled.rule, ExactStates)
    return ConditionalAcquisition(belief, sampled.value, ExactStates(sampled.rule.pool, sampled.rule.pool_weights))


def search(quick: bool) -> Iterable[Row]:
    """Measure the value of a suggestion for 500 states, divided by the value that a far larger search finds."""
    # with so many states, a search screens twice as many points as it is told
    larger = replace(CONBO, screened=2**13, starts=64, finalists=32, halving=None)
    for n in (100,) if quick else (100, 2000):
        shares = []
        for seed in range(4 if quick else 20):
            belief = discrete_belief(500, n, seed)
            found = [method.propose(belief, 1, generator(seed)).points for method in (CONBO, larger)]
            value, best = exact_sum(belief, seed)(torch.cat(found)).tolist()
            shares.append(value / max(value, best))
        yield {
            "states": 500,
            "n": n,
            "beliefs": len(shares),
            "at_least_0.9": sum(share >= 0.9 for share in shares),
            "median": statistics.median(shares),
            "lowest": min(shares),
        }


PARTS: Parts = {
    "states": states,
    "fit": fits,
    "suggestion": suggestion,
    "accuracy": accuracy,
    "search": search,
}


def main() -> None:
    arguments = command_line(__doc__, PARTS).parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    CONBO.propose(discrete_belief(5, 20, 0), 1, generator(0))  # compiles the loops before anything is timed
    run(PARTS, arguments.parts, arguments.quick, arguments.json)


if __name__ == "__main__":
    main()
