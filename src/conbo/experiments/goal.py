"""Compares our default with the best rival: problem by problem in a table, and overall in one sentence."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conbo.experiments.evidence import LEAST_SEEDS
from conbo.experiments.paired_tests import Difference, Standing, p_value
from conbo.experiments.run_file import Key, Run
from conbo.experiments.summary import Comparison, compare, markdown
from conbo.method_list import DEFAULT_METHOD

GOAL = 0.7  # share of the best rival's evaluations that our default may need


class Duel(NamedTuple):
    """Our default and the best rival on one problem, at the seeds that both have."""

    where: str
    rival: str
    comparison: Comparison
    gap: Difference  # how much more our default costs

    @property
    def share(self) -> float:
        """The share of the rival's evaluations after which our default stays at or below the rival's final cost."""
        return self.comparison.share_of_evaluations(self.rival, DEFAULT_METHOD)


def duels(runs: Mapping[Key, Run], as_published: bool = False) -> Iterator[Duel]:
    """The duel with the best rival on every problem; `as_published` admits only rivals with their own model."""
    for comparison in compare(run for run in runs.values() if run.is_complete):
        if DEFAULT_METHOD not in comparison.costs:
            continue
        for rival in comparison.methods:  # the best first
            if is_ours(rival) or (as_published and "/" in rival):
                continue
            gap = comparison.difference(DEFAULT_METHOD, rival)
            if gap.pairs >= LEAST_SEEDS:
                where = comparison.problem + (f", batches of {comparison.batch}" if comparison.batch > 1 else "")
                yield Duel(where, rival, comparison.between(rival, DEFAULT_METHOD), gap)
                break


def is_ours(label: str) -> bool:
    """Whether a label stands for our default, with any model and any seeds."""
    return label == DEFAULT_METHOD or label.startswith((f"{DEFAULT_METHOD}/", f"{DEFAULT_METHOD}, "))


def goal_table(runs: Mapping[Key, Run], as_published: bool = False) -> str:
    """A table of the best rival on each problem, and the share of its evaluations our default needs to match it."""
    ours = DEFAULT_METHOD
    head = ["problem", "best rival", "rival's cost", f"{ours}'s", f"{ours} − rival [95 %]", "p", f"{ours} is"]
    rows = [[*head, f"{ours} needs", "goal"]]
    for duel in duels(runs, as_published):
        comparison, gap, share = duel.comparison, duel.gap, duel.share
        costs = [f"{comparison.sign * comparison.mean(method)[-1]:.3g}" for method in (duel.rival, ours)]
        needs = "more" if math.isnan(share) else f"{100 * share:.0f} %"
        interval = f"{gap.mean:.2g} [{gap.low:.2g}, {gap.high:.2g}]"
        verdict = "met" if share <= GOAL else "missed"
        rows.append([duel.where, duel.rival, *costs, interval, p_value(gap.p), gap.standing, needs, verdict])
    return markdown(rows)


def standing_sentence(runs: Mapping[Key, Run]) -> str:
    """A sentence on where our default is better than the best rival, and where it is level or worse.

    Our default counts as level unless the bootstrap and the sign-flip test both find a difference.
    """
    found: dict[Standing, list[str]] = {"better": [], "level": [], "worse": []}
    for duel in duels(runs):
        found[duel.gap.standing].append(f"{duel.where} ({duel.rival})")
    total = sum(map(len, found.values()))
    parts = [f"better than the best rival of all on {len(found['better'])} of {total} problems"]
    parts += [f"level with it on {len(found['level'])}{_listed(found['level'])}"]
    parts += [f"worse on {len(found['worse'])}{_listed(found['worse'])}"]
    return f"By the bootstrap and the sign-flip test, `{DEFAULT_METHOD}` is {parts[0]}, {parts[1]}, and {parts[2]}."


def _listed(names: list[str]) -> str:
    return f": {'; '.join(names)}" if names else ""
