"""The claims of the ConBO paper, and a table that says which of them are reproduced, by the rules in `evidence`."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from conbo.experiments.evidence import Check, Evidence, Scored
from conbo.experiments.paper_figures import FIGURES
from conbo.experiments.run_file import Key, Run
from conbo.experiments.suggestion_times import Timed, Times
from conbo.experiments.summary import markdown
from conbo.experiments.variants import KNOWLEDGE_GRADIENTS, WIDTHS, swept_label, width_problem

MOST_EXCEPTIONS = 3  # largest number of checks that do not hold and are named in the table

EI, UNI, PG = "expected-improvement", "uniform", "policy-gradient"
CONDITIONAL = ("mts", "revi", "conbo-3", "conbo-5")
GP_METHODS = (UNI, EI, "peqi", *CONDITIONAL)
BY_PENALTY = ("revi", "conbo-5")
TRANSFERRED = Scored("transfer-ei", "final_round")

FUNCTIONS = ("branin", "rosenbrock")
SYNTHETIC = FIGURES["synthetic"].sweeps[0].problems
SIMULATORS = ("ambulances", "assemble_to_order")
PLANE = ("branin_global", "rosenbrock_global")
NETWORK = "cifar_cnn_table"
KG_D, KG_MC, KG_H = ([swept_label(name, n) for n in sizes] for name, sizes in KNOWLEDGE_GRADIENTS.items())

# groups of claims, each with the figures whose runs are its evidence
GROUPS = {
    "1 widths": ("widths",),
    "2 synthetic": ("synthetic",),
    "3 networks": ("cnn",),
    "4 simulators": ("ambulances", "assemble-to-order", "fresh-seeds"),
    "5 batches": ("batches",),
    "6 global": ("global",),
}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the function that checks it."""

    group: str
    text: str
    checks: Callable[[Evidence], list[Check]]


CLAIMS = (
    Claim(
        "1 widths",
        "At width 0 EI, KG_h and ConBO all reach near-zero cost.",
        lambda e: e.near_zero([width_problem(f, 0) for f in FUNCTIONS], (EI, "kg-hybrid", "conbo-5")),
    ),
    Claim(
        "1 widths",
        "As the width grows ConBO stays near zero.",
        lambda e: e.near_zero([width_problem(f, w) for f in FUNCTIONS for w in WIDTHS], ("conbo-5",)),
    ),
    Claim(
        "1 widths",
        "The global methods get worse: at width 1 ConBO is better than EI and KG_h.",
        lambda e: e.costs("below", FUNCTIONS, ("conbo-5",), (EI, "kg-hybrid")),
    ),
    Claim("2 synthetic", "KNN is worst.", lambda e: e.costs("below", SYNTHETIC, (PG, *GP_METHODS), ("knn",))),
    Claim(
        "2 synthetic",
        "Every GP method is better than PG.",
        lambda e: e.costs("below", SYNTHETIC, GP_METHODS, (PG,)),
    ),
    Claim("2 synthetic", "PEQI is about as good as UNI.", lambda e: e.costs("level", SYNTHETIC, ("peqi",), (UNI,))),
    Claim("2 synthetic", "PEQI is much worse than EI.", lambda e: e.costs("below", SYNTHETIC, (EI,), ("peqi",))),
    Claim(
        "2 synthetic",
        "MTS, REVI and ConBO are better than UNI, EI and PEQI.",
        lambda e: e.costs("below", SYNTHETIC, CONDITIONAL, (UNI, EI, "peqi")),
    ),
    Claim(
        "2 synthetic",
        "ConBO-5 is better than ConBO-3.",
        lambda e: e.costs("below", SYNTHETIC, ("conbo-5",), ("conbo-3",)),
    ),
    Claim(
        "3 networks",
        "After 50 evaluations no method beats EI + transfer ...",
        lambda e: e.observed(
            "not above", NETWORK, 50, [(TRANSFERRED, Scored(m, "best_observed")) for m in CONDITIONAL]
        ),
    ),
    Claim(
        "3 networks",
        "... with a final round they match it.",
        lambda e: e.observed("level", NETWORK, 50, [(Scored(m, "final_round"), TRANSFERRED) for m in CONDITIONAL]),
    ),
    Claim(
        "3 networks",
        "After 100 evaluations all beat it.",
        lambda e: e.observed("below", NETWORK, 100, [(Scored(m, "best_observed"), TRANSFERRED) for m in CONDITIONAL]),
    ),
    Claim(
        "3 networks",
        "The same by the true mean of the best observed action (EI + transfer without its final round).",
        lambda e: e.observed(
            "below",
            NETWORK,
            100,
            [(Scored(m, "observed_mean"), Scored("transfer-ei", "observed_mean")) for m in CONDITIONAL],
        ),
    ),
    Claim(
        "3 networks",
        "The same by the true mean of the policy's action.",
        lambda e: e.observed(
            "below", NETWORK, 100, [(Scored(m, "score"), Scored("transfer-ei", "score")) for m in CONDITIONAL]
        ),
    ),
    Claim(
        "3 networks",
        "The final round helps every method.",
        lambda e: [
            c
            for at in (50, 100)
            for c in e.observed(
                "below", NETWORK, at, [(Scored(m, "final_round"), Scored(m, "best_observed")) for m in CONDITIONAL]
            )
        ],
    ),
    Claim(
        "3 networks",
        "Overhead: ConBO-5 takes about 5/3 of ConBO-3, MTS about the same as ConBO-3, REVI much more.",
        lambda e: [
            *e.takes(Timed(NETWORK, "conbo-5"), Timed(NETWORK, "conbo-3"), 1.3, 2.0),
            *e.takes(Timed(NETWORK, "mts"), Timed(NETWORK, "conbo-3"), 0.5, 2.0),
            *e.takes(Timed(NETWORK, "revi"), Timed(NETWORK, "conbo-3"), 2.0, math.inf),
        ],
    ),
    Claim(
        "4 simulators",
        "AMB: ConBO-5 and EI are best.",
        lambda e: e.costs("not above", ["ambulances"], ("conbo-5", EI), (*GP_METHODS, PG, "knn")),
    ),
    Claim(
        "4 simulators",
        "ATO: EI converges prematurely, ConBO-5 does not.",
        lambda e: e.costs("below", ["assemble_to_order"], ("conbo-5",), (EI,)),
    ),
    Claim(
        "4 simulators",
        "MTS, REVI and ConBO-3 are better than UNI.",
        lambda e: e.costs("below", SIMULATORS, ("mts", "revi", "conbo-3"), (UNI,)),
    ),
    Claim("4 simulators", "PG is poor on both.", lambda e: e.costs("below", SIMULATORS, (UNI,), (PG,))),
    Claim("4 simulators", "KNN is poor on AMB ...", lambda e: e.costs("below", ["ambulances"], (UNI,), ("knn",))),
    Claim(
        "4 simulators",
        "... and good on ATO.",
        lambda e: e.costs("below", ["assemble_to_order"], ("knn",), (UNI,)),
    ),
    Claim(
        "5 batches",
        "AMB: almost linear speed-up with batches of 4 and 8.",
        lambda e: e.batches("ambulances", (*BY_PENALTY, "mts"), (4, 8)),
    ),
    Claim(
        "5 batches",
        "ATO: mixed results.",
        lambda e: mixed(e.batches("assemble_to_order", (*BY_PENALTY, "mts"), (4, 8))),
    ),
    Claim(
        "5 batches",
        "Penalization adds hardly any overhead.",
        lambda e: [c for p in SIMULATORS for m in BY_PENALTY for c in e.takes(Timed(p, m, 8), Timed(p, m), 0, 1.5)],
    ),
    Claim(
        "6 global",
        "KG_d is worst.",
        lambda e: e.costs("below", (*PLANE, "hartmann6"), (*KG_MC, *KG_H), KG_D),
    ),
    Claim(
        "6 global",
        "KG_h outperforms KG_MC.",
        lambda e: e.costs("below", (*PLANE, "hartmann6"), KG_H, KG_MC),
    ),
    Claim(
        "6 global",
        "KG_h matches Thompson sampling ...",
        lambda e: e.costs("not above", PLANE, KG_H, ("thompson",)),
    ),
    Claim(
        "6 global",
        "... but is worse on Hartmann6.",
        lambda e: e.costs("below", ["hartmann6"], ("thompson",), KG_H),
    ),
)


