"""Compares methods over many runs: mean costs with standard errors, ranks, paired differences, evaluations needed.

Scores are treated as costs: rewards are negated, so that lower is always better.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import rankdata

from conbo.errors import SettingError
from conbo.experiments.paired_tests import Difference, p_value, paired_difference
from conbo.experiments.run_file import Checkpoint, Run
from conbo.rounding import counted
from conbo.spaces import Array, closest

FEWEST_PAIRS = 10  # number of pairs of runs below which a percentile bootstrap interval is clearly too narrow
WIDEST = 60  # largest width of a table column that is aligned, in characters
NOTHING_LEFT = 1e-6  # share of the initial cost up to which a problem counts as solved
MOST_DECIMALS = 6  # largest number of decimals; numbers that need more are in scientific notation

# the fields of a checkpoint that can be compared
Score: TypeAlias = Literal["score", "best_observed", "observed_mean", "final_round", "violation"]
MEASURES = {
    "score": "true mean of the policy's action",
    "best_observed": "best observed reward",
    "observed_mean": "true mean of the best observed action",
    "final_round": "best observed reward after a final round",
    "violation": "share of states with a broken constraint",
}
LOW_IS_GOOD = ("opportunity cost", MEASURES["violation"])


@dataclass(frozen=True)
class Comparison:
    """The costs of all methods on one problem with one batch size, at the checkpoints that their runs share.

    A cost is an opportunity cost or another score, negated if a higher score is better. A checkpoint is a number of
    evaluations after which policies were scored.
    """

    problem: str
    batch: int
    measure: str
    evaluations: Array  # (checkpoints,)
    seeds: Array  # (seeds,)
    costs: dict[str, Array]  # by method: (seeds, checkpoints), NaN if a run has not reached the checkpoint
    fit_seconds: dict[str, float]  # by method: median over checkpoints of the mean seconds to fit the model
    suggest_seconds: dict[str, float]  # by method: median over checkpoints of the mean seconds of a suggestion

    @property
    def sign(self) -> int:
        """The factor that turns a cost back into the score: -1 if the score is a reward, else 1."""
        return 1 if self.measure in LOW_IS_GOOD else -1

    @cached_property
    def methods(self) -> list[str]:
        """The methods in the order of their final mean costs, the best first."""
        return sorted(self.costs, key=lambda method: float(self.mean(method)[-1]))

    def runs(self, method: str) -> int:
        """Number of complete runs of a method."""
        return int(np.isfinite(self._of(method)[:, -1]).sum())

    def mean(self, method: str) -> Array:
        """Mean cost of a method over its complete runs, at every checkpoint: (checkpoints,)."""
        return np.asarray(self._complete(method).mean(0))

    def error(self, method: str) -> Array:
        """Standard error of the method's mean cost, at every checkpoint: (checkpoints,)."""
        costs = self._complete(method)
        if len(costs) < 2:
            return np.full(costs.shape[1], np.nan)
        return np.asarray(costs.std(0, ddof=1) / np.sqrt(len(costs)))

    @cached_property
    def ranks(self) -> dict[str, float]:
        """Mean rank of each method by its final cost, over the seeds that all methods have; 1 is best."""
        last = np.stack([costs[:, -1] for costs in self.costs.values()], axis=1)  # (seeds, methods)
        shared = last[np.isfinite(last).all(1)]
        if len(shared) == 0:
            return dict.fromkeys(self.costs, float("nan"))
        return dict(zip(self.costs, rankdata(shared, axis=1).mean(0).tolist(), strict=True))

    def difference(self, method: str, against: str, checkpoint: int = -1) -> Difference:
        """The cost of `method` minus that of `against`, in runs with the same seed; positive if `method` is worse.

        `checkpoint` is the index of the checkpoint at which costs are compared; by default the last one.
        """
        return paired_difference(self._of(method)[:, checkpoint], self._of(against)[:, checkpoint])

    def evaluations_to_reach(self, method: str, cost: float) -> float:
        """Number of evaluations after which a method's mean cost stays at or below `cost`; NaN if it ends above `cost`.

        The mean cost is interpolated between checkpoints.
        """
        return last_crossing(self.evaluations, self.mean(method), cost)

    def share_of_evaluations(self, method: str, against: str) -> float:
        """The share of a run's evaluations that `against` needs to match the final mean cost of `method`.

        After this share, the mean cost of `against` stays at or below that cost. The share is NaN if `against` ends
        above it.
        """
        return self.evaluations_to_reach(against, float(self.mean(method)[-1])) / float(self.evaluations[-1])

    def is_solved(self, method: str) -> bool:
        """Whether the final mean opportunity cost of a method is at most a millionth of its initial one."""
        means = self.mean(method)
        return self.sign == 1 and bool(means[-1] <= NOTHING_LEFT * means[0])

    def between(self, *methods: str) -> "Comparison":
        """This comparison restricted to the given methods, and to the seeds that all of them have completed."""
        shared = np.isfinite(np.stack([self._of(method)[:, -1] for method in methods])).all(0)
        costs = {method: self.costs[method][shared] for method in methods}
        return replace(self, costs=costs, seeds=self.seeds[shared])

    def _of(self, method: str) -> Array:
        if method not in self.costs:
            raise SettingError(f"no runs of {method!r} on '{self.problem}': {closest(method, self.costs)}")
        return self.costs[method]

    def _complete(self, method: str) -> Array:
        costs = self._of(method)
        complete = costs[np.isfinite(costs[:, -1])]
        return complete if len(complete) else np.full((1, costs.shape[1]), np.nan)


