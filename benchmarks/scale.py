"""How time and memory of an ask grow with the number of rewards, and how much reward the approximate model costs.

    python benchmarks/scale.py                              500, 2,000, 5,000 and 50,000 rewards, about 15 minutes
    python benchmarks/scale.py --sizes 500 2000 --no-regret some sizes only
    python benchmarks/scale.py --device cuda --json         on a GPU, as JSON
    python benchmarks/scale.py --peers                      BoTorch and Optuna as well, up to 2,000 rewards

There are two state parameters and six action parameters, and rewards are noisy.  `ask_s` is the mean wall time of the
ten asks up to n rewards, including the fit of the first ask and any later fits; `cpu_s` is the mean processor time of
these asks, which depends less on other load.  `fit_s` and `suggest_s` are the parts of `ask_s`, and `first_s` is the
time of the first ask.  Every size runs in its own process, whose peak memory is `peak_mib`.  `regret_ratio`, up to
5,000 rewards, is the opportunity cost of the approximate model's policy divided by that of the exact model's policy,
averaged over three problems.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from parts import Row, show
from torch import Tensor

from conbo.belief import Belief, fit_belief, standardized
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.approximate import MOST_EXACT, approximate, summarized
from conbo.models.exact import ExactPosterior, variances_at
from conbo.observations import Observations
from conbo.optimizer import Optimizer
from conbo.policies.gp_argmax import GpArgmax
from conbo.quasi_random import sobol
from conbo.spaces import Real, Space
from conbo.threads import threads_for
from conbo.trials import Outcomes, Trial

SIZES = (500, 2000, 5000, 50_000)
PEER_SIZES = {"botorch": 2000, "optuna": 2000}  # largest numbers of rewards; with more, an ask takes many minutes
ASKS = 10  # number of asks that are timed
D_S, D_X = 2, 6
SPACE = Space(states={f"s{i}": Real(0, 1) for i in range(D_S)}, actions={f"x{i}": Real(0, 1) for i in range(D_X)})
TEST_STATES = 128


def tracking(s: Tensor, x: Tensor) -> Tensor:
    """Return a reward whose best action is a smooth curve over the state; some actions matter more than others."""
    curves = [0.5 + 0.3 * torch.sin(3 * s[..., 0] + i) * torch.cos(2 * s[..., 1] - i) for i in range(D_X)]
    return -(torch.tensor([4.0, 2.0, 1.0, 1.0, 0.5, 0.25]).to(x) * (x - torch.stack(curves, -1)) ** 2).sum(-1)


def peaks(s: Tensor, x: Tensor) -> Tensor:
    """Return a reward with two peaks over the actions; the state determines which is higher."""
    first = torch.stack([0.3 + 0.2 * s[..., 0]] * 3 + [0.6 - 0.2 * s[..., 1]] * 3, -1)
    second = torch.stack([0.8 - 0.2 * s[..., 1]] * 3 + [0.2 + 0.2 * s[..., 0]] * 3, -1)
    left = (1 + 0.5 * torch.sin(4 * s[..., 0])) * torch.exp(-4 * ((x - first) ** 2).sum(-1))
    return left + (1 + 0.5 * torch.cos(4 * s[..., 1])) * torch.exp(-4 * ((x - second) ** 2).sum(-1))


def ripples(s: Tensor, x: Tensor) -> Tensor:
    """Return a reward with a quadratic peak over the actions, to which waves are added."""
    middle = 0.5 + 0.25 * torch.sin(4 * s.sum(-1, keepdim=True) + torch.arange(D_X).to(x))
    waves = 1.5 * torch.cos(6 * (x - middle)).mean(-1) + 0.3 * torch.sin(5 * x[..., 0] * s[..., 0])
    return waves - ((x - middle) ** 2).sum(-1)


PROBLEMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float]] = {
    "tracking": (tracking, 0.3),
    "peaks": (peaks, 0.2),
    "ripples": (ripples, 0.4),
}


def data(name: str, n: int, seed: int = 0) -> Observations:
    """Return n random points with noisy rewards of the problem `name`."""
    generator, (function, noise) = torch.Generator().manual_seed(seed), PROBLEMS[name]
    points = torch.rand(n, D_S + D_X, generator=generator, dtype=torch.float64)
    errors = noise * torch.randn(n, generator=generator, dtype=torch.float64)
    return Observations(points, function(points[:, :D_S], points[:, D_S:]) + errors, points[:0])


def best_rewards(name: str, states: Tensor) -> Tensor:
    """Return the highest expected rewards (m,) in states (m, d_s).

    They are found by gradient ascent from the eight best of many random actions.
    """
    function, generator = PROBLEMS[name][0], torch.Generator().manual_seed(1)
    actions = torch.rand(len(states), 2048, D_X, generator=generator, dtype=torch.float64)
    top = function(states[:, None], actions).topk(8, 1).indices
    actions = actions.gather(1, top[..., None].expand(-1, -1, D_X)).requires_grad_(True)
    adam = torch.optim.Adam([actions], lr=0.02)
    for _ in range(300):
        adam.zero_grad()
        (-function(states[:, None], actions).sum()).backward()  # type: ignore[no-untyped-call]
        adam.step()
        with torch.no_grad():
            actions.clamp_(0, 1)
    return function(states[:, None], actions.detach()).amax(1)


def regret_ratio(n: int) -> float:
    """Return the opportunity cost with inducing points, divided by that with the exact posterior.

    Both have the same data and hyperparameters. The ratio is averaged over all problems.
    """
    states, ratios = sobol(TEST_STATES, D_S, seed=5), []
    for name, (function, _) in PROBLEMS.items():
        told, best = data(name, n), best_rewards(name, states)
        with threads_for(n), torch.no_grad():
            exact = fit_belief(SPACE, bind(None, SPACE), told, GaussianProcess(output_warping="none", members=1))
            posterior, seen = exact.posterior, standardized(told, exact.shift, exact.scale)
            assert isinstance(posterior, ExactPosterior)
            variances, residuals = variances_at(seen.points, posterior.noise), seen.rewards - posterior.constant
            summary = summarized(posterior.kernel, seen.points, residuals, variances)
            by_few = approximate(posterior.kernel, posterior.constant, posterior.noise, summary)
            costs = []
            for model in (by_few, posterior):
                belief = Belief(SPACE, exact.states, told, model, exact.shift, exact.scale)
                actions = GpArgmax().build(belief, torch.Generator().manual_seed(0))(states)
                costs.append(float((best - function(states, actions)).mean()))
        ratios.append(costs[0] / costs[1])
    return statistics.mean(ratios)


def started(n: int, device: str) -> tuple[Optimizer, Observations]:
    """Return an optimizer that was told n rewards, and these n observations followed by ASKS further ones."""
    more = data("ripples", n + ASKS)
    optimizer = Optimizer(SPACE, seed=0, initial=1, device=device)
    points = more.points[:n].numpy()
    pairs = zip(SPACE.decode_states(points[:, :D_S]), SPACE.decode_actions(points[:, D_S:]), strict=True)
    rewards = more.rewards[:n].tolist()
    optimizer.restore(
        Trial(number, state, action).told(Outcomes(reward, None, {}))
        for (number, (state, action)), reward in zip(enumerate(pairs), rewards, strict=True)
    )
    return optimizer, more


def asks(n: int, device: str, regret: bool) -> Row:
    """Time ten successive asks, the last of them with n rewards."""
    warm, _ = started(30, device)  # loads libraries and compiles loops before anything is timed
    warm.ask()
    optimizer, more = started(n - ASKS + 1, device)
    fits, suggestions, wall, processor = [], [], time.perf_counter(), time.process_time()
    for k in range(ASKS):
        begun = time.perf_counter()
        optimizer.fit()
        fitted = time.perf_counter()
        (trial,) = optimizer.ask()
        fits.append(fitted - begun)
        suggestions.append(time.perf_counter() - fitted)
        optimizer.tell(trial, float(more.rewards[n - ASKS + 1 + k]))
    row: Row = {
        "who": "conbo",
        "n": n,
        "dimensions": f"{D_S}+{D_X}",
        "device": device,
        "ask_s": (time.perf_counter() - wall) / ASKS,
        "cpu_s": (time.process_time() - processor) / ASKS,
        "fit_s": statistics.mean(fits),
        "suggest_s": statistics.mean(suggestions),
        "first_s": fits[0] + suggestions[0],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10),
    }
    return row | {"regret_ratio": regret_ratio(n) if regret and n <= MOST_EXACT else None}


def peer_ask(who: str, n: int) -> Row:
    """Time one ask of another library, which consists of a fit and a suggestion."""
    warnings.simplefilter("ignore")
    told = data("ripples", n)
    rewards = (told.rewards - told.rewards.mean()) / told.rewards.std()
    if who == "optuna":
        from peers import optuna_asks

        first = fit_belief(SPACE, bind(None, SPACE), told.first(20), GaussianProcess())
        ask = optuna_asks(replace(first, observations=told))
    else:
        ask = botorch_ask(told.points, rewards)
    wall, processor = time.perf_counter(), time.process_time()
    ask()
    seconds, cpu = time.perf_counter() - wall, time.process_time() - processor
    return {"who": who, "n": n, "dimensions": f"{D_S}+{D_X}", "device": "cpu", "ask_s": seconds, "cpu_s": cpu}


def botorch_ask(points: Tensor, rewards: Tensor) -> Callable[[], Any]:
    """Return a function that fits a SingleTaskGP once and maximizes qLogEI."""
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    def ask() -> None:
        model = SingleTaskGP(points, rewards[:, None], outcome_transform=None)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = qLogExpectedImprovement(model, best_f=rewards.max())
        bounds = torch.stack([torch.zeros(D_S + D_X), torch.ones(D_S + D_X)]).double()
        optimize_acqf(acquisition, bounds, q=1, num_restarts=10, raw_samples=512)

    return ask


def measured(arguments: list[str]) -> Row:
    """Run this program in a new process with these arguments, and return the row that it prints."""
    command = [sys.executable, __file__, "--alone", *arguments]
    row: Row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-regret", action="store_true", help="leave the comparison with the exact model out")
    parser.add_argument("--peers", action="store_true", help="BoTorch and Optuna as well")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--alone", metavar="WHO", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        (n,) = arguments.sizes
        ours = arguments.alone == "conbo"
        row = asks(n, arguments.device, not arguments.no_regret) if ours else peer_ask(arguments.alone, n)
        print(json.dumps(row))
        return
    whole = ["--device", arguments.device, *(["--no-regret"] if arguments.no_regret else [])]
    rows = [measured(["conbo", "--sizes", str(n), *whole]) for n in arguments.sizes]
    if arguments.peers:
        pairs = [(who, n) for who, most in PEER_SIZES.items() for n in arguments.sizes if n <= most]
        rows += [measured([who, "--sizes", str(n)]) for who, n in pairs]
    print(json.dumps(rows, indent=2)) if arguments.json else show(rows)


if __name__ == "__main__":
    main()
