"""How long a suggestion takes and how good it is, compared with other libraries on the same model in the same run.

    python benchmarks/suggestion_cost.py                     everything, in about half an hour
    python benchmarks/suggestion_cost.py cost accuracy       some parts only
    python benchmarks/suggestion_cost.py --quick --json      fewer sizes and repetitions, as JSON

Parts: cost (compared with qLogEI), batches (of 8 compared with 1), ask (compared with Optuna and Ax), value (one ConBO
value with gradient, and one-shot qKG), accuracy (of the knowledge gradient in a state), quality (of the suggested
point), integral (error of the integral over states), growth (of times with the number of rewards), methods (the time of
every method). The other libraries alternate with conbo; times are medians.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from math import log, sin
from typing import Any

import torch
from parts import Parts, Row, command_line, run
from torch import Tensor

from conbo.acquisition.integral_over_states import ConBO
from conbo.acquisition.knowledge_gradient import HybridKG
from conbo.acquisition.knowledge_gradient_bounds import knowledge_gradient_bounds
from conbo.acquisition.quadrature_states import StratifiedStates
from conbo.belief import Belief, fit_belief
from conbo.method_table import METHODS
from conbo.models.exact_gains import ExactGains
from conbo.models.fit_memory import FitMemory
from conbo.optimizer import Optimizer
from conbo.proposals.maximizer import Maximizer
from conbo.quasi_random import sobol
from conbo.spaces import Integer, Real, Space
from conbo.threads import threads_for
from random_beliefs import botorch_model, random_belief

DIMENSIONS = ((1, 1), (2, 6), (1, 8))
SIZES = (20, 50, 100, 200, 500)
ASKS = 10  # number of asks in a row that are timed together
CONBO = METHODS["conbo"].proposal  # n_z = 5, 20 states


def timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def suggest(belief: Belief, seed: int) -> Tensor:
    with threads_for(len(belief.observations)):
        return CONBO.propose(belief, 1, generator(seed)).points


def exact_gains(belief: Belief, n_z: int, seed: int) -> ExactGains:
    gains = HybridKG(n_z).build(belief, generator(seed))
    assert isinstance(gains, ExactGains)
    return gains


def cost(quick: bool) -> Iterable[Row]:
    """Time a suggestion, without fitting, compared with BoTorch's optimize_acqf and qLogEI."""
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.optim import optimize_acqf

    for d_s, d_x in DIMENSIONS:
        bounds = torch.stack([torch.zeros(d_s + d_x), torch.ones(d_s + d_x)]).double()
        for n in (20, 100) if quick else SIZES:
            ours, theirs, theirs_alone = [], [], []
            for seed in range(3 if quick else 9):
                belief = random_belief(d_s, d_x, n, seed)
                model, best = botorch_model(belief), belief.observations.rewards.max()

                def peer(model: Any = model, best: Tensor = best, bounds: Tensor = bounds) -> None:
                    acquisition = qLogExpectedImprovement(model, best_f=best)
                    optimize_acqf(acquisition, bounds, q=1, num_restarts=10, raw_samples=512)

                ours.append(timed(lambda belief=belief, seed=seed: suggest(belief, seed)))
                theirs.append(timed(peer))
                with threads_for(0):  # one thread, with which BoTorch is faster at some sizes
                    theirs_alone.append(timed(peer))
            theirs = min(theirs, theirs_alone, key=statistics.median)
            ratio = statistics.median(ours) / statistics.median(theirs)
            yield {
                "dimensions": f"{d_s}+{d_x}",
                "n": n,
                "conbo_ms": 1e3 * statistics.median(ours),
                "qlogei_ms": 1e3 * statistics.median(theirs),
                "ratio_to_qlogei": ratio,
            }


