"""Compares conbo's default method with its rivals on each problem, in a table and in one sentence.

A rival is any other method; the default method with another model or other simulator seeds is not a rival. The best
rival is the one with the largest mean difference "final cost of the default method minus final cost of the rival", over
the seeds that both have. Another rival may be clearly better although its mean difference is smaller, so all rivals are
tested.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conbo.experiments.evidence import LEAST_SEEDS
from conbo.experiments.paired_tests import Difference, Standing, p_value
from conbo.experiments.run_file import Key, Run
from conbo.experiments.summary import Comparison, compare, markdown
from conbo.method_list import DEFAULT_METHOD

GOAL = 0.7  # largest share of the best rival's evaluations after which the default should match its final cost


class Duel(NamedTuple):
    """The comparison of the default method with its best rival on one problem, over the seeds that both have."""

    where: str  # the problem, and the size of batches
    rival: str
    comparison: Comparison
    gap: Difference  # final cost of the default minus that of the rival
    ahead: tuple[str, ...]  # all rivals that are better than the default method, the best first

    @property
    def share(self) -> float:
        """The share of the rival's evaluations that the default method needs to match the rival's final mean cost.

        After this share, the default method's mean cost stays at or below the rival's final mean cost. The share is NaN
        if the default method ends above that cost.
        """
        return self.comparison.share_of_evaluations(self.rival, DEFAULT_METHOD)

    @property
    def standing(self) -> Standing:
        """The word "worse" if some rival is better than the default method; otherwise "better" or "level".

        The latter two compare it with the best rival.
        """
        return "worse" if self.ahead else standing(self.comparison, self.rival, self.gap)


def standing(comparison: Comparison, rival: str, gap: Difference) -> Standing:
    """Whether the default method is better than a rival, level with it, or worse.

    `gap` is the difference of their final costs. The two methods are level unless the bootstrap interval and the
    sign-flip test both find a difference. They are also level if both end with at most a millionth of their initial
    opportunity costs.
    """
    solved = all(comparison.is_solved(method) for method in (DEFAULT_METHOD, rival))
    return "level" if solved else gap.standing


def duels(runs: Mapping[Key, Run], as_published: bool = False) -> Iterator[Duel]:
    """Yield, for every problem and batch size, the comparison of the default method with its best rival.

    Rivals that share too few seeds with the default method are left out. With `as_published`, so are those that were
    run with conbo's model; a wider prior on the noise of the published model is allowed.
    """
    for comparison in compare(run for run in runs.values() if run.is_complete):
        if DEFAULT_METHOD not in comparison.costs:
            continue
        rivals = [rival for rival in comparison.methods if not is_ours(rival) and not (as_published and "/" in rival)]
        gaps = {rival: comparison.difference(DEFAULT_METHOD, rival) for rival in rivals}
        enough = [rival for rival in rivals if gaps[rival].pairs >= LEAST_SEEDS]
        if enough:
            enough.sort(key=lambda rival: -gaps[rival].mean)
            between = {rival: comparison.between(rival, DEFAULT_METHOD) for rival in enough}
            ahead = tuple(rival for rival in enough if standing(between[rival], rival, gaps[rival]) == "worse")
            where = comparison.problem + (f", batches of {comparison.batch}" if comparison.batch > 1 else "")
            yield Duel(where, enough[0], between[enough[0]], gaps[enough[0]], ahead)


def is_ours(label: str) -> bool:
    """Whether a label stands for the default method, with any model and any way of choosing the simulator's seeds."""
    return label == DEFAULT_METHOD or label.startswith((f"{DEFAULT_METHOD}/", f"{DEFAULT_METHOD}, "))


def goal_table(runs: Mapping[Key, Run], as_published: bool = False) -> str:
    """A Markdown table that compares conbo's default method with the best rival on each problem.

    One column has the share of the rival's evaluations after which the mean cost of the default method stays at or
    below the final mean cost of the rival. The last column says whether this share is at most `GOAL`. With
    `as_published`, rivals that were run with conbo's model are left out.
    """
    ours = DEFAULT_METHOD
    head = ["problem", "best rival", "rival's cost", f"{ours}'s", f"{ours} − rival [95 %]", "p", f"{ours} is"]
    rows = [[*head, f"{ours} needs", "goal"]]
    for duel in duels(runs, as_published):
        comparison, gap, share = duel.comparison, duel.gap, duel.share
        costs = [f"{comparison.sign * comparison.mean(method)[-1]:.3g}" for method in (duel.rival, ours)]
        needs = "more" if math.isnan(share) else f"{100 * share:.0f} %"
        interval = f"{gap.mean:.2g} [{gap.low:.2g}, {gap.high:.2g}]"
        verdict = "met" if share <= GOAL else "missed"
        behind_another = duel.ahead and duel.rival not in duel.ahead
        stands = f"worse than {duel.ahead[0]}" if behind_another else duel.standing
        rows.append([duel.where, duel.rival, *costs, interval, p_value(gap.p), stands, needs, verdict])
    return markdown(rows)


def standing_sentence(runs: Mapping[Key, Run], as_published: bool = False) -> str:
    """A sentence that counts the problems on which the default method is better than its best rival, level, or worse.

    Worse means worse than some rival. Two methods are level unless the bootstrap interval and the sign-flip test both
    find a difference. They are also level if both end with at most a millionth of their initial opportunity costs.
    With `as_published`, rivals that were run with conbo's model are left out.
    """
    found = list(duels(runs, as_published))
    counts = Counter(duel.standing for duel in found)
    worse = "; ".join(f"{duel.where} ({', '.join(duel.ahead)})" for duel in found if duel.ahead)
    return (
        f"By the bootstrap and the sign-flip test, `{DEFAULT_METHOD}` is better than the best rival on "
        f"{counts['better']} of {len(found)} problems, level with it on {counts['level']}, "
        f"and worse than some rival on {counts['worse']}{worse and f': {worse}'}."
    )
