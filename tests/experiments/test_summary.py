import math

import numpy as np
import pytest

from conbo.errors import SettingError
from conbo.experiments.run_file import Checkpoint, Run, RunSettings
from conbo.experiments.summary import compare, last_crossing, table, with_error


def runs_of(method, scores, measure="opportunity cost", problem="branin", batch=1, seconds=0.1):
    """One run for every row of scores, after 10, 20, ... evaluations."""
    runs = []
    for seed, row in enumerate(scores):
        run = Run(RunSettings(problem, method, "", seed, 10, batch, 10, 16, 1))
        run.checkpoints = [Checkpoint(10 * i, score, measure, 0.01, seconds) for i, score in enumerate(row, start=1)]
        runs.append(run)
    return runs


FAST = [[4.0, 2.0, 1.0, 0.5], [4.0, 1.0, 1.0, 0.3], [4.0, 3.0, 1.0, 0.1]]
SLOW = [[4.0, 4.0, 3.0, 2.0], [4.0, 4.0, 3.0, 1.0], [4.0, 4.0, 3.0, 3.0]]


def test_means_errors_and_ranks():
    (comparison,) = compare([*runs_of("fast", FAST), *runs_of("slow", SLOW)])
    assert comparison.methods == ["fast", "slow"]
    assert comparison.evaluations.tolist() == [10, 20, 30, 40]
    assert comparison.mean("fast").tolist() == pytest.approx([4.0, 2.0, 1.0, 0.3])
    assert comparison.error("fast")[-1] == pytest.approx(0.2 / math.sqrt(3))
    assert comparison.ranks == {"fast": 1.0, "slow": 2.0}
    assert comparison.suggest_seconds["slow"] == pytest.approx(0.1)


def test_the_share_of_evaluations_to_reach_another_methods_final_cost():
    (comparison,) = compare([*runs_of("fast", FAST), *runs_of("slow", SLOW)])
    # slow ends at 2.0, where fast is after 20 of 40
    assert comparison.share_of_evaluations("slow", against="fast") == pytest.approx(0.5)
    # halfway between the checkpoints at 20 (2.0) and 30 (1.0)
    assert comparison.evaluations_to_reach("fast", 1.5) == pytest.approx(25)
    assert comparison.evaluations_to_reach("fast", 9.0) == 10
    assert math.isnan(comparison.share_of_evaluations("fast", against="slow"))


def test_a_method_must_stay_at_the_cost_that_it_needs():
    evaluations = np.array([10.0, 20.0, 30.0, 40.0])
    assert last_crossing(evaluations, np.array([4.0, 1.0, 3.0, 1.0]), 2.0) == pytest.approx(35)  # not 16.7
    assert math.isnan(last_crossing(evaluations, np.array([4.0, 1.0, 1.0, 3.0]), 2.0))  # it ends above
    assert last_crossing(evaluations, np.array([2.0, 1.0, 1.5, 0.5]), 2.0) == 10


def test_two_methods_are_compared_at_the_seeds_that_both_have():
    (comparison,) = compare([*runs_of("fast", FAST), *runs_of("slow", SLOW[:2])])
    both = comparison.between("slow", "fast")
    assert both.seeds.tolist() == [0, 1]
    assert both.mean("fast")[-1] == pytest.approx(0.4)


def test_missing_seeds_are_left_out_of_pairs_and_ranks():
    (comparison,) = compare([*runs_of("fast", FAST), *runs_of("slow", SLOW[:2])])
    assert comparison.runs("slow") == 2
    assert comparison.difference("slow", "fast").pairs == 2
    assert comparison.difference("slow", "fast").mean == pytest.approx((1.5 + 0.7) / 2)
    assert comparison.ranks == {"fast": 1.0, "slow": 2.0}


def test_runs_that_are_not_complete_do_not_count():
    short = runs_of("slow", [row[:2] for row in SLOW])
    (comparison,) = compare([*runs_of("fast", FAST), *short])
    assert comparison.evaluations[-1] == 40
    assert comparison.runs("slow") == 0
    assert math.isnan(comparison.mean("slow")[-1])
    assert math.isnan(comparison.difference("slow", "fast").mean)


def test_high_rewards_are_good():
    low, high = runs_of("low", [[1.0, 2.0]] * 3, "mean reward"), runs_of("high", [[1.0, 5.0]] * 3, "mean reward")
    (comparison,) = compare([*low, *high])
    assert comparison.methods == ["high", "low"]
    assert comparison.difference("low", "high").mean == pytest.approx(3.0)  # worse by so much
    best = table(comparison, "high").splitlines()[-2]
    assert [cell.strip() for cell in best.strip("|").split("|")][:4] == ["high", "3", "1", "5"]


def test_problems_and_batches_are_compared_apart():
    runs = [*runs_of("a", FAST), *runs_of("a", FAST, batch=4), *runs_of("a", FAST, problem="rosenbrock")]
    found = [(comparison.problem, comparison.batch) for comparison in compare(runs)]
    assert found == [("branin", 1), ("branin", 4), ("rosenbrock", 1)]


def test_the_table_says_who_wins_by_how_much():
    (comparison,) = compare([*runs_of("fast", FAST), *runs_of("slow", SLOW)])
    lines = table(comparison, against="fast").splitlines()
    assert lines[0] == "### branin: opportunity cost after 40 evaluations"
    cells = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    assert cells[:2] == ["slow", "3"]
    assert cells[4] == "2.00 ± 0.58"
    assert cells[-3:] == ["50 %", "10 ms", "100 ms"]
    assert lines[-2].startswith("| fast ")


def test_an_unknown_method_is_told():
    (comparison,) = compare(runs_of("fast", FAST))
    with pytest.raises(SettingError, match="no runs of 'fats' on 'branin': did you mean 'fast'"):
        comparison.mean("fats")


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (0.0011, 0.00031, "0.00110 ± 0.00031"),
        (313.4, 184.2, "313 ± 184"),
        (5.947e-8, 1.7e-8, "5.9e-08 ± 1.7e-08"),
        (0.81234567, 8e-6, "8.123457e-01 ± 8.0e-06"),
        (2.5, math.nan, "2.5"),
        (2.0, 0.0, "2"),
    ],
)
def test_errors_set_the_digits(mean, error, text):
    assert with_error(mean, error) == text
