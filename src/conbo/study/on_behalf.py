"""Ask, tell, fail, renew and release on behalf of a service's clients, which cannot reach the database.

A client is known by the name of an owner, which it gets with its trials. It is not a worker of this machine, so it
keeps its trials when the service's process ends.
"""

from conbo.setting_rules import at_least
from conbo.spaces import Point
from conbo.study.asking import ask, fail, release, renew, tell
from conbo.study.study import Study
from conbo.trials import Outcomes, Trial


def ask_for(
    study: Study, owner: str, n: int, state: Point | None, lease: float, total: int | None = None
) -> list[Trial]:
    """Ask as `Study.ask` does; an owner that already has trials gets the same ones again.

    With a `total`, no trial is added once this many are completed or under way.
    """
    most = None if total is None else at_least(1, "evaluations", total)
    return ask(study._shared, at_least(1, "n", n), state, lease, owner, most)


def tell_for(study: Study, owner: str | None, number: int, told: Outcomes) -> bool:
    """Tell as `Study.tell` does, and return whether the result counts. With an owner, a late result is not an error."""
    return tell(study._shared, number, told, owner)


def fail_for(study: Study, owner: str | None, number: int, error: str) -> bool:
    """Fail a trial as `Study.fail` does, and return whether the owner still had it."""
    return fail(study._shared, number, error, owner)


def renew_for(study: Study, owner: str, number: int, lease: float) -> None:
    """Extend the lease of a trial, as `Study.renew` does."""
    renew(study._shared, number, owner, lease)


def release_for(study: Study, owner: str, number: int) -> None:
    """Give a trial back, as `Study.release` does."""
    release(study._shared, number, owner)
