from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from conbo.errors import SettingError, StorageError
from conbo.experiments import method_pictures
from conbo.experiments.drawing import draw_comparisons, save
from conbo.experiments.figure_drawings import DRAWINGS
from conbo.experiments.paper_figures import FIGURES, PICTURES, known_name
from conbo.experiments.problem_names import readable
from conbo.experiments.run_file import Checkpoint, Run, pack
from conbo.experiments.summary import compare
from conbo.spaces import Real, Space
from conbo.study import Study

AT_LEAST = {
    "synthetic": 20,
    "methods": 10,
    "models": 20,
    "noise-priors": 10,
    "widths": 20,
    "global": 20,
    "ambulances": 50,
    "assemble-to-order": 10,
    "cnn": 10,
    "finite": 10,
    "newer-rivals": 10,
    "fresh-functions": 20,
}


def made_up(figure, quick=False):
    """The runs of a figure with costs that fall at a speed of each method's own."""
    runs = []
    for task in figure.tasks(quick):
        settings = task.settings
        noise = np.random.default_rng([settings.seed, len(settings.method)])
        run = Run(settings, complete=task.evaluations)
        for n in (settings.initial, *range(2 * settings.every, task.evaluations, settings.every), task.evaluations):
            cost = float(np.exp(-n / (20 + len(settings.method)) + 0.2 * noise.standard_normal()))
            observed = (0.93, 0.94) if settings.final_round else (None, None)
            run.checkpoints.append(Checkpoint(n, cost, "opportunity cost", 0.1, 0.2, *observed))
        runs.append(run)
    return {run.settings.key: run for run in runs}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_drawing(name, tmp_path):
    figure = FIGURES[name]
    runs = figure.select(made_up(figure))
    assert len(runs) == len(figure.tasks())
    save(DRAWINGS[name](runs), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_pictures_and_packs_replace_no_database(tmp_path):
    path = tmp_path / "study.png"
    Study(Space(actions={"x": Real(0, 1)}), storage=path)
    with pytest.raises(StorageError, match="a file must not replace a database"):
        save(Figure(), path)
    with pytest.raises(StorageError, match="a file must not replace a database"):
        pack([], path)


@pytest.mark.parametrize("name", FIGURES)
def test_quick_versions_are_drawn_from_the_same_functions(name):
    figure = FIGURES[name]
    tasks, full = figure.tasks(quick=True), figure.tasks()
    assert sum(task.evaluations for task in tasks) < 0.1 * sum(task.evaluations for task in full)
    drawn = DRAWINGS[name](figure.select(made_up(figure, quick=True), quick=True))
    assert any(axes.has_data() for axes in drawn.axes)


@pytest.mark.parametrize("name", AT_LEAST)
def test_full_runs_have_enough_seeds_and_the_same_rules_for_all_methods(name):
    tasks = FIGURES[name].tasks()
    assert len({task.settings.seed for task in tasks}) >= AT_LEAST[name]
    for problem in {task.settings.problem for task in tasks}:
        rules = {
            (*replace(t.settings, method="", recipe="", seed=0).__dict__.values(), t.evaluations)
            for t in tasks
            if t.settings.problem == problem
        }
        assert len(rules) == 1


def test_figures_that_share_runs_agree_on_their_settings():
    settings = {}
    for figure in FIGURES.values():
        for task in figure.tasks():
            assert settings.setdefault(task.settings.key, task.settings) == task.settings


def test_the_synthetic_figure_has_the_papers_methods():
    tasks = FIGURES["synthetic"].tasks()
    assert len({task.settings.problem for task in tasks}) == 4
    papers = {"knn", "policy-gradient", "uniform", "expected-improvement", "peqi", "revi", "mts", "conbo-3", "conbo-5"}
    assert {task.settings.method for task in tasks} == {*papers, "conbo"}


def test_rewards_are_drawn_as_they_are():
    runs = made_up(FIGURES["ambulances"])
    for run in runs.values():
        run.checkpoints = [replace(c, measure="mean reward", score=-c.score) for c in run.checkpoints]
    (axes,) = draw_comparisons(compare(runs.values())).axes
    assert axes.get_yscale() == "linear"
    assert axes.get_ylabel() == "mean reward"
    assert all((line.get_ydata() <= 0).all() for line in axes.get_lines())


def test_a_method_has_the_same_color_in_all_panels():
    """Whatever its rank: here the chosen seeds are best on one problem, and one seed for all on the other."""
    runs = made_up(FIGURES["common-random-numbers"])
    for run in runs.values():
        best = "chosen" if run.settings.problem == "ambulances" else "one"
        factor = 0.1 if best in run.settings.method else 1.0
        run.checkpoints = [replace(c, score=factor * c.score) for c in run.checkpoints]
    first, second = draw_comparisons(compare(runs.values())).axes
    colors, others = ({line.get_label(): line.get_color() for line in axes.get_lines()} for axes in (first, second))
    assert colors == others
    assert len(set(colors.values())) == 3
    assert next(iter(colors)) != next(iter(others))


def test_names_of_problems_in_words():
    assert readable("assemble_to_order") == "Assemble to order"
    assert readable("cifar_cnn_table") == "Networks"
    assert readable("branin:state_distribution=triangular") == "Branin, triangular"
    assert readable("branin:width=0.5") == "Branin, width 0.5"
    assert readable("assemble_to_order:demand_enters=production_time") == "Assemble to order, production time"
    assert readable("branin:state_distribution=triangular,width=0.5") == "Branin, triangular, width 0.5"


def test_an_unknown_figure_is_told():
    with pytest.raises(SettingError, match="unknown figure 'synthetics': did you mean 'synthetic'"):
        known_name("synthetics")


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn(name, tmp_path):
    save(method_pictures.PICTURES[name](), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_estimates_of_the_knowledge_gradient_agree_about_where_it_is_large():
    belief = method_pictures.line()
    far, near = (torch.tensor([[x / 10]], dtype=torch.float64) for x in (method_pictures.CANDIDATE, 2.0))
    for recipe in filter(None, method_pictures.ESTIMATORS.values()):
        assert method_pictures.estimate(belief, recipe, far)[1] > method_pictures.estimate(belief, recipe, near)[1]
