"""The summary of a run: how many trials it completed and failed, and why it ended."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from conbo.rounding import counted

Stopped: TypeAlias = Literal["evaluations", "budget", "max_seconds", "stop_below", "worth", "stop", "interrupted"]

_REASONS: dict[Stopped, str] = {
    "evaluations": "done",
    "budget": "the budget is spent",
    "max_seconds": "the time is up",
    "stop_below": "little left to gain",
    "worth": "what is left to gain is not worth its cost",
    "stop": "stopped",
    "interrupted": "interrupted",
}


@dataclass(frozen=True)
class RunSummary:
    """What one run did; runs of other processes on the same study are not included. It prints as one sentence.

    Parameters
    ----------
    completed
        Number of trials that this run completed.
    failed
        Number of trials that failed in this run.
    retried
        Number of evaluations that were repeated after a failure.
    late
        Number of results that arrived after the trial had already ended elsewhere.
    seconds
        Duration of the run, in seconds.
    stopped
        Why the run ended: "evaluations", "budget", "max_seconds", "stop_below" or "worth", as in `Study.run`; "stop" if
        `Study.stop` was called, "interrupted" after Ctrl-C.

    Examples
    --------
    >>> summary = conbo.Study(space).run(profit, evaluations=2, progress=False)
    >>> summary.completed, summary.stopped
    (2, 'evaluations')
    """

    completed: int
    failed: int
    retried: int
    late: int
    seconds: float
    stopped: Stopped

    def __str__(self) -> str:
        counts = {"failed": self.failed, "retried": self.retried, "late": self.late}
        rest = "".join(f", {n} {what}" for what, n in counts.items() if n)
        if not (self.completed or rest) and self.stopped == "evaluations":
            return "0 evaluations completed: the study already has as many as were asked for."
        done = f"{counted(self.completed, 'evaluation')} completed{rest}"
        return f"{done} in {self.seconds:.1f} s: {_REASONS[self.stopped]}."
