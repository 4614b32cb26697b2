"""Numbers of the page, computed again from the raw files by code that shares nothing with the library."""

import json
import lzma
import math
import re
from collections import defaultdict
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from statistics import mean, median, stdev

import pytest

ROOT = Path(__file__).parents[2]
PAGE, README = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/reproduction.md", "README.md"))


@cache
def raw():
    """By (problem, method, batch) and seed: the checkpoints of complete runs, as plain records."""
    runs = defaultdict(dict)
    for path in sorted((ROOT / "results").glob("*.jsonl.xz")):
        key, checkpoints = None, []
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            record = json.loads(line)
            if "format" in record:
                key = (record["problem"], record["method"], record["batch"]), record["seed"]
                checkpoints = []
            elif "checkpoint" in record:
                checkpoints.append(record)
            elif "complete" in record and checkpoints[-1]["checkpoint"] == record["complete"]:
                runs[key[0]][key[1]] = checkpoints
    return runs


def finals(problem, method, batch=1):
    return {seed: run[-1]["score"] for seed, run in raw()[problem, method, batch].items()}


def curve(problem, method, seeds):
    """Mean costs by number of evaluations."""
    runs = [raw()[problem, method, 1][seed] for seed in seeds]
    return {c[0]["checkpoint"]: mean(one["score"] for one in c) for c in zip(*runs, strict=True)}


def block(name, text=PAGE):
    return re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)[1]


def table(text, start=""):
    """The first table after a text, as one record for each row, by the row's first cell."""
    lines = text[text.index(start) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    head, _, *body = rows
    return {row[0]: dict(zip(head, row, strict=True)) for row in body}


def said(text):
    """Numbers of a text."""
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)]


def as_said(text, *values):
    """Whether a text shows these values, to the digits that it has."""
    for number, value in zip(re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text), values, strict=False):
        digits = len(re.sub(r"e.*|[-.]", "", number).lstrip("0")) or 1
        place = 10.0 ** (math.floor(math.log10(abs(float(number) or value))) - digits + 1)
        assert float(number) == pytest.approx(value, abs=1.1 * place), f"{text} should be {value}"


@pytest.mark.parametrize(
    ("name", "problem", "method"),
    [
        ("synthetic", "branin", "conbo"),
        ("synthetic", "rosenbrock", "uniform"),
        ("ambulances", "ambulances", "knn"),
        ("assemble-to-order", "assemble_to_order", "conbo-3"),
    ],
)
def test_means_and_standard_errors(name, problem, method):
    row = table(block(name), f"### {problem}: ")[method]
    seeds = {"synthetic": 20, "ambulances": 50}.get(name, 10)  # other seeds belong to other figures
    costs = [cost for seed, cost in finals(problem, method).items() if seed < seeds]
    last = [cell for head, cell in row.items() if head.startswith("at ")][-1]
    as_said(last, mean(costs), stdev(costs) / math.sqrt(len(costs)))
    assert row["runs"] == str(len(costs)) == str(seeds)


def test_a_paired_difference_and_all_its_signs():
    mine, ours = finals("assemble_to_order", "revi"), finals("assemble_to_order", "conbo")
    gaps = [mine[seed] - ours[seed] for seed in sorted(mine.keys() & ours.keys())]
    row = table(block("assemble-to-order"), "### assemble_to_order: ")["revi"]
    as_said(row["above conbo [95 %]"], mean(gaps))
    assert len(gaps) <= 12  # with more pairs, the page draws signs at random
    flipped = [
        abs(sum(s * g for s, g in zip(signs, gaps, strict=True))) for signs in product((1, -1), repeat=len(gaps))
    ]
    as_said(row["p"], mean(f >= abs(sum(gaps)) - 1e-9 for f in flipped))


