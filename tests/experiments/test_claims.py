from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conbo.experiments.claims import CLAIMS, GROUPS, claims_table, counted, mixed, verdict
from conbo.experiments.evidence import Check, Evidence, Scored
from conbo.experiments.goal import goal_table, standing_sentence
from conbo.experiments.paper_figures import FIGURES
from conbo.experiments.run_file import Checkpoint, Run, RunSettings
from conbo.experiments.suggestion_times import Timed, paired_ratio, read_times

ROOT = Path(__file__).parents[2]

GOOD = (0.9, 0.5, 0.1)
BAD = (0.9, 0.8, 0.7)


def runs_of(problem, method, costs, batch=1, observed=(None, None, None), final=(None, None, None), seeds=8, noise=0):
    """Runs with nearly the same costs after 10, 50 and 100 evaluations; only the cost after 50 has noise."""
    runs = {}
    for seed in range(seeds):
        run = Run(RunSettings(problem, method, "", seed, 10, batch, 10, 16, 1), complete=100)
        rows = zip((10, 50, 100), costs, observed, final, strict=True)
        run.checkpoints = [
            Checkpoint(n, cost + 0.001 * seed + (n == 50) * noise * (-1) ** seed, "opportunity cost", 0.1, 0.1, o, f)
            for n, cost, o, f in rows
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
    assert check.text == "branin, a − b = -0.6 [-0.6, -0.6], p = 0.0078"
    (check,) = evidence.costs("not above", ["branin"], ["b"], ["a"])
    assert (check.decided, check.standing) == (True, "worse")
    refuted, undecided = evidence.costs("below", ["branin"], ["b", "a"], ["c"])
    assert (refuted.decided, undecided.decided) == (True, False)


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


def test_near_zero_is_scaled_by_the_best_method():
    runs = runs_of("branin", "best", (100.0, 10.0, 0.01)) | runs_of("branin", "good", (100.0, 10.0, 0.1))
    runs |= runs_of("branin", "random search", (100.0, 10.0, 0.5))
    evidence = Evidence(runs)
    assert holds(evidence.near_zero(["branin"], ["best", "good", "random search"])) == [True, True, False]
    least = runs_of("branin", "best", (1e6, 10.0, 0.0)) | runs_of("branin", "good", (1e6, 10.0, 0.1))
    assert holds(Evidence(least).near_zero(["branin"], ["best", "good"])) == [True, True]


def test_batches_are_compared_with_single_evaluations():
    runs = runs_of("ambulances", "a", GOOD) | runs_of("ambulances", "b", GOOD)
    runs |= runs_of("ambulances", "a", GOOD, batch=4) | runs_of("ambulances", "b", BAD, batch=4)
    assert holds(Evidence(runs).batches("ambulances", ["a", "b"], [4, 8])) == [True, False]


def test_a_speed_up_that_half_the_evaluations_would_show_too_is_undecided():
    flat = (0.9, 0.11, 0.1)  # nothing happens in the second half
    runs = runs_of("ambulances", "a", flat) | runs_of("ambulances", "a", flat, batch=4)
    (check,) = Evidence(runs).batches("ambulances", ["a"], [4])
    assert (check.holds, check.decided) == (False, False)
    assert "but single evaluations stopped at 50 do not fail this test" in check.text
    assert verdict([check]) == "undecided"
    shaky = runs_of("ambulances", "a", (0.9, 0.13, 0.1), noise=0.04) | runs_of("ambulances", "a", flat, batch=4)
    (control,) = Evidence(shaky).batches("ambulances", ["a"], [4])  # the control neither passes nor fails
    assert (control.holds, control.decided) == (False, False)
    assert "do not fail this test" in control.text


def test_observed_rewards_with_and_without_a_final_round():
    runs = runs_of("cnn", "a", GOOD, observed=(0.8, 0.9, 0.94), final=(0.8, 0.95, 0.96))
    runs |= runs_of("cnn", "tr", BAD, observed=(0.8, 0.8, 0.8), final=(0.8, 0.93, 0.93))
    evidence = Evidence(runs)
    transfer = Scored("tr", "final_round")
    for at, without, with_round in ((50, False, True), (100, True, True)):
        below = evidence.observed("below", "cnn", at, [(Scored("a", "best_observed"), transfer)])
        assert holds(below) == [without]
        below = evidence.observed("below", "cnn", at, [(Scored("a", "final_round"), transfer)])
        assert holds(below) == [with_round]
    assert holds(evidence.observed("level", "cnn", 50, [(transfer, transfer)])) == [True]
    assert holds(evidence.observed("level", "cnn", 50, [(Scored("a", "final_round"), transfer)])) == [False]
    # by what the policies truly earn
    assert holds(evidence.observed("below", "cnn", 100, [(Scored("a", "score"), Scored("tr", "score"))])) == [True]
    assert evidence.observed("below", "cnn", 100, [(Scored("a", "observed_mean"), transfer)]) == []  # not recorded


def test_times_are_compared_as_ratios():
    one, slow, batch = Timed("cnn", "a"), Timed("cnn", "b"), Timed("cnn", "a", batch=8)
    seconds = np.linspace(0.1, 0.5, 8)  # seeds differ a lot, but the ratios within a seed hardly do
    shaken = 1 + 0.01 * np.cos(np.arange(8.0))
    evidence = Evidence({}, {one: seconds, slow: 1.7 * seconds * shaken, batch: 1.5 * seconds * shaken})
    (fits,), (misses,) = evidence.takes(slow, one, 1.3, 2.0), evidence.takes(slow, one, 2.0, 9.0)
    assert (fits.holds, misses.holds, misses.decided) == (True, False, True)
    assert fits.text == "b on cnn takes 1.7 [1.7, 1.7] times as long as a on cnn (claimed: at least 1.3 and at most 2)"
    (near,) = evidence.takes(batch, one, 0, 1.5)  # the interval contains the limit
    assert (near.holds, near.decided) == (False, False)
    assert near.text.startswith("a on cnn (batches of 8) takes 1.5 ")
    assert evidence.takes(Timed("cnn", "c"), one, 0, 9) == []
    few = Evidence({}, {timed: values[:7] for timed, values in {one: seconds, slow: seconds}.items()})
    assert few.takes(slow, one, 0, 9) == []  # too few seeds


def test_a_ratio_is_a_geometric_mean_with_a_t_interval():
    ratio = paired_ratio(np.array([1.0, 2.0, 4.0]), np.array([2.0, 2.0, 2.0]))
    assert ratio.mean == pytest.approx(1.0)
    half_width = np.log(2) * 4.302653 / np.sqrt(3)  # 97.5 % quantile of t with two degrees of freedom
    assert np.log([ratio.low, ratio.high]) == pytest.approx([-half_width, half_width], rel=1e-6)


def test_recorded_times_are_read_back():
    times = read_times(ROOT / "results/suggestion_times.json")
    assert {len(seconds) for seconds in times.values()} == {10}
    checked = [check for claim in CLAIMS for check in claim.checks(Evidence({}, times))]
    assert len(checked) == 7  # all claims about times find theirs
    assert read_times(ROOT / "results/no such file") == {}


@pytest.mark.parametrize(
    ("checks", "said", "count"),
    [
        ([Check(True, "x"), Check(True, "y")], "reproduced", "2 of 2 hold"),
        ([Check(True, "x"), Check(False, "y")], "partly", "1 of 2 hold; these do not: y"),
        ([Check(False, str(i)) for i in range(5)], "not reproduced", "0 of 5 hold; these do not: 0; 1; 2; 2 more"),
        ([Check(False, "x", decided=False)], "undecided", "0 of 1 hold, 1 undecided; these do not: x"),
        (
            [Check(True, "x", standing="better"), Check(False, "y", standing="level")],
            "partly",
            "1 of 2 hold (better 1, level 1, worse 0); these do not: y",
        ),
    ],
)
def test_verdicts_and_counts(checks, said, count):
    assert verdict(checks) == said
    assert counted(checks) == count
    assert holds(mixed(checks)) == [said == "partly"]


def test_mixed_results_need_a_check_that_holds_and_one_that_is_refuted():
    shown, refuted, open_ = Check(True, "x"), Check(False, "y"), Check(False, "z", decided=False)
    assert mixed([shown, refuted, open_])[0][:3] == (True, "of 3 checks, 1 hold, 1 are refuted and 1 undecided", True)
    assert [(c.holds, c.decided) for c in mixed([shown, open_])] == [(False, False)]
    assert [(c.holds, c.decided) for c in mixed([shown, shown])] == [(False, True)]


def test_every_claim_has_a_row_whether_it_was_run_or_not():
    runs = {task.settings.key: Run(task.settings, complete=40) for task in FIGURES["synthetic"].tasks()}
    for run in runs.values():
        last = {"conbo-5": 0.1, "knn": 9.0}.get(run.settings.method, 0.5)
        run.checkpoints = [Checkpoint(n, c, "opportunity cost", 0.1, 0.1) for n, c in ((6, 20.0), (40, last))]
    lines = claims_table(runs, {}).splitlines()
    assert len(lines) == len(CLAIMS) + 2
    said = {line.split("|")[2].strip(): line.split("|")[3].strip() for line in lines[2:]}
    assert said["KNN is worst."] == "reproduced"
    assert said["ConBO-5 is better than ConBO-3."] == "reproduced"
    assert said["PEQI is about as good as UNI."] == "reproduced"  # the same costs at every seed
    assert said["PEQI is much worse than EI."] == "undecided"
    assert said["MTS, REVI and ConBO are better than UNI, EI and PEQI."] == "partly"
    assert said["KG_d is worst."] == "not run yet"
    # the widths share some runs with this figure, but far from half of theirs
    assert said["As the width grows ConBO stays near zero."] == "not run yet"
    assert {claim.group for claim in CLAIMS} == set(GROUPS)


def goal_row(runs, as_published=False):
    return [cell.strip() for cell in goal_table(runs, as_published).splitlines()[-1].strip("|").split("|")]


def test_the_goal_is_a_share_of_the_best_rivals_evaluations():
    runs = (
        runs_of("branin", "conbo", GOOD) | runs_of("branin", "rival", (0.9, 0.7, 0.5)) | runs_of("branin", "bad", BAD)
    )
    row = goal_row(runs)
    assert row[:2] == ["branin", "rival"]
    assert row[-3:] == ["better", "50 %", "met"]
    row = goal_row(runs_of("branin", "conbo", BAD) | runs_of("branin", "rival", GOOD))
    assert row[-3:] == ["worse", "more", "missed"]


def test_every_label_that_was_run_is_a_rival_but_for_our_own():
    runs = runs_of("branin", "conbo", (0.9, 0.5, 0.3)) | runs_of("branin", "bad", BAD)
    runs |= runs_of("branin", "kg-hybrid n_z=5", (0.9, 0.3, 0.2)) | runs_of("branin", "bad/auto", (0.9, 0.2, 0.1))
    runs |= runs_of("branin", "conbo/matern52", (0.9, 0.2, 0.0)) | runs_of("branin", "conbo, one seed", (0.9, 0.2, 0.0))
    runs |= runs_of("branin", "optuna k=4", (0.9, 0.2, 0.0), seeds=5)  # too few to tell
    assert goal_row(runs)[1] == "bad/auto"
    assert goal_row(runs, as_published=True)[1] == "kg-hybrid n_z=5"
    assert "worse than some rival on 1: branin (bad/auto, kg-hybrid n_z=5)" in standing_sentence(runs)


def test_a_rival_that_is_surely_better_counts_even_if_another_one_is_better_on_average():
    runs = runs_of("branin", "conbo", (0.9, 0.5, 0.3)) | runs_of("branin", "surely", (0.9, 0.5, 0.29))
    lucky = runs_of("branin", "lucky", (0.9, 0.5, 0.3))
    for number, run in enumerate(lucky.values()):  # far better at one seed, slightly worse at the others
        last = run.checkpoints[-1]
        run.checkpoints[-1] = replace(last, score=last.score - 0.2 if number == 0 else last.score + 0.001)
    row = goal_row(runs | lucky)
    assert row[1] == "lucky"
    assert row[-3] == "worse than surely"
    assert "worse than some rival on 1: branin (surely)" in standing_sentence(runs | lucky)


def test_methods_that_both_solve_a_problem_are_level():
    runs = runs_of("branin", "rival", (9e5, 1.0, 1e-4))
    assert goal_row(runs | runs_of("branin", "conbo", (9e5, 1.0, 0.5)))[-3:] == ["level", "more", "missed"]
    assert goal_row(runs | runs_of("branin", "conbo", (9e5, 1.0, 1.0)))[-3:] == ["worse", "more", "missed"]


def test_a_method_that_gets_worse_again_needs_longer():
    bumpy = runs_of("branin", "conbo", (0.2, 0.9, 0.1)) | runs_of("branin", "rival", (0.9, 0.7, 0.5))
    assert goal_row(bumpy)[-2:] == ["75 %", "missed"]
