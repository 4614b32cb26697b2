"""The committed results are those of the declared figures."""

from dataclasses import replace
from pathlib import Path

from conbo.experiments.paper_figures import FIGURES
from conbo.experiments.run_file import read_folder

RESULTS = Path(__file__).parents[2] / "results"


def test_committed_runs_have_the_declared_settings():
    declared = {task.settings.key: task for figure in FIGURES.values() for task in figure.tasks()}
    runs = read_folder(RESULTS)
    assert runs
    for key, run in runs.items():
        task = declared[key]
        assert replace(run.settings, recipe="") == replace(task.settings, recipe="")
        assert run.evaluations <= task.evaluations
        assert run.complete in (0, task.evaluations)


def test_the_synthetic_figure_has_all_its_runs():
    figure = FIGURES["synthetic"]
    assert len(figure.shown(read_folder(RESULTS))) == len(figure.tasks())


def test_committed_runs_were_scored_on_time():
    """A run that two processes had written would have scores at other evaluations, or twice at one."""
    for run in read_folder(RESULTS).values():
        settings, evaluations = run.settings, run.settings.initial
        due = [evaluations]
        while evaluations < run.evaluations:
            evaluations = min(evaluations + settings.batch, run.evaluations)
            if evaluations // settings.every > due[-1] // settings.every or evaluations == run.evaluations:
                due.append(evaluations)
        assert [checkpoint.evaluations for checkpoint in run.checkpoints] == due
