"""Finds recorded runs that are stale: their code or settings have since changed, or their code was not recorded."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from conbo.experiments.origin import code_of, is_stale
from conbo.experiments.paper_figures import Figure
from conbo.experiments.run_file import Key, Run
from conbo.experiments.runner import Task
from conbo.experiments.summary import markdown
from conbo.rounding import counted

State: TypeAlias = Literal["made", "confirmed", "stale"]

NO_RECORD = "no record of the code that made them"
OTHER_RECIPE = "the method's settings are others now"
OTHER_CODE = "code that they depend on has changed since {versions}"


def why_stale(run: Run, task: Task) -> str | None:
    """The reason why a run is stale, or None if its recipe is unchanged and the current code made or confirmed it."""
    if not run.origins:
        return NO_RECORD
    if run.settings.recipe != task.settings.recipe:
        return OTHER_RECIPE
    if is_stale(run, code_of(task.settings, task.method)):
        versions = ", ".join(dict.fromkeys(origin.version for origin in run.origins))
        return OTHER_CODE.format(versions=versions)
    return None


def stale_table(figures: Sequence[Figure], runs: Mapping[Key, Run]) -> str:
    """A Markdown table of the figures' stale runs with the reasons, and a sentence that counts these runs.

    A recorded run is stale if its code or settings have since changed, or if its code was not recorded.
    """
    stale: Counter[tuple[str, str, str, str]] = Counter()
    keys: dict[Key, bool] = {}
    for figure in figures:
        for task in figure.tasks():
            if (key := task.settings.key) not in runs:
                continue
            why = why_stale(runs[key], task)
            keys[key] = why is not None
            if why is not None:
                batch = f", batches of {task.settings.batch}" if task.settings.batch > 1 else ""
                stale[figure.name, task.settings.problem + batch, task.settings.method, why] += 1
    said = f"{sum(keys.values())} of {counted(len(keys), 'recorded run', 'recorded runs')} are stale."
    if not stale:
        return said
    rows = [["figure", "problem", "method", "runs", "why"]]
    rows += [[figure, problem, method, str(n), why] for (figure, problem, method, why), n in sorted(stale.items())]
    return f"{markdown(rows)}\n\n{said}"


def state_counts(figure: Figure, runs: Mapping[Key, Run]) -> Counter[State]:
    """Count the recorded runs of a figure by state: "made" by the current code, "confirmed" for it, or "stale"."""
    found = ((runs[key], task) for task in figure.tasks() if (key := task.settings.key) in runs)
    return Counter(state_of(run, task) for run, task in found)


def state_of(run: Run, task: Task) -> State:
    """Whether a run was "made" by the current code, is "confirmed" for it (see `confirmation`), or is "stale"."""
    if why_stale(run, task) is not None:
        return "stale"
    code = code_of(task.settings, task.method)
    return "made" if all(origin.code == code for origin in run.origins) else "confirmed"