def batches(quick: bool) -> Iterable[Row]:
    """Time a batch of 8 compared with a batch of 1."""
    for d_s, d_x in DIMENSIONS:
        one, eight = [], []
        for seed in range(3 if quick else 9):
            belief = random_belief(d_s, d_x, 100, seed)
            with threads_for(100):
                one.append(timed(lambda belief=belief, seed=seed: CONBO.propose(belief, 1, generator(seed))))
                eight.append(timed(lambda belief=belief, seed=seed: CONBO.propose(belief, 8, generator(seed))))
        yield {
            "dimensions": f"{d_s}+{d_x}",
            "n": 100,
            "batch_of_1_ms": 1e3 * statistics.median(one),
            "batch_of_8_ms": 1e3 * statistics.median(eight),
            "ratio": statistics.median(eight) / statistics.median(one),
        }


def ask(quick: bool) -> Iterable[Row]:
    """Time a whole ask, with fit and suggestion, compared with Optuna's GPSampler and Ax.

    Times of conbo and Optuna are means over ten asks in a row, as in a study that grows from 91 to 100 rewards.  Most
    of conbo's asks fit only the models that were probable before; one of the ten tries all models.  So does the first
    ask of a process, whose time is `conbo_first_s`.  `ratio_to_optuna` compares with Optuna as it comes, and
    `ratio_to_one_thread` with Optuna after `torch.set_num_threads(1)`, with which it is faster on some machines.
    Ax is asked once, and compared with conbo's first ask.
    """
    from peers import ax_ask, optuna_asks

    for d_s, d_x in DIMENSIONS:
        names = ("conbo", "conbo_first", "optuna", "optuna_one_thread", "ax")
        times: dict[str, list[float]] = {name: [] for name in names}
        for seed in range(2 if quick else 20):  # many, because the times of other libraries vary by a factor of three
            belief = random_belief(d_s, d_x, 100, seed)

            def conbo(memory: FitMemory, sizes: Iterable[int], belief: Belief = belief, seed: int = seed) -> None:
                for n in sizes:
                    with threads_for(n):
                        seen = belief.observations.first(n)
                        fitted = fit_belief(belief.space, belief.states, seen, METHODS["conbo"].model, memory)
                        CONBO.propose(fitted, 1, generator(seed))

            times["conbo_first"].append(timed(partial(conbo, FitMemory(), [100])))
            memory, sizes = FitMemory(), range(100 - ASKS + 1, 101)
            conbo(memory, [sizes[0] - 1])
            times["conbo"].append(timed(partial(conbo, memory, sizes)) / ASKS)
            times["optuna"].append(timed(optuna_asks(belief, ASKS)) / ASKS)
            with threads_for(0):
                times["optuna_one_thread"].append(timed(optuna_asks(belief, ASKS)) / ASKS)
            times["ax"].append(timed(ax_ask(belief)))
        medians = {name: statistics.median(values) for name, values in times.items()}
        yield {
            "dimensions": f"{d_s}+{d_x}",
            "n": 100,
            **{f"{name}_s": value for name, value in medians.items()},
            "ratio_to_optuna": medians["conbo"] / medians["optuna"],
            "ratio_to_one_thread": medians["conbo"] / medians["optuna_one_thread"],
            "first_to_optuna": medians["conbo_first"] / medians["optuna"],
            "ratio_to_ax": medians["conbo_first"] / medians["ax"],
        }


