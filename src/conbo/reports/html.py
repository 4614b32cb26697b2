"""`conbo.report`, which writes a study as one self-contained HTML page."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from conbo.common_random_numbers import SEED
from conbo.errors import SettingError
from conbo.files import ending, write_whole
from conbo.plots.view import Studied, View, view_of
from conbo.policies.interaction import depends_on_state
from conbo.problems import Problem
from conbo.reports.explorer import explorer_record
from conbo.reports.panels import sections
from conbo.rounding import MARGIN_IN_WORDS, number, with_margin
from conbo.spaces import Categorical, Parameter, Value, is_number
from conbo.study.trial_rows import has_seeds, measured_columns
from conbo.trials import Trial
from conbo.value_text import step_between

ENDINGS = (".html", ".htm")
SCRIPTS = (
    "parameters.js",
    "profiles.js",
    "process.js",
    "output_maps.js",
    "mixture.js",
    "page.js",
    "controls.js",
    "explorer.js",
    "paper.js",
)  # each script uses the ones before it


def report(study: Studied, path: str | Path, *, problem: Problem | None = None) -> None:
    """Write a study as one HTML page, with its policy, model and trials, and an explorer of the policy.

    The page works offline.

    Parameters
    ----------
    study
        The study, with at least one completed trial.
    path
        A file whose name ends in .html or .htm. An existing file is overwritten.
    problem
        The problem behind the study, if its best actions and rewards are known. They are drawn as well, unless there
        are no states.

    Raises
    ------
    ConboError
        If no trial is completed yet.
    SettingError
        If `study` is not a study, the file's name has another ending, or its folder does not exist.
    StorageError
        If the file is an SQLite database.

    Examples
    --------
    >>> conbo.report(study, "report.html")  # doctest: +SKIP
    """
    path = Path(path)
    if ending(path) not in ENDINGS:
        raise SettingError(f"a report must be written as .html, which a browser prints to PDF, but got '{path}'.")
    if not path.parent.is_dir():  # checked before the page is drawn, which takes seconds
        raise SettingError(f"a report must be written to a folder that exists, but '{path.parent}' does not.")
    write_whole(path, page(view_of(study), problem))


def page(view: View, problem: Problem | None = None, live: str = "") -> str:
    """The HTML text of a study's report, for a file or for the service's dashboard.

    For the dashboard, `live` is the study's name, and the page loads its scripts and styles from `/assets`. For a file,
    `live` is empty, and the page contains them.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["script_json"] = _script_json
    return environment.from_string(asset("template.html.j2")).render(
        title=view.title,
        sentences=view.summary.sentences,
        margin=MARGIN_IN_WORDS,
        facts=_facts(view, is_live=bool(live)),
        warning=_warning(view),
        sections=sections(view, problem),
        explorer=explorer_record(view),
        trials=_table(view),
        live=live,
        live_segment=quote(live, safe=""),
        style="" if live else Markup(asset("style.css")),
        plotly="" if live else Markup(get_plotlyjs()),
        scripts={name: "" if live else Markup(asset(name)) for name in SCRIPTS},
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        settings=_settings(view),
    )


def asset(name: str) -> str:
    """The text of a file of this package, such as a script or a style sheet of the page."""
    return files("conbo.reports").joinpath(name).read_text(encoding="utf-8")


def _script_json(value: Any) -> Markup:
    """A value or a figure as JSON for a script element, escaped so that nothing in it can end the script."""
    plain = json.loads(value.to_json()) if hasattr(value, "to_json") else value
    text = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    # escape the texts that HTML recognizes inside a script: its end, a comment, another script
    return Markup(re.sub("<(?=/|!--|script)", r"\\u003c", text, flags=re.IGNORECASE))


def _settings(view: View) -> dict[str, str]:
    space = view.space
    names = {"states": ", ".join(space.states) or "none", "actions": ", ".join(space.actions)}
    return {**view.settings, **names}


def _facts(view: View, is_live: bool) -> list[tuple[str, str]]:
    """The numbers at the top of the page, as pairs (name, text).

    The number of running trials is left out if `is_live`, because a script of the dashboard's page adds it.
    """
    counts = {status: sum(t.status == status for t in view.trials) for status in ("completed", "failed", "running")}
    summary = view.summary
    facts = [("policy value", with_margin(summary.policy_value, summary.policy_value_std))]
    if summary.value_of_state is not None and summary.value_of_state_std:  # None or 0 if the policy is a single action
        facts.append(("value of the state", with_margin(summary.value_of_state, summary.value_of_state_std)))
    facts.append(("expected gain left", f"≤ {number(summary.expected_gain, 2)}"))
    facts.append(("evaluations", str(counts["completed"])))
    others = ("failed",) if is_live else ("failed", "running")
    return facts + [(status, str(counts[status])) for status in others if counts[status]]


def _warning(view: View) -> str:
    if not view.space.states or depends_on_state(view.belief):
        return ""
    return (
        "The policy is the same for every state: states and actions do not interact in the fitted model. Either "
        "that is so, or there are too few evaluations to tell."
    )


def _table(view: View) -> dict[str, Any]:
    """All trials as a table: names of columns, resolutions of columns (None for the default), and rows of cells."""
    names = [*view.space.state_names, *view.space.action_names]
    measured = measured_columns(view.trials)
    names += [SEED] if has_seeds(view.trials) else []
    columns = ["number", *names, "reward", *measured, "status", "error"]
    rows = [[*_cells(trial, names, measured.values()), trial.status, trial.error] for trial in view.trials]
    if not any(trial.error for trial in view.trials):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    parameters = {**view.space.states, **view.space.actions}
    steps = [_step(parameters.get(name), [row[i] for row in rows]) for i, name in enumerate(columns)]
    return {"columns": columns, "steps": steps, "rows": rows}


def _step(parameter: Parameter | None, cells: Iterable[Value | None]) -> float | None:
    """The resolution with which numbers in a column are shown; None if the column has less than two different numbers.

    Choices are shown with all digits, so their resolution is zero.
    """
    if isinstance(parameter, Categorical):
        return 0.0
    if parameter is not None:
        return step_between((parameter.low, parameter.high))
    return step_between(cell for cell in cells if is_number(cell)) or None


def _cells(trial: Trial, names: Iterable[str], measured: Iterable[str]) -> list[Any]:
    return [trial.number, *map(trial.point.get, names), trial.reward, *map(trial.measured.get, measured)]
