"""What a service does for clients that cannot reach the database.

A client is known by the name of an owner, which it gets with its trials. It is no worker of this machine, so its trials
stay its own when the service's process ends.
"""

from conbo.setting_rules import at_least
from conbo.spaces import Point
from conbo.study.asking import ask, fail, release, renew, tell
from conbo.study.study import Study
from conbo.trials import Outcomes, Trial


def ask_for(
    study: Study, owner: str, n: int, state: Point | None, lease: float, total: int | None = None
) -> list[Trial]:
    """As `Study.ask`; an owner that has trials already gets the same ones again.

    With a `total`, the study gets no new trial where so many are completed or under way.
    """
    most = None if total is None else at_least(1, "evaluations", total)
    return ask(study._shared, at_least(1, "n", n), state, lease, owner, most)


def tell_for(study: Study, owner: str | None, number: int, told: Outcomes) -> bool:
    """As `Study.tell`; whether the result stands. With an owner, one that comes too late is no error."""
    return tell(study._shared, number, told, owner)


def fail_for(study: Study, owner: str | None, number: int, error: str) -> bool:
    """As `Study.fail`; whether the owner still had the trial."""
    return fail(study._shared, number, error, owner)


def renew_for(study: Study, owner: str, number: int, lease: float) -> None:
    """As `Study.renew`."""
    renew(study._shared, number, owner, lease)


def release_for(study: Study, owner: str, number: int) -> None:
    """As `Study.release`."""
    release(study._shared, number, owner)
