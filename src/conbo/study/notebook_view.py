"""The text and HTML that a notebook shows for a study: its settings, progress and policy."""

from collections import Counter
from typing import TYPE_CHECKING

from conbo.html_pieces import pairs

if TYPE_CHECKING:
    from conbo.study.study import Study

MOST_FITTED = 200  # largest number of rewards for which a policy is fitted and shown; more would take too long


def line_of(study: "Study") -> str:
    """The name, settings and progress of a study as one line of text."""
    return f"Study({study.name!r}, method={study.method!r}, direction={study.direction!r}: {_progress(study)})"


def html_of(study: "Study") -> str:
    """The settings, progress, space and policy of a study as HTML."""
    settings = [("method", study.method), ("direction", study.direction), ("seed", study.seed)]
    settings += [("learned limit", f"{name} {limit}") for name, limit in study.outcome_constraints.items()]
    settings += [("trials", _progress(study))]
    n = sum(trial.status == "completed" for trial in study.trials)
    if n == 0:
        policy = "There is no policy yet."
    elif n > MOST_FITTED:
        policy = f"With {n} rewards, the policy is shown by <code>study.policy()</code>."
    else:
        policy = study.policy()._repr_html_()
    return f"{pairs(settings, f'Study {study.name}')}{study.space._repr_html_()}<div>{policy}</div>"


def _progress(study: "Study") -> str:
    counts = Counter(trial.status for trial in study.trials)
    return (
        ", ".join(f"{counts[status]} {status}" for status in ("completed", "running", "failed") if counts[status])
        or "none"
    )