def test_the_best_rival_is_the_best_of_all_labels():
    row = table(block("goal"))["branin_global"]
    means = {
        method: mean(finals(problem, method).values())
        for problem, method, batch in raw()
        if (problem, batch) == ("branin_global", 1) and not re.match(r"conbo(/|, |$)", method)
    }
    best = min(means, key=means.get)
    assert row["best rival"] == best
    as_said(row["rival's cost"], means[best])


@pytest.mark.parametrize(("problem", "name"), [("assemble_to_order", "goal-as-published"), ("cifar_cnn_table", "goal")])
def test_needed_evaluations_end_at_the_last_crossing(problem, name):
    row = table(block(name))[problem]
    seeds = finals(problem, row["best rival"]).keys() & finals(problem, "conbo").keys()
    goal = list(curve(problem, row["best rival"], seeds).values())[-1]
    ours = curve(problem, "conbo", seeds)
    places = sorted(ours)
    needed = None
    for before, after in pairwise(places):  # the last one that goes down through the goal counts
        if ours[before] > goal >= ours[after]:
            needed = before + (after - before) * (ours[before] - goal) / (ours[before] - ours[after])
    if ours[places[-1]] > goal:
        assert row["conbo needs"] == "more"
    else:
        as_said(row["conbo needs"], 100 * needed / places[-1])


def test_near_zero_is_said_as_multiples_of_the_best_method():
    text = block("claims")
    found = re.search(r"branin:width=0.5, conbo-5: (\S+), (\S+) times (\S+?)[;|\s]", text)
    methods = {method for problem, method, _ in raw() if problem == "branin:width=0.5"}
    costs = {method: finals("branin:width=0.5", method) for method in methods}
    means = {method: mean(cost for seed, cost in of.items() if seed < 20) for method, of in costs.items()}
    assert found[3] == min(means, key=means.get)
    as_said(found[1], means["conbo-5"])
    as_said(found[2], means["conbo-5"] / min(means.values()))


def test_times_are_medians_of_all_checkpoints():
    seconds = [
        c["suggest_seconds"] for run in raw()["branin", "mts", 1].values() for c in run if "suggest_seconds" in c
    ]
    as_said(table(block("synthetic"), "### branin: ")["mts"]["suggest"], 1000 * median(seconds))


def test_the_front_page_has_the_same_numbers():
    costs = list(finals("assemble_to_order", "expected-improvement").values())
    row = table(block("costs", README))["assemble to order (1 + 8)"]
    as_said(row["expected improvement"], mean(costs), stdev(costs) / math.sqrt(len(costs)))


def test_runs_are_counted():
    row = table(block("made"))["widths"]
    widths = [
        f"{f}{w}"
        for f in ("branin", "rosenbrock")
        for w in ("", ":width=0", *(f":width={x}" for x in (0.25, 0.5, 0.75)))
    ]
    methods = ("expected-improvement", "kg-hybrid", "conbo-5", "conbo", "kg-hybrid/auto", "conbo-5/auto")
    complete = sum(len([seed for seed in finals(w, m) if seed < 20]) for w in widths for m in methods)
    assert row["complete runs"] == str(complete)


@pytest.mark.parametrize(
    ("problem", "words"), [("branin", "Branin, 40 evaluations"), ("ambulances", "Ambulances, 200 evaluations")]
)
def test_the_alternatives_of_the_front_page(problem: str, words: str) -> None:
    rows = {name: row[words] for name, row in table(block("alternatives", README)).items()}
    costs = [cost for seed, cost in finals(problem, "conbo").items() if seed < 8]
    as_said(rows["conbo"], mean(costs), stdev(costs) / math.sqrt(len(costs)))
    for library, shown in (("optuna", "Optuna"), ("ax", "Ax")):
        grids = {m: mean(finals(p, m).values()) for p, m, _ in raw() if p == problem and m.startswith(f"{library} k=")}
        row = rows[f"{shown}: k states, each on its own"]
        if not grids:
            assert row == "not run"
            continue
        best = min(grids, key=grids.get)
        as_said(row, grids[best])
        assert row.endswith(f"({best.partition('=')[2]})")