def value(quick: bool) -> Iterable[Row]:
    """Time a ConBO value with gradient against BoTorch's components, and a suggestion against one-shot qKG."""
    from peers import conbo_value_batched, conbo_value_loop, one_shot_kg

    for d_s, d_x in DIMENSIONS:
        for n in (20, 100) if quick else (20, 100, 500):
            times: dict[str, list[float]] = {"conbo": [], "loop": [], "batched": [], "suggestion": [], "qkg": []}
            for seed in range(2 if quick else 3):
                belief = random_belief(d_s, d_x, n, seed)
                model, point = botorch_model(belief), torch.rand(1, d_s + d_x, generator=generator(seed)).double()
                with threads_for(n):
                    acquisition = ConBO(HybridKG(5), StratifiedStates(20)).build(belief, generator(seed))

                    def ours(acquisition: Any = acquisition, point: Tensor = point) -> None:
                        acquisition.local(point)(point, torch.zeros(1, dtype=torch.long))

                    ours()
                    times["conbo"].append(timed(ours))
                    states = acquisition.states_of(point).states[0]
                times["batched"].append(timed(lambda m=model, p=point, s=states: conbo_value_batched(m, p, s)))
                times["loop"].append(timed(lambda m=model, p=point, s=states: conbo_value_loop(m, p, s)))
                times["suggestion"].append(timed(lambda b=belief, s=seed: suggest(b, s)))
                if seed == 0 and n <= 100:  # with 500 rewards, one-shot qKG needs 60 GiB
                    times["qkg"].append(timed(lambda m=model, d=d_s + d_x: one_shot_kg(m, d)))
            medians = {name: statistics.median(values) for name, values in times.items() if values}
            yield {
                "dimensions": f"{d_s}+{d_x}",
                "n": n,
                "conbo_value_ms": 1e3 * medians["conbo"],
                "botorch_loop_over": medians["loop"] / medians["conbo"],
                "botorch_batched_over": medians["batched"] / medians["conbo"],
                "one_shot_kg_over_suggestion": medians["qkg"] / medians["suggestion"] if "qkg" in medians else None,
            }


def accuracy(quick: bool) -> Iterable[Row]:
    """Measure the error of the knowledge gradient with 5 nodes; the reference has 81 nodes and thorough searches."""
    estimators = {"best": HybridKG(5), "paper": HybridKG(5, 1.0, "lower")}
    for d_s, d_x in DIMENSIONS:
        errors: dict[str, list[Tensor]] = {name: [] for name in estimators}
        for n in (20, 100) if quick else SIZES:
            for seed in range(3 if quick else 8):
                belief = random_belief(d_s, d_x, n, seed)
                points = torch.rand(6, d_s + d_x, generator=generator(seed), dtype=torch.float64)
                shift = 0.2 * torch.randn(6, 1, d_s, generator=generator(seed + 1), dtype=torch.float64)
                states = (points[:, None, :d_s] + shift).clamp(0, 1)
                truth = knowledge_gradient_bounds(exact_gains(belief, 81, 1), points, states).best[:, 0]
                real = truth > 1e-5  # relative to the prior's standard deviation
                for name, estimator in estimators.items():
                    kg = estimator.build(belief, generator(0)).at(states)
                    estimate = kg(points, torch.arange(len(points))).values[:, 0]
                    errors[name].append(((estimate - truth) / truth)[real].abs())
        row: Row = {"dimensions": f"{d_s}+{d_x}", "cases": sum(len(e) for e in errors["best"])}
        for name, parts in errors.items():
            error = torch.cat(parts)
            row[f"{name}_median_percent"] = 100 * float(error.median())
            row[f"{name}_90th_percent"] = 100 * float(error.quantile(0.9))
        yield row


def quality(quick: bool) -> Iterable[Row]:
    """Measure the value of the suggested point, divided by that of a search with thirty times the effort."""
    thorough = Maximizer(
        ConBO(HybridKG(5), StratifiedStates(20)), screened=2048, starts=40, iterations=60, finalists=10
    )
    for d_s, d_x in DIMENSIONS:
        for n in (20, 100) if quick else (20, 100, 500):
            shares = []
            for seed in range(5 if quick else 20):
                belief = random_belief(d_s, d_x, n, seed)
                with threads_for(n):
                    judge = ConBO(HybridKG(9), StratifiedStates(64)).build(belief, generator(seed + 99))
                    found = CONBO.propose(belief, 1, generator(seed)).points
                    best = thorough.propose(belief, 1, generator(seed + 7)).points
                    values = judge(torch.cat([found, best]))
                shares.append(float(values[0] / values.amax()))
            yield {
                "dimensions": f"{d_s}+{d_x}",
                "n": n,
                "share_of_seeds_at_least_0.95": sum(s >= 0.95 for s in shares) / len(shares),
                "mean": statistics.mean(shares),
                "worst": min(shares),
            }


