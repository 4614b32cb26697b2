"""Checks statements about the costs and computing times of methods, by fixed rules and statistical tests.

=============  =====================================================================================================
below          bootstrap interval and sign-flip test both show that costs are lower than the other method's
not above      a test shows that costs are lower than the other method's plus a margin
level          tests show that costs differ from the other method's by less than a margin
near zero      the mean cost is at most ten times the best method's, or at most a millionth of the initial cost
=============  =====================================================================================================

The margin is a quarter of the other method's mean final cost. For observed accuracies, it is 0.001, which is the
difference between methods that the paper reports. If the tests can neither show nor refute a statement, it is
undecided. The tests are in `paired_tests`.

Statements about computing times are checked on the times of `suggestion_times`, because the recorded runs were made on
busy machines. A statement gives limits on the ratio of two times. It holds if the ratio's 95 % confidence interval is
within these limits, and is undecided if the interval contains one of them.

Costs and times from fewer than eight seeds are not checked.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from conbo.experiments.paired_tests import Standing, equal, not_worse, paired, paired_difference
from conbo.experiments.run_file import Key, Run
from conbo.experiments.suggestion_times import Timed, Times, paired_ratio
from conbo.experiments.summary import MEASURES, Comparison, Score, compare
from conbo.spaces import Array

NEAR_BEST = 10.0  # multiple of the best method's cost up to which a cost counts as near zero
LEAST_COST = 1e-12  # replaces a cost of zero, which has no multiples
MARGIN = 0.25  # margin, as a share of the other method's mean final cost
ACCURACY_MARGIN = 0.001
LEAST_SEEDS = 8  # least number of seeds for a check, because an interval from fewer means nothing

Rule: TypeAlias = Literal["below", "level", "not above"]


class Check(NamedTuple):
    """The result of checking one statement about the costs or computing times of methods."""

    holds: bool
    text: str  # the statement with its numbers
    decided: bool = True  # whether the runs show that the statement holds, or that it does not
    standing: Standing | None = None  # whether the first method is better than the second one, level or worse


class Scored(NamedTuple):
    """A method and the score by which it is judged."""

    method: str
    score: Score

    def __str__(self) -> str:
        return f"{self.method} ({MEASURES[self.score]})"


class Evidence:
    """Checks statements about optimization methods on recorded runs and on measured times of suggestions.

    Incomplete runs are ignored.
    """

    def __init__(self, runs: Mapping[Key, Run], times: Times | None = None) -> None:
        self._times = times or {}
        self._runs = [run for run in runs.values() if run.is_complete]
        self._found = {(c.problem, c.batch): c for c in compare(self._runs)}

    def costs(self, rule: Rule, problems: Iterable[str], methods: Sequence[str], others: Sequence[str]) -> list[Check]:
        """Compare the final cost of each of `methods` with that of each of `others`, on every problem.

        `rule` says what to check: that the method's cost is "below" the other's, "level" with it, or "not above" it.
        """
        return [
            check
            for comparison in self._comparisons(problems)
            for method in methods
            for other in others
            if method != other and {method, other} <= comparison.costs.keys()
            for check in checked(
                rule,
                f"{comparison.problem}, {method} − {other}",
                comparison.costs[method][:, -1],
                comparison.costs[other][:, -1],
            )
        ]

    def near_zero(self, problems: Iterable[str], methods: Sequence[str]) -> list[Check]:
        """Check for every method on every problem whether its mean final cost is near zero.

        A cost is near zero if it is at most ten times the final cost of the best method, or at most a millionth of the
        method's own initial cost.
        """
        checks = []
        for comparison in self._comparisons(problems):
            best = comparison.methods[0]
            least = max(float(comparison.mean(best)[-1]), LEAST_COST)
            for method in (m for m in methods if m in comparison.costs and comparison.runs(m) >= LEAST_SEEDS):
                last = comparison.mean(method)[-1]
                text = f"{comparison.problem}, {method}: {last:.2g}, {last / least:.2g} times {best}"
                checks.append(Check(bool(last <= NEAR_BEST * least) or comparison.is_solved(method), text))
        return checks

    def batches(self, problem: str, methods: Sequence[str], sizes: Sequence[int]) -> list[Check]:
        """Check for a linear speed-up: after as many evaluations, batches end at no higher cost than single points.

        Runs are paired by seed. As a control, the same test is applied to runs of single points that stop halfway. They
        should fail it. If they pass, the test is too weak, so a check that would otherwise hold is undecided.
        """
        return [
            _with_control(check, serial, m)
            for serial, batched in self._serial_and_batched(problem, sizes)
            for m in methods
            if m in serial.costs and m in batched.costs
            for check in checked("not above", f"{problem}, {m} by {batched.batch} − by 1", *_shared(batched, serial, m))
        ]

    def observed(self, rule: Rule, problem: str, at: int, pairs: Iterable[tuple[Scored, Scored]]) -> list[Check]:
        """Compare the two methods of each pair after `at` evaluations on a problem, each method by its own score.

        A method's cost is its score, negated if a higher score is better. `rule` says what is checked: whether the cost
        of the first method of a pair is "below" that of the second, "level" with it, or "not above" it.
        """
        checks = []
        for first, second in pairs:
            mine, others = self._by_score(problem, first.score), self._by_score(problem, second.score)
            if mine is None or others is None or at not in mine.evaluations:
                continue
            if first.method not in mine.costs or second.method not in others.costs:
                continue
            column = int(np.flatnonzero(mine.evaluations == at)[0])
            scores = mine.costs[first.method][:, column], others.costs[second.method][:, column]
            checks += checked(rule, f"{problem} at {at}, {first} − {second}", *scores, margin=ACCURACY_MARGIN)
        return checks

    def takes(self, first: Timed, second: Timed, least: float, most: float) -> list[Check]:
        """Check whether the first kind of suggestion takes between `least` and `most` times as long as the second."""
        if not {first, second} <= self._times.keys() or len(self._times[first]) < LEAST_SEEDS:
            return []
        ratio = paired_ratio(self._times[first], self._times[second])
        holds = least <= ratio.low and ratio.high <= most
        refuted = ratio.high < least or ratio.low > most
        limits = {f"at least {least:g}": least > 0, f"at most {most:g}": math.isfinite(most)}
        claimed = " and ".join(limit for limit, is_limit in limits.items() if is_limit)
        text = f"{first} takes {ratio} times as long as {second} (claimed: {claimed})"
        return [Check(holds, text, decided=holds or refuted)]

    def _comparisons(self, problems: Iterable[str]) -> Iterator[Comparison]:
        yield from (self._found[problem, 1] for problem in problems if (problem, 1) in self._found)

    def _serial_and_batched(self, problem: str, sizes: Sequence[int]) -> Iterator[tuple[Comparison, Comparison]]:
        for serial in self._comparisons([problem]):
            yield from ((serial, self._found[problem, size]) for size in sizes if (problem, size) in self._found)

    def _by_score(self, problem: str, score: Score) -> Comparison | None:
        mine = [run for run in self._runs if run.settings.problem == problem and run.settings.batch == 1]
        return compare(mine, score)[0] if mine else None


def checked(rule: Rule, what: str, costs: Array, others: Array, margin: float | None = None) -> list[Check]:
    """Check paired costs of two methods by a rule; return a list of one check, or of none if there are too few pairs.

    `costs` and `others`, both (seeds,), are the costs of the two methods at the same seeds. `rule` says whether `costs`
    should be "below" `others`, "level" with them, or "not above" them. The last two rules allow a margin, by default a
    quarter of the mean absolute value of `others`. `what` names the comparison in the check's `text`.
    """
    differences, gap = paired(costs, others), paired_difference(costs, others)
    if gap.pairs < LEAST_SEEDS:
        return []
    if rule == "below":
        return [Check(gap.standing == "better", f"{what} = {gap}", gap.standing != "level", gap.standing)]
    margins = MARGIN * np.abs(others[np.isfinite(costs - others)]) if margin is None else margin
    within = (not_worse if rule == "not above" else equal)(differences, margins)
    return [Check(within.holds, f"{what} = {gap}, {within}", within.holds or within.refuted, gap.standing)]


def _with_control(check: Check, serial: Comparison, method: str) -> Check:
    """Return the check of a linear speed-up by batches, changed to undecided if it holds but its test is too weak.

    The test is whether runs in batches end at no higher cost than runs with as many single evaluations. As a control,
    the test is applied to the runs of single evaluations in `serial`, stopped halfway. If these do not fail, the test
    is too weak.
    """
    half = int(np.searchsorted(serial.evaluations, serial.evaluations[-1] / 2))
    costs = serial.costs[method]
    fails = any(c.decided and not c.holds for c in checked("not above", "", costs[:, half], costs[:, -1]))
    if fails or not check.holds:
        return check
    text = f"{check.text}, but single evaluations stopped at {serial.evaluations[half]:.0f} do not fail this test"
    return Check(False, text, decided=False, standing=check.standing)


def _shared(comparison: Comparison, other: Comparison, method: str) -> tuple[Array, Array]:
    """The final costs of a method in two comparisons, both (seeds,), at the seeds that the comparisons share."""
    shared = sorted(set(comparison.seeds) & set(other.seeds))
    mine, others = (c.costs[method][[list(c.seeds).index(s) for s in shared], -1] for c in (comparison, other))
    return mine, others