def mixed(checks: Sequence[Check]) -> list[Check]:
    """Combine checks into one: whether some of them hold and others are refuted.

    Return a list with the new check, or an empty list if no checks are given. The new check is undecided if it does not
    hold and some of the given checks are undecided.
    """
    if not checks:
        return []
    holding, refuted = sum(c.holds for c in checks), sum(c.decided and not c.holds for c in checks)
    undecided = len(checks) - holding - refuted
    both = holding > 0 and refuted > 0
    text = f"of {len(checks)} checks, {holding} hold, {refuted} are refuted and {undecided} undecided"
    return [Check(both, text, decided=both or not undecided)]


def claims_table(runs: Mapping[Key, Run], times: Times) -> str:
    """A Markdown table of all claims, with a verdict on each and a summary of its checks.

    `times` are measured times of suggestions, for the claims about computing times.

    Only complete runs count as evidence. A figure's runs are used only if at least half of them are complete, and its
    runs on one problem only if at least half of those are complete.
    """
    made = {name: figure.shown(runs) if figure.is_mostly_made(runs) else [] for name, figure in FIGURES.items()}
    evidence = {
        group: Evidence({run.settings.key: run for name in names for run in made[name]}, times)
        for group, names in GROUPS.items()
    }
    rows = [["group", "claim of the paper", "verdict", "checks"]]
    for claim in CLAIMS:
        checks = claim.checks(evidence[claim.group])
        rows.append([claim.group, claim.text, verdict(checks), counted(checks)])
    return markdown(rows)


def verdict(checks: Sequence[Check]) -> str:
    """The verdict on a claim: "reproduced", "partly", "not reproduced", "undecided" or "not run yet".

    A claim is reproduced if all of its checks hold, and partly reproduced if some do. If none holds, the claim is not
    reproduced if at least one check is decided, else undecided. Without checks, it has not been run yet.
    """
    if not checks:
        return "not run yet"
    holding = sum(check.holds for check in checks)
    if holding:
        return "reproduced" if holding == len(checks) else "partly"
    return "not reproduced" if any(check.decided for check in checks) else "undecided"


def counted(checks: Sequence[Check]) -> str:
    """A summary of the checks of a claim: how many hold, how many are undecided, and the first few that do not hold.

    Most checks compare two methods, and also say whether the first one is better, level or worse. If these findings
    differ between the checks, the summary counts them too.
    """
    if not checks:
        return ""
    failing = [check.text for check in checks if not check.holds]
    undecided = sum(not check.decided for check in checks)
    count = f"{len(checks) - len(failing)} of {len(checks)} hold"
    count += f", {undecided} undecided" if undecided else ""
    standings = Counter(check.standing for check in checks if check.standing is not None)
    if len(standings) > 1:
        count += f" (better {standings['better']}, level {standings['level']}, worse {standings['worse']})"
    named = "; ".join(failing[:MOST_EXCEPTIONS])
    more = f"; {len(failing) - MOST_EXCEPTIONS} more" if len(failing) > MOST_EXCEPTIONS else ""
    return f"{count}; these do not: {named}{more}" if failing else count
