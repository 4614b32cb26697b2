import pytest

from conbo.experiments.claims import CLAIMS, GROUPS, claims_table, counted, goal_table, mixed, verdict
from conbo.experiments.evidence import Check, Evidence
from conbo.experiments.paper_figures import FIGURES
from conbo.experiments.run_file import Checkpoint, Run, RunSettings

GOOD = (0.9, 0.5, 0.1)
BAD = (0.9, 0.8, 0.7)


def runs_of(
    problem, method, costs, batch=1, seconds=0.1, observed=(None, None, None), final=(None, None, None), seeds=8
):
    """Runs with nearly the same costs after 10, 50 and 100 evaluations."""
    runs = {}
    for seed in range(seeds):
        run = Run(RunSettings(problem, method, "", seed, 10, batch, 10, 16, 1), complete=100)
        rows = zip((10, 50, 100), costs, observed, final, strict=True)
        run.checkpoints = [
            Checkpoint(n, cost + 0.001 * seed, "opportunity cost", 0.1, seconds, o, f) for n, cost, o, f in rows
        ]
        runs[run.settings.key] = run
    return runs


def holds(checks):
    return [check.holds for check in checks]


def test_costs_are_compared_by_their_paired_intervals():
    evidence = Evidence(runs_of("branin", "a", GOOD) | runs_of("branin", "b", BAD) | runs_of("branin", "c", GOOD))
    assert holds(evidence.costs("below", ["branin"], ["a"], ["b"])) == [True]
    assert holds(evidence.costs("below", ["branin"], ["b", "a"], ["a", "c"])) == [False, False, False]
    assert holds(evidence.costs("level", ["branin"], ["a"], ["b", "c"])) == [False, True]
    assert holds(evidence.costs("not above", ["branin"], ["a"], ["b", "c"])) == [True, True]
    assert holds(evidence.costs("not above", ["branin"], ["b"], ["a"])) == [False]
    (check,) = evidence.costs("below", ["branin"], ["a"], ["b"])
    assert check.text == "branin, a − b = -0.6 [-0.6, -0.6]"


def test_what_was_not_run_is_not_checked():
    evidence = Evidence(runs_of("branin", "a", GOOD))
    assert evidence.costs("below", ["branin", "rosenbrock"], ["a"], ["b"]) == []
    assert verdict([]) == "not run yet"
    few = runs_of("branin", "a", GOOD, seeds=7) | runs_of("branin", "b", BAD)
    assert Evidence(few).costs("below", ["branin"], ["a"], ["b"]) == []
    unfinished = runs_of("branin", "a", GOOD)
    for run in unfinished.values():
        run.complete = 0
    assert Evidence(unfinished).near_zero(["branin"], ["a"]) == []


def test_near_zero_is_a_hundredth_of_the_first_cost():
    runs = runs_of("branin", "good", (100.0, 10.0, 0.5)) | runs_of("branin", "bad", (100.0, 10.0, 1.5))
    assert holds(Evidence(runs).near_zero(["branin"], ["good", "bad"])) == [True, False]


def test_batches_are_compared_with_single_evaluations():
    runs = runs_of("ambulances", "a", GOOD) | runs_of("ambulances", "b", GOOD)
    runs |= runs_of("ambulances", "a", GOOD, batch=4, seconds=0.11) | runs_of(
        "ambulances", "b", BAD, batch=4, seconds=9
    )
    evidence = Evidence(runs)
    assert holds(evidence.batches("ambulances", ["a", "b"], [4, 8])) == [True, False]
    assert holds(evidence.batch_overhead("ambulances", ["a", "b"], 4, most=1.5)) == [True, False]


def test_observed_rewards_with_and_without_a_final_round():
    runs = runs_of("cnn", "a", GOOD, observed=(0.8, 0.9, 0.94), final=(0.8, 0.95, 0.96))
    runs |= runs_of("cnn", "tr", BAD, observed=(0.8, 0.8, 0.8), final=(0.8, 0.93, 0.93))
    evidence = Evidence(runs)
    for at, without, with_round in ((50, False, True), (100, True, True)):
        below = evidence.observed("below", "cnn", at, ["a"], "best_observed", "tr", "final_round")
        assert holds(below) == [without]
        below = evidence.observed("below", "cnn", at, ["a"], "final_round", "tr", "final_round")
        assert holds(below) == [with_round]
    assert holds(evidence.observed("below", "cnn", 50, ["a"], "final_round", None, "best_observed")) == [True]


def test_overheads_are_compared_as_ratios():
    evidence = Evidence(runs_of("cnn", "a", GOOD, seconds=0.1) | runs_of("cnn", "b", GOOD, seconds=0.17))
    assert holds(evidence.slower("cnn", "b", "a", 1.3, 2.0)) == [True]
    assert holds(evidence.slower("cnn", "b", "a", 2.0, 9.0)) == [False]


@pytest.mark.parametrize(
    ("checks", "said", "count"),
    [
        ([Check(True, "x"), Check(True, "y")], "reproduced", "2 of 2 hold"),
        ([Check(True, "x"), Check(False, "y")], "partly", "1 of 2 hold; not y"),
        ([Check(False, str(i)) for i in range(5)], "not reproduced", "0 of 5 hold; not 0; 1; 2; 2 more"),
    ],
)
def test_verdicts_and_counts(checks, said, count):
    assert verdict(checks) == said
    assert counted(checks) == count
    assert holds(mixed(checks)) == [said == "partly"]


def test_every_claim_has_a_row_whether_it_was_run_or_not():
    runs = {task.settings.key: Run(task.settings, complete=40) for task in FIGURES["synthetic"].tasks()}
    for run in runs.values():
        last = {"conbo-5": 0.1, "knn": 9.0}.get(run.settings.method, 0.5)
        run.checkpoints = [Checkpoint(n, c, "opportunity cost", 0.1, 0.1) for n, c in ((6, 20.0), (40, last))]
    lines = claims_table(runs).splitlines()
    assert len(lines) == len(CLAIMS) + 2
    said = {line.split("|")[2].strip(): line.split("|")[3].strip() for line in lines[2:]}
    assert said["KNN is worst."] == "reproduced"
    assert said["ConBO-5 is better than ConBO-3."] == "reproduced"
    assert said["PEQI is about as good as UNI."] == "reproduced"
    assert said["PEQI is much worse than EI."] == "not reproduced"
    assert said["MTS, REVI and ConBO are better than UNI, EI and PEQI."] == "partly"
    assert said["KG_d is worst."] == "not run yet"
    # the widths share some runs with this figure, but far from half of theirs
    assert said["As the width grows ConBO stays near zero."] == "not run yet"
    assert {claim.group for claim in CLAIMS} == set(GROUPS)


def test_the_goal_is_a_share_of_the_best_rivals_evaluations():
    runs = (
        runs_of("branin", "conbo", GOOD) | runs_of("branin", "rival", (0.9, 0.7, 0.5)) | runs_of("branin", "bad", BAD)
    )
    row = [cell.strip() for cell in goal_table(runs, ["rival", "bad"]).splitlines()[-1].strip("|").split("|")]
    assert row[:2] == ["branin", "rival"]
    assert row[-2:] == ["50 %", "met"]
    runs = runs_of("branin", "conbo", BAD) | runs_of("branin", "rival", GOOD)
    assert "more" in goal_table(runs, ["rival", "bad"]).splitlines()[-1]
    assert "missed" in goal_table(runs, ["rival", "bad"]).splitlines()[-1]