def integral(quick: bool) -> Iterable[Row]:
    """Measure the error of the integral with 20 states; the reference has 512 states and thorough searches."""
    for d_s, d_x in DIMENSIONS:
        errors = []
        for n in (20, 100) if quick else (20, 100, 500):
            for seed in range(3 if quick else 8):
                belief = random_belief(d_s, d_x, n, seed)
                points = torch.rand(4, d_s + d_x, generator=generator(seed), dtype=torch.float64)
                with threads_for(n):
                    kg, pool = exact_gains(belief, 5, 3), belief.states.from_uniform(sobol(512, d_s, seed=11))
                    bounds = [knowledge_gradient_bounds(kg, p[None], pool[None]) for p in points]
                    dense = torch.stack([bound.best.mean() for bound in bounds])
                    estimate = ConBO(HybridKG(5), StratifiedStates(20)).build(belief, generator(0)).integral(points)
                errors.append(((estimate - dense) / dense)[dense > 1e-5])
        error = torch.cat(errors)
        yield {
            "dimensions": f"{d_s}+{d_x}",
            "cases": len(error),
            "rms_percent": 100 * float(error.square().mean().sqrt()),
            "median_percent": 100 * float(error.abs().median()),
        }


def growth(quick: bool) -> Iterable[Row]:
    """Time a suggestion for growing numbers n of rewards."""
    sizes = (100, 200, 500, 1000) if quick else (100, 500, 1000, 2000, 5000)
    for d_s, d_x in DIMENSIONS:
        previous: tuple[int, float] | None = None
        for n in sizes:
            belief = random_belief(d_s, d_x, n, 0)
            seconds = statistics.median(timed(lambda b=belief, s=s: suggest(b, s)) for s in range(3))
            exponent = log(seconds / previous[1]) / log(n / previous[0]) if previous else None
            previous = (n, seconds)
            yield {"dimensions": f"{d_s}+{d_x}", "n": n, "conbo_ms": 1e3 * seconds, "exponent_since_last": exponent}


def methods(quick: bool) -> Iterable[Row]:
    """Time an ask of every method after the model was fitted, with 100 rewards.

    There are one state parameter and seven action parameters. For 'scot' and 'gp-c-ocba', the state parameter has five
    values, and for 'gp-c-ocba', every action parameter has three.
    """
    for name, method in METHODS.items():
        states = {"s": Integer(1, 5) if method.needs_finite_states else Real(0, 1)}
        action = Integer(1, 3) if method.needs_finite_actions else Real(0, 1)
        space = Space(states=states, actions={f"x{i}": action for i in range(7)})
        seconds = []
        for seed in range(1 if quick else 3):
            optimizer = Optimizer(space, method=name, seed=seed, initial=100)
            for trial in optimizer.ask(100):
                values = [float(v) for v in (*trial.state.values(), *trial.action.values())]
                optimizer.tell(trial, sum(sin((2 + i) * v) for i, v in enumerate(values)))
            optimizer.ask()  # fits
            seconds.append(timed(optimizer.ask))
        yield {"method": f"{name:<20}", "seconds": statistics.median(seconds)}


PARTS: Parts = {
    part.__name__: part for part in (cost, batches, ask, value, accuracy, quality, integral, growth, methods)
}


def main() -> None:
    parser = command_line(__doc__, PARTS)
    parser.add_argument("--dimensions", nargs="*", help="only these, such as 1+1 2+6")
    parser.add_argument("--methods", action="store_true", help="only what every method costs")
    arguments = parser.parse_args()
    global DIMENSIONS
    if arguments.dimensions:
        DIMENSIONS = tuple(tuple(map(int, pair.split("+"))) for pair in arguments.dimensions)
    warnings.simplefilter("ignore")
    suggest(random_belief(1, 1, 20, 0), 0)  # compiles the loops before anything is timed
    run(PARTS, ["methods"] if arguments.methods else arguments.parts, arguments.quick, arguments.json)


if __name__ == "__main__":
    main()
