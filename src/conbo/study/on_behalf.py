"""Asks for trials on behalf of clients of the HTTP service, records their results, and renews and ends their leases.

Clients cannot reach the database themselves. The trials of a request are leased under a name, their `owner`. The client
gets this name together with the trials, and sends it back with its results. The leases are not tied to the process of
the service, so they remain valid when this process ends.
"""

from conbo.setting_rules import at_least
from conbo.spaces import Point
from conbo.study.asking import ask, fail, release, renew, tell
from conbo.study.study import Study
from conbo.trials import Outcomes, Trial


def ask_for(
    study: Study, owner: str, n: int, state: Point | None, lease: float, total: int | None = None
) -> list[Trial]:
    """Ask for n trials on behalf of a client, as `Study.ask` does.

    The trials are leased under the name `owner`. If a request is repeated with the same `owner`, the same trials are
    returned again. With a `total`, fewer are returned if fewer are missing until this many are completed or evaluated.
    """
    most = None if total is None else at_least(1, "evaluations", total)
    return ask(study._shared, at_least(1, "n", n), state, lease, owner, most)


def tell_for(study: Study, owner: str | None, number: int, told: Outcomes) -> bool:
    """Record a result for a client, as `Study.tell` does; return whether it counts as the result of the trial.

    `owner` is the name under which the client leased the trial. If a different result was recorded before, it is kept,
    and the new reward is stored in the trial's field `late`; if `owner` is None, TrialError is raised instead.
    """
    return tell(study._shared, number, told, owner)


def fail_for(study: Study, owner: str | None, number: int, error: str) -> bool:
    """Record for a client that a trial has failed, as `Study.fail` does, and return True.

    `owner` is the name under which the client leased the trial. If the trial no longer belongs to `owner`, record
    nothing and return False.
    """
    return fail(study._shared, number, error, owner)


def renew_for(study: Study, owner: str, number: int, lease: float) -> None:
    """Extend a client's lease on a trial, as `Study.renew` does; the trial is leased under the name `owner`."""
    renew(study._shared, number, owner, lease)


def release_for(study: Study, owner: str, number: int) -> None:
    """Give a client's trial back, as `Study.release` does; the trial is leased under the name `owner`."""
    release(study._shared, number, owner)
