"""Compares one-shot optimization of the hybrid knowledge gradient with the nested optimization that conbo uses.

    python benchmarks/one_shot.py

One-shot optimization searches for the candidate and for all look-ahead maximizers together: d + 20 · 5 · d_x variables
(L-BFGS-B, autograd), starting from the first maximizers of the nested form. It maximizes the paper's lower bound KG_h,
from the first four of the ten starts of the nested search, which drops all but four of them early. The results of both
are compared by a more accurate estimate of the acquisition function.
"""

import statistics
import time
import warnings

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from conbo.acquisition.expected_max import expected_max
from conbo.acquisition.integral_over_states import ConBO, ConditionalAcquisition
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.acquisition.quadrature_states import StratifiedStates
from conbo.ascent import SuccessiveHalving, ascend
from conbo.belief import Belief
from conbo.models.exact import ExactPosterior
from conbo.models.kernels import ProductKernel
from conbo.proposals.maximizer import FIRST_STEP, RELATIVE_GAIN, box, screening_points, spread_best
from random_beliefs import random_belief

DIMENSIONS = ((1, 1), (2, 6), (1, 8))
SEEDS, STARTS, CLIMBED, ITERATIONS = 4, 10, 4, 60
N_Z = 5


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return Matérn-5/2 correlations between scaled features, differentiable even where two points coincide."""
    squared = (a[..., :, None, :] - b[..., None, :, :]).square().sum(-1)
    r = (squared + 1e-24).sqrt()
    return (1 + r + squared / 3) * torch.exp(-r)


def one_shot(belief: Belief, acquisition: ConditionalAcquisition, start: Tensor) -> Tensor:
    """Return the candidate (d,) at which the one-shot search from one start ends."""
    posterior, d = belief.posterior, len(start)
    assert isinstance(posterior, ExactPosterior)
    kernel = posterior.kernel
    assert isinstance(kernel, ProductKernel)
    chosen = acquisition.states_of(start[None])
    states, weights = kernel.states.scaled(chosen.states[0]), chosen.weights[0]
    lines = acquisition.value.at(chosen.states)(start[None], torch.zeros(1, dtype=torch.long)).lines
    first = (lines.actions[0] / kernel.actions.feature_scales).clamp(0, 1)  # (m, q, d_x)
    now = lines.mean[0].amax(-1)
    scale = kernel.outputscale * correlation(states, posterior.states)  # (m, n)

    def negated(variables: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.tensor(variables, requires_grad=True)
        own_state, own_action = kernel.scaled(x[None, :d])
        actions = x[d:].view_as(first) * kernel.actions.feature_scales
        flat = actions.flatten(0, 1)
        new = kernel.outputscale * correlation(posterior.states, own_state) * correlation(posterior.actions, own_action)
        solved = posterior.solve(new)
        sd = (kernel.outputscale - (new * solved).sum() + posterior.noise).sqrt()
        shape = actions.shape[:2]
        known = correlation(flat, posterior.actions).unflatten(0, shape)  # (m, q, n)
        mean = posterior.constant + (known * (scale * posterior.weights)[:, None]).sum(-1)
        own = kernel.outputscale * correlation(states, own_state) * correlation(flat, own_action).view(shape)
        slope = (own - (known * (scale * solved[:, 0])[:, None]).sum(-1)) / sd
        value = (weights * (expected_max(mean, slope).gain + mean.amax(-1) - now)).sum()
        value.backward()
        assert x.grad is not None
        return -1e3 * value.item(), -1e3 * x.grad.numpy()  # scaled, because small values would end the search at once

    variables = np.concatenate([start.numpy(), first.flatten().numpy()])
    bounds = [(0, 1)] * len(variables)
    found = minimize(negated, variables, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS})
    return torch.from_numpy(found.x[:d])


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{'dimensions':>10}  {'cost of one-shot / nested':>26}  {'value of one-shot / nested':>26}")
    for d_s, d_x in DIMENSIONS:
        costs, values = [], []
        for seed in range(SEEDS):
            belief = random_belief(d_s, d_x, 100, seed)
            generator = torch.Generator().manual_seed(seed)
            acquisition = ConBO(HybridKG(N_Z)).build(belief, generator)
            paper = ConBO(HybridKG(N_Z, spread=1.0, estimate="lower")).build(belief, generator)
            judge = ConBO(HybridKG(9), StratifiedStates(64)).build(belief, torch.Generator().manual_seed(seed + 99))
            candidates = screening_points(belief, 512, generator)
            screened = acquisition.screen(candidates)
            starts = candidates[spread_best(belief, candidates, screened, STARTS)]
            began = time.process_time()
            tolerance = RELATIVE_GAIN * float(screened.amax())
            halving = SuccessiveHalving(4, CLIMBED)
            nested = ascend(acquisition.local(starts), starts, *box(starts, None), 40, FIRST_STEP, tolerance, halving)
            middle = time.process_time()
            joint = torch.stack([one_shot(belief, paper, start) for start in starts[:CLIMBED]])
            costs.append((time.process_time() - middle) / (middle - began))
            ends = nested.points[nested.values.argsort(descending=True)[:CLIMBED]]
            values.append(float(judge(joint).amax() / judge(ends).amax()))
        print(
            f"{f'{d_s}+{d_x}':>10}  {statistics.median(costs):>26.1f}  {statistics.median(values):>26.3f}", flush=True
        )


if __name__ == "__main__":
    main()
