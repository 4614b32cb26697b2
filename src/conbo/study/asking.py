"""Ask for trials, renew their leases, give them back, and tell their results.

A caller gets enqueued trials first, then, if it asks with a lease, trials whose workers were lost, and then new ones.
"""

from collections.abc import Collection
from typing import Any

from conbo.cost_rules import check_told
from conbo.errors import SettingError, TrialError
from conbo.optimizer import Optimizer
from conbo.outcome_constraints import check_constrained
from conbo.spaces import Point, is_number
from conbo.study.shared import SharedOptimizer
from conbo.study.workers import worker_name
from conbo.trials import Outcomes, Trial

LONGEST_LEASE = 100 * 365.25 * 86_400.0  # seconds: 100 years, so that the time at which a lease ends is a valid date


def ask(
    shared: SharedOptimizer,
    n: int,
    state: Point | None,
    lease: float | None,
    owner: str | None = None,
    total: int | None = None,
) -> list[Trial]:
    """Return n trials to evaluate, which belong to the caller for `lease` seconds, or for good if `lease` is None.

    `state` is the state that the environment has set; if it is None, the method chooses the state. The HTTP service
    passes an `owner`, which names one request of a client. The trials then belong to this owner. If the owner already
    has trials, these are returned again, so that a client can repeat a request whose response was lost. With a `total`,
    fewer trials are returned if fewer are missing until this many are completed or evaluated by somebody.
    """
    lease = None if lease is None else checked_lease(lease)
    if owner is not None and (held := _held(shared.up_to_date(), owner)):
        running = [trial.number for trial in held if trial.status == "running"]
        if lease is not None and running:
            shared.records.renew(owner, running, lease, turn=None)
        return held
    worker = worker_name()
    # a trial with a lease stays leased after this process has ended
    whose = owner or (worker if lease is None else f"{worker}/lease")
    if total is not None:
        left = shared.records.left_behind(whose)
        n = max(0, min(n, total - len(under_way(shared.up_to_date(), left))))
    trials, waiting, held = list[Trial](), list[int](), list[Trial]()

    def choose(optimizer: Optimizer) -> list[Trial]:
        # the same call may have been repeated in another process, which added the trials first
        known = {*waiting, *(trial.number for trial in trials)}
        held[:] = [trial for trial in _held(optimizer, whose) if trial.number not in known]
        missing = n - len(known)
        wanted = missing if total is None else min(missing, total - len(under_way(optimizer)))
        return [] if held or wanted < 1 else optimizer.suggest(wanted, state).trials

    while True:
        # enqueued trials are taken after the suggestion, so that they stay enqueued if it raises an exception
        waiting = _enqueued(shared.up_to_date(), state)[: n - len(trials)]
        if lease is not None:
            trials += _lapsed(shared, n - len(trials) - len(waiting), state, lease, whose)
        if len(trials) + len(waiting) < n:
            trials += shared.add(choose, worker, lease, whose) or held
        taken = shared.records.take_enqueued(waiting, whose, lease) if waiting else []
        trials[:0] = [shared.up_to_date().find(number) for number in taken]
        if taken == waiting:  # otherwise, another worker has taken some of them first
            return trials


def renew(shared: SharedOptimizer, trial: Trial | int, owner: str | None, lease: float) -> None:
    """Extend the lease of a trial to `lease` seconds from now.

    Raises TrialError unless the trial is leased to the worker or client `owner`.
    """
    lease = checked_lease(lease)
    number = shared.up_to_date().find(trial).number
    if owner is None or not shared.records.renew(owner, [number], lease, turn=None):
        now = shared.up_to_date().find(number)
        what = f"is {now.status}" if now.status != "running" else "is another worker's, or has no lease"
        raise TrialError(f"trial {number} must be leased to whoever renews its lease, but it {what}.")


def release(shared: SharedOptimizer, trial: Trial | int, owner: str | None) -> None:
    """End the lease of `owner` on a trial, so that others can have the trial; do nothing if there is no such lease."""
    number = shared.up_to_date().find(trial).number
    if owner is not None:
        shared.records.hand_back(owner, number)


def tell(shared: SharedOptimizer, trial: Trial | int, told: Outcomes, owner: str | None = None) -> bool:
    """Record the outcomes of a trial, and return whether they count as the result of the trial.

    `owner` is the worker or client that evaluated the trial. If a different result was recorded before, it is kept, and
    the new reward is stored in the trial's field `late`; without an `owner`, TrialError is raised instead.
    """
    optimizer = shared.up_to_date()
    check_told(optimizer.cost, told.measured)
    check_constrained(optimizer.learned.constraints, told.measured)
    return shared.records.tell(optimizer.find(trial).number, told, owner)


def fail(shared: SharedOptimizer, trial: Trial | int, error: str, owner: str | None = None) -> bool:
    """Record that a trial has failed, and return True.

    If the worker or client `owner` no longer has the trial, record nothing and return False.
    """
    return shared.records.fail(shared.up_to_date().find(trial).number, error, owner)


def checked_lease(lease: Any) -> float:
    """Return a lease in seconds as a float; raise SettingError unless it is positive and at most LONGEST_LEASE."""
    if not (is_number(lease) and 0 < lease <= LONGEST_LEASE):
        raise SettingError(f"`0 < lease <= {LONGEST_LEASE:.0f}` must hold, but got lease={lease!r}.")
    return float(lease)


def under_way(optimizer: Optimizer, left: Collection[int] = ()) -> list[Trial]:
    """The trials that count toward a run's number of evaluations: completed ones, and running ones with a lease.

    Enqueued trials count as leased. Running trials without a lease do not count, because their rewards may never be
    told; nor do trials whose numbers are in `left`, because nobody evaluates them now.
    """
    leased_or_done = [trial for trial in optimizer.trials if trial.leased or trial.status == "completed"]
    return [trial for trial in leased_or_done if trial.number not in left]


def _held(optimizer: Optimizer, owner: str) -> list[Trial]:
    return [trial for trial in optimizer.trials if trial.worker == owner]


def _wanted(optimizer: Optimizer, state: Point | None) -> list[Trial]:
    """The trials in this state, or all trials of the study if `state` is None."""
    valid = None if state is None else optimizer.space.validate_state(state)
    return [trial for trial in optimizer.trials if valid in (None, trial.state)]


def _enqueued(optimizer: Optimizer, state: Point | None) -> list[int]:
    """The numbers of the enqueued trials that have this state, or of all enqueued trials if `state` is None."""
    return [trial.number for trial in _wanted(optimizer, state) if trial.is_enqueued]


def _lapsed(shared: SharedOptimizer, most: int, state: Point | None, lease: float, owner: str) -> list[Trial]:
    """Assign up to `most` trials of lost workers to the worker or client `owner`, and return them.

    A worker is lost if it is dead or if its lease on the trial has ended. Unless `state` is None, only trials in this
    state are assigned.
    """
    optimizer, taken = shared.up_to_date(), list[Trial]()
    leased = [trial for trial in _wanted(optimizer, state) if trial.leased and not trial.is_enqueued]
    open_to = {trial.number for trial in leased if trial.worker != owner}
    others = {trial.number for trial in optimizer.trials} - open_to
    while len(taken) < most and open_to:
        trial = shared.records.take_over(owner, lease, others | {one.number for one in taken})
        if trial is None:
            break
        if trial.number not in open_to:  # this trial was added in the meantime, and may have another state
            shared.records.hand_back(owner, trial.number)
            break
        shared.records.begin(trial.number, owner)
        taken.append(shared.up_to_date().find(trial.number))
    return taken
