"""Which kernel predicts best if some states are categories, on functions that were drawn from none of the kernels.

    python benchmarks/state_kernels.py                  a category and a number as state, in about ten minutes
    python benchmarks/state_kernels.py --no-number      categories only
    python benchmarks/state_kernels.py --quick --json   fewer repetitions, as JSON

Every row is a kind of function f(category, number, x) with two action parameters x.  Most kinds are weighted sums of a
random wave that all categories share, a different wave for each category, and a different constant for each category.
The others are two groups of categories, each with its own wave, and one wave that is shifted a little for each
category.  For every kernel, the row has the mean log density of the true values at new points, minus that of the
product kernel (higher is better), and the opportunity cost of the policy in standard deviations of f.
"""

import argparse
import json
import statistics
import warnings
from collections.abc import Callable, Iterable
from math import pi, sqrt
from typing import Any

import torch
from parts import show
from torch import Tensor

from conbo.belief import Belief, fit_belief
from conbo.bound_states import bind
from conbo.gaussian_process import GaussianProcess
from conbo.observations import Observations
from conbo.policies.gp_argmax import GpArgmax
from conbo.spaces import Categorical, Real, Space

MODELS = {name: GaussianProcess("matern52", name) for name in ("product", "trend", "multi-task")}
# weights of the wave that all categories share, of the categories' own waves, and of their constants
SUMS = {
    "category does not matter": (1.0, 0.0, 0.0),
    "levels differ": (1.0, 0.0, 1.5),
    "shapes differ": (1.0, 0.4, 0.0),
    "levels and shapes": (1.0, 0.4, 0.8),
    "nothing shared": (0.0, 1.0, 0.0),
    "nothing shared, levels": (0.0, 1.0, 1.0),
}
KINDS = (*SUMS, "two groups", "shifted")
WAVES, LENGTH = 200, 0.4  # number of cosines in a random wave, and its lengthscale
NOISE, FLOOR = 0.1, 1e-3  # standard deviation of the rewards' noise, and least variance of a prediction
Function = Callable[[Tensor, Tensor], Tensor]  # from categories (n,) and numbers with actions (n, d) to values (n,)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def wave(d: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Return a smooth random function that is rougher towards one corner, so that no stationary kernel fits exactly."""
    frequencies, amplitudes = normal(generator, WAVES, d) / LENGTH, normal(generator, WAVES) * sqrt(2 / WAVES)
    phases = 2 * pi * torch.rand(WAVES, generator=generator, dtype=torch.float64)
    return lambda z: torch.cos(z.clamp_min(0) ** 1.5 @ frequencies.mT + phases) @ amplitudes


def function(kind: str, categories: int, d: int, generator: torch.Generator) -> Function:
    common, waves = wave(d, generator), [wave(d, generator) for _ in range(categories)]
    levels, shifts = normal(generator, categories), 0.15 * normal(generator, categories, d)

    def own(k: Tensor, z: Tensor) -> Tensor:
        return torch.stack([w(z) for w in waves]).gather(0, k[None])[0]

    if kind == "two groups":
        return lambda k, z: own(k % 2, z)
    if kind == "shifted":
        return lambda k, z: common(z + shifts[k])
    shared, difference, level = SUMS[kind]
    return lambda k, z: shared * common(z) + difference * own(k, z) + level * levels[k]


def compared(kind: str, space: Space, n: int, seed: int) -> dict[str, tuple[float, float]]:
    """Fit every model to n rewards of a random function; return the log density and the opportunity cost, by model.

    The log density is the mean over new points, and the opportunity cost is that of the model's policy.
    """
    generator = torch.Generator().manual_seed(seed)
    categories, d_s = space.state_categories[0], space.n_state_dims
    d = d_s + space.n_action_dims
    f = function(kind, categories, d - 1, generator)

    def points(count: int) -> Tensor:
        return torch.from_numpy(space.snap(torch.rand(count, d, generator=generator, dtype=torch.float64).numpy()))

    def value(at: Tensor) -> Tensor:
        return f((at[:, 0] * categories).long(), at[:, 1:])

    told, new = points(n), points(1000)
    unit = value(new).std()
    rewards = value(told) / unit + NOISE * normal(generator, n)
    states, grid = points(24)[:, :d_s], points(1500)[:, d_s:]
    every = torch.cat([states.repeat_interleave(len(grid), 0), grid.repeat(len(states), 1)], -1)
    best = value(every).unflatten(0, (len(states), -1)).amax(-1)
    result = {}
    for name, model in MODELS.items():
        belief = fit_belief(space, bind(None, space), Observations(told, rewards, told[:0]), model)
        actions = GpArgmax().build(belief, torch.Generator().manual_seed(0))(states)
        lost = (best - value(torch.cat([states, actions], -1))).mean() / unit
        result[name] = log_density(belief, new, value(new) / unit), float(lost)
    return result


def log_density(belief: Belief, points: Tensor, truth: Tensor) -> float:
    mean = belief.to_reward(belief.posterior.mean(points))
    sd = (belief.scale**2 * belief.posterior.variance(points) + FLOOR).sqrt()
    return float(torch.distributions.Normal(mean, sd).log_prob(truth).mean())


def rows(categories: int, number: bool, sizes: Iterable[int], repeats: int) -> Iterable[dict[str, Any]]:
    states = {"k": Categorical(range(categories)), **({"s": Real(0, 1)} if number else {})}
    space = Space(states=states, actions={"x": Real(0, 1), "y": Real(0, 1)})
    for n in sizes:
        table = {kind: [compared(kind, space, n, seed) for seed in range(repeats)] for kind in KINDS}
        table["all"] = [cell for cells in table.values() for cell in cells]
        for kind, cells in table.items():
            row: dict[str, Any] = {"categories": categories, "n": n, "kind": f"{kind:<24}"}
            for name in MODELS:
                row[f"{name}_log"] = statistics.mean(cell[name][0] - cell["product"][0] for cell in cells)
                row[f"{name}_lost"] = statistics.mean(cell[name][1] for cell in cells)
            gains = [cell["trend"][0] - cell["product"][0] for cell in cells]
            row["trend_log_se"] = statistics.stdev(gains) / sqrt(len(gains))
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--categories", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="*", default=[20, 40, 80])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--no-number", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    repeats = 2 if arguments.quick else arguments.repeats
    results = rows(arguments.categories, not arguments.no_number, arguments.sizes, repeats)
    if arguments.json:
        print(json.dumps(list(results), indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