def last_crossing(evaluations: Array, means: Array, cost: float) -> float:
    """Number of evaluations after which a curve of mean costs stays at or below a cost; NaN if it ends above the cost.

    The curve has the mean costs `means` after these numbers of `evaluations`, both (checkpoints,), and is interpolated
    linearly.
    """
    above = np.flatnonzero(~(means <= cost))
    if not above.size:
        return float(evaluations[0])
    last = int(above[-1])
    if last == len(means) - 1:
        return float("nan")
    part = (means[last] - cost) / (means[last] - means[last + 1])
    return float(evaluations[last] + part * (evaluations[last + 1] - evaluations[last]))


def compare(runs: Iterable[Run], score: Score = "score") -> list[Comparison]:
    """Compare the methods of these runs, separately for each problem and batch size.

    `score` names the field of `Checkpoint` by which the methods are compared.
    """
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        if run.checkpoints:
            groups.setdefault((run.settings.problem, run.settings.batch), []).append(run)
    return [_comparison(problem, batch, mine, score) for (problem, batch), mine in sorted(groups.items())]


def _comparison(problem: str, batch: int, runs: Sequence[Run], score: Score) -> Comparison:
    last = max(run.evaluations for run in runs)
    finished = [run for run in runs if run.checkpoints[-1].evaluations == last] or runs
    shared = set.intersection(*({c.evaluations for c in run.checkpoints} for run in finished))
    evaluations = sorted(shared)
    seeds = sorted({run.settings.seed for run in runs})
    measure = runs[0].checkpoints[0].measure if score == "score" else MEASURES[score]
    sign = 1 if measure in LOW_IS_GOOD else -1
    costs: dict[str, Array] = {}
    seconds: dict[str, list[Checkpoint]] = {}
    for run in sorted(runs, key=lambda run: run.settings.key):
        label = run.settings.method
        table = costs.setdefault(label, np.full((len(seeds), len(evaluations)), np.nan))
        known = {c.evaluations: getattr(c, score) for c in run.checkpoints if getattr(c, score) is not None}
        table[seeds.index(run.settings.seed)] = [sign * known.get(n, np.nan) for n in evaluations]
        seconds.setdefault(label, []).extend(c for c in run.checkpoints if c.suggest_seconds is not None)
    return Comparison(
        problem=problem,
        batch=batch,
        measure=measure,
        evaluations=np.array(evaluations, dtype=np.float64),
        seeds=np.array(seeds, dtype=np.float64),
        costs=costs,
        fit_seconds={label: _median([c.fit_seconds for c in listed]) for label, listed in seconds.items()},
        suggest_seconds={label: _median([c.suggest_seconds for c in listed]) for label, listed in seconds.items()},
    )


def table(comparison: Comparison, against: str) -> str:
    """A Markdown table of a comparison, the best method first; every method is compared with `against`."""
    sign, last = comparison.sign, int(comparison.evaluations[-1])
    middle = len(comparison.evaluations) // 2
    columns = list(dict.fromkeys([0, middle, len(comparison.evaluations) - 1]))
    known = against in comparison.costs
    head = ["method", "runs", *(f"at {comparison.evaluations[c]:.0f}" for c in columns), "rank"]
    head += [f"above {against} [95 %]", "p", f"{against} needs"] if known else []
    rows = [[*head, "fit", "suggest"]]
    for method in comparison.methods:
        mean, error = comparison.mean(method), comparison.error(method)
        row = [method, str(comparison.runs(method))]
        row += [with_error(sign * mean[c], error[c]) for c in columns]
        row.append(f"{comparison.ranks[method]:.1f}")
        if known:
            row += ["", "", ""] if method == against else _against(comparison, method, against)
        row += [_milliseconds(comparison.fit_seconds[method]), _milliseconds(comparison.suggest_seconds[method])]
        rows.append(row)
    batches = f" in batches of {comparison.batch}" if comparison.batch > 1 else ""
    title = f"### {comparison.problem}: {comparison.measure} after {last} evaluations{batches}"
    return f"{title}\n\n{markdown(rows)}"


def caution(comparisons: Sequence[Comparison], against: str) -> str | None:
    """A warning if a method shares too few seeds with `against` for a reliable bootstrap interval, else None."""
    pairs = [
        comparison.difference(method, against).pairs
        for comparison in comparisons
        if against in comparison.costs
        for method in comparison.costs
        if method != against
    ]
    if not pairs or min(pairs) >= FEWEST_PAIRS:
        return None
    runs = counted(min(pairs), "pair of runs", "pairs of runs")
    return f"Caution: intervals from {runs} are too narrow to rely on. Use --seeds {FEWEST_PAIRS} or more."


def with_error(mean: float, error: float) -> str:
    """Format a mean and its standard error, such as "1.20 ± 0.35", with two significant digits of the error.

    If the error is below 1e-5, both are in scientific notation, such as "5.9e-08 ± 1.7e-08".
    """
    if not error > 0:
        return f"{mean:.3g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    if digits > MOST_DECIMALS:
        places = math.floor(math.log10(max(abs(mean), error))) + digits  # after the first digit of the mean
        return f"{mean:.{places}e} ± {error:.1e}"
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows as an aligned Markdown table; the first row is its header."""
    widths = [min(max(len(cell) for cell in column), WIDEST) for column in zip(*rows, strict=True)]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in lines)


def _against(comparison: Comparison, method: str, against: str) -> list[str]:
    gap = comparison.difference(method, against)
    share = comparison.share_of_evaluations(method, against)
    needs = "more" if np.isnan(share) else f"{100 * share:.0f} %"
    return [f"{gap.mean:.2g} [{gap.low:.2g}, {gap.high:.2g}]", p_value(gap.p), needs]


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else float("nan")


def _milliseconds(seconds: float) -> str:
    return "" if np.isnan(seconds) else f"{1000 * seconds:.0f} ms"
