"""Checks of single statements on a set of runs, by fixed rules.

=============  =====================================================================================================
below          the 95 % bootstrap interval of the paired difference of final costs is below zero
level          it contains zero
not above      it is not above zero
near zero      at most a hundredth of the mean cost after the initial design is left
=============  =====================================================================================================

What was not run, or at fewer than eight seeds, gives no checks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from conbo.experiments.run_file import Key, Run
from conbo.experiments.summary import MEASURES, Comparison, Difference, Score, compare, paired_difference

NEAR_ZERO = 0.01
LEAST_SEEDS = 8  # an interval from fewer means nothing

Rule: TypeAlias = Literal["below", "level", "not above"]
RULES: dict[Rule, Callable[[Difference], bool]] = {
    "below": lambda gap: gap.high < 0,
    "level": lambda gap: gap.low <= 0 <= gap.high,
    "not above": lambda gap: gap.low <= 0,
}


class Check(NamedTuple):
    """One statement: whether it holds, and the numbers."""

    holds: bool
    text: str


class Evidence:
    """The complete runs, on which statements are checked."""

    def __init__(self, runs: Mapping[Key, Run]) -> None:
        self._runs = [run for run in runs.values() if run.is_complete]
        self._found = {(c.problem, c.batch): c for c in compare(self._runs)}

    def costs(self, rule: Rule, problems: Iterable[str], methods: Sequence[str], others: Sequence[str]) -> list[Check]:
        """The final costs of methods against those of all others, on every problem."""
        return _checked(
            rule,
            (
                (comparison.problem, method, other, comparison.difference(method, other))
                for comparison in self._comparisons(problems)
                for method in methods
                for other in others
                if method != other and {method, other} <= comparison.costs.keys()
            ),
        )

    def near_zero(self, problems: Iterable[str], methods: Sequence[str]) -> list[Check]:
        """Whether hardly any cost is left at the end."""
        checks = []
        for comparison in self._comparisons(problems):
            for method in (m for m in methods if m in comparison.costs and comparison.runs(m) >= LEAST_SEEDS):
                first, last = comparison.mean(method)[0], comparison.mean(method)[-1]
                text = f"{comparison.problem}, {method}: {last:.2g}, {100 * last / first:.2g} % of the first"
                checks.append(Check(bool(last <= NEAR_ZERO * first), text))
        return checks

    def batches(self, problem: str, methods: Sequence[str], sizes: Sequence[int]) -> list[Check]:
        """Whether batches end at no higher cost than single evaluations, seed by seed: a linear speed-up."""
        return _checked(
            "not above",
            (
                (problem, f"{m} by {batched.batch}", f"{m} by 1", _final_difference(batched, serial, m))
                for serial, batched in self._serial_and_batched(problem, sizes)
                for m in methods
                if m in serial.costs and m in batched.costs
            ),
        )

    def batch_overhead(self, problem: str, methods: Sequence[str], size: int, most: float) -> list[Check]:
        """Whether a batch takes at most this many times as long as one suggestion."""
        return [
            Check(ratio <= most, f"{problem}, {method}: a batch of {size} takes {ratio:.1f} times as long as one point")
            for serial, batched in self._serial_and_batched(problem, [size])
            for method in (m for m in methods if m in serial.costs and m in batched.costs)
            for ratio in [batched.suggest_seconds[method] / serial.suggest_seconds[method]]
        ]

    def observed(
        self,
        rule: Rule,
        problem: str,
        at: int,
        methods: Sequence[str],
        score: Score,
        other: str | None,
        other_score: Score,
    ) -> list[Check]:
        """Best observed rewards after this many evaluations, with or without a final round.

        Without `other`, a method is compared with itself.
        """
        mine, others = self._by_score(problem, score), self._by_score(problem, other_score)
        if mine is None or others is None or at not in mine.evaluations:
            return []
        column = int(np.flatnonzero(mine.evaluations == at)[0])
        pairs = [(m, other or m) for m in methods if m in mine.costs and (other or m) in others.costs]
        return _checked(
            rule,
            (
                (
                    f"{problem} at {at}",
                    f"{method} ({MEASURES[score]})",
                    f"{name} ({MEASURES[other_score]})",
                    paired_difference(mine.costs[method][:, column], others.costs[name][:, column]),
                )
                for method, name in pairs
            ),
        )

    def slower(self, problem: str, method: str, other: str, least: float, most: float) -> list[Check]:
        """Whether a suggestion of one method takes between `least` and `most` times as long as that of another."""
        return [
            Check(least <= ratio <= most, f"{problem}: {method} takes {ratio:.2g} times as long as {other}")
            for comparison in self._comparisons([problem])
            if {method, other} <= comparison.costs.keys()
            for ratio in [comparison.suggest_seconds[method] / comparison.suggest_seconds[other]]
        ]

    def _comparisons(self, problems: Iterable[str]) -> Iterator[Comparison]:
        yield from (self._found[problem, 1] for problem in problems if (problem, 1) in self._found)

    def _serial_and_batched(self, problem: str, sizes: Sequence[int]) -> Iterator[tuple[Comparison, Comparison]]:
        for serial in self._comparisons([problem]):
            yield from ((serial, self._found[problem, size]) for size in sizes if (problem, size) in self._found)

    def _by_score(self, problem: str, score: Score) -> Comparison | None:
        mine = [run for run in self._runs if run.settings.problem == problem and run.settings.batch == 1]
        return compare(mine, score)[0] if mine else None


def _checked(rule: Rule, differences: Iterable[tuple[str, str, str, Difference]]) -> list[Check]:
    """Differences (where, method, other, gap) under a rule."""
    return [
        Check(RULES[rule](gap), f"{where}, {method} − {other} = {gap.mean:.2g} [{gap.low:.2g}, {gap.high:.2g}]")
        for where, method, other, gap in differences
        if gap.pairs >= LEAST_SEEDS
    ]


def _final_difference(comparison: Comparison, other: Comparison, method: str) -> Difference:
    """Difference of the final costs of a method's runs in two comparisons, seed by seed."""
    shared = sorted(set(comparison.seeds) & set(other.seeds))
    mine, others = (c.costs[method][[list(c.seeds).index(s) for s in shared], -1] for c in (comparison, other))
    return paired_difference(mine, others)
