"""How long a policy takes for many states and for one, and the posterior mean compared with GPyTorch's fast path.

Figures are processor times with one torch thread, the best of several rounds in which the functions alternate.

python benchmarks/policy_cost.py [--json]
"""

import argparse
import json
import time
from collections.abc import Callable

import gpytorch
import numpy as np
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, ScaleKernel
from torch import Tensor

from conbo.models.columns import Columns
from conbo.models.exact import condition
from conbo.models.kernels import Factor, ProductKernel
from conbo.problems import branin
from conbo.study import Study

REPEATS = 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    torch.set_num_threads(1)
    result = {**policy_cost(), **mean_cost()}
    if parser.parse_args().json:
        print(json.dumps(result))
        return
    one, many, ours, theirs = (
        f"{1e3 * result[key]:9.2f} ms" for key in ("one_state_s", "many_states_s", "mean_s", "gpytorch_mean_s")
    )
    print(
        "Policy of Branin at n = 100, without any remembered answer\n"
        f"  1 state         {one}\n"
        f"  10,000 states   {many}, {result['states_ratio']:.0f} times as much\n"
        "Posterior mean of 100,000 points at n = 200\n"
        f"  conbo           {ours}\n"
        f"  GPyTorch        {theirs}, {result['mean_ratio']:.2f} times as much\n"
        f"  difference      {result['mean_difference']:9.1e}"
    )


def policy_cost() -> dict[str, float]:
    problem, generator = branin(), np.random.default_rng(0)
    study = Study(problem.space, method="uniform", state_distribution=problem.state_distribution)
    study.run(lambda s, x: problem.evaluate(s, x, generator), evaluations=100, progress=False)
    policy = study.policy()
    many = [{"s": s} for s in np.linspace(-5, 10, 10_000).tolist()]
    one_s, many_s = fastest(lambda: policy.many([{"s": 2.5}]), lambda: policy.many(many), before=policy.wipe_cache)
    return {"one_state_s": one_s, "many_states_s": many_s, "states_ratio": many_s / one_s}


def mean_cost(n: int = 200, d: int = 4) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(n, d, generator=generator, dtype=torch.float64)
    rewards = torch.sin(points.sum(-1) * 3)
    queries = torch.rand(100_000, d, generator=generator, dtype=torch.float64)

    half = d // 2
    lengthscales = torch.full((half,), 0.5, dtype=torch.float64)
    factor = Factor(Columns((0,) * half), lengthscales)
    posterior = condition(ProductKernel(factor, factor), 0.0, 1e-2, points, rewards)
    theirs = gpytorch_mean(points, rewards, half)

    with torch.no_grad():
        difference = (posterior.mean(queries) - theirs(queries)).abs().max()
        ours_s, theirs_s = fastest(lambda: posterior.mean(queries), lambda: theirs(queries))
    return {
        "mean_s": ours_s,
        "gpytorch_mean_s": theirs_s,
        "mean_ratio": theirs_s / ours_s,
        "mean_difference": float(difference),
    }


def gpytorch_mean(points: Tensor, rewards: Tensor, half: int) -> Callable[[Tensor], Tensor]:
    """Return GPyTorch's posterior mean with the same kernel as conbo's, and with cached solves.

    The kernel is a product of two, over the first and the last `half` columns. Points are split into chunks of 256,
    with which GPyTorch is fastest.
    """
    kernels = [MaternKernel(active_dims=tuple(range(i * half, (i + 1) * half))) for i in range(2)]
    model = SingleTaskGP(
        points, rewards[:, None], covar_module=ScaleKernel(kernels[0] * kernels[1]), outcome_transform=None
    )
    model.likelihood.noise = 1e-2
    model.covar_module.outputscale = 1.0
    model.mean_module.constant = 0.0
    for kernel in kernels:
        kernel.lengthscale = 0.5
    model.double().eval()

    def mean(queries: Tensor) -> Tensor:
        with gpytorch.settings.fast_pred_var(), gpytorch.settings.skip_posterior_variances():
            return torch.cat([model(chunk).mean for chunk in queries.split(256)])  # type: ignore[no-untyped-call]

    return mean


def fastest(*functions: Callable[[], object], before: Callable[[], None] = lambda: None) -> list[float]:
    """Return the least processor time (s) of each function over several calls, before each of which `before` is called.

    Processor time is summed over threads and hardly depends on other load.
    """
    times: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()  # compiles loops and fills caches before anything is timed
    for _ in range(REPEATS):
        for function, own in zip(functions, times, strict=True):
            before()
            began = time.process_time()
            function()
            own.append(time.process_time() - began)
    return [min(own) for own in times]


if __name__ == "__main__":
    main()
