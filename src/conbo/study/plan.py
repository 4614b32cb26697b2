"""The settings of a run: how it evaluates and when it ends. The settings are checked here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction, signature
from typing import Literal

from conbo.errors import SettingError
from conbo.optimizer import Optimizer
from conbo.setting_rules import at_least
from conbo.spaces import is_number
from conbo.trials import ASYNC_RULE

EVALUATIONS = 80  # default number of evaluations of a run without a budget


@dataclass(frozen=True)
class Ends:
    """The conditions that end a run, as `Study.run` explains them; the first one that is met ends the run.

    A condition that is None never ends the run.
    """

    evaluations: int | None
    budget: float | None = None
    max_seconds: float | None = None
    stop_below: float | None = None
    worth: float | None = None


@dataclass(frozen=True)
class Plan:
    """All settings of a run, as `Study.run` explains them."""

    ends: Ends
    batch: int | None
    timeout: float | None
    retries: int
    finish: Literal["best-observed"] | None
    on_interrupt: Literal["wait", "cancel"]
    lease: float
    max_lost_workers: int


def check_plan(plan: Plan, objective: object, optimizer: Optimizer) -> None:
    """Raise SettingError unless the settings of a run are valid for the study."""
    if not callable(objective):
        raise SettingError(f"`objective` must be a function of state and action, but got {objective!r}.")
    if iscoroutinefunction(objective) or iscoroutinefunction(type(objective).__call__):
        raise SettingError(f"{ASYNC_RULE}, but got {objective!r}.")
    check_arguments(objective, optimizer)
    ends = plan.ends
    if ends.evaluations is not None:
        at_least(1, "evaluations", ends.evaluations)
    at_least(0, "retries", plan.retries)
    at_least(1, "max_lost_workers", plan.max_lost_workers)
    if plan.batch is not None:
        at_least(1, "batch", plan.batch)
    named = {name: getattr(ends, name) for name in ("budget", "max_seconds", "stop_below", "worth")}
    for name, value in {"timeout": plan.timeout, **named}.items():
        if value is not None and not (is_number(value) and 0 < value < float("inf")):
            raise SettingError(f"`0 < {name} < inf` must hold, but got {name}={value!r}.")
    for name in ("stop_below", "worth"):
        if named[name] is not None and not optimizer.knows_gains:
            rule = f"`{name}` needs a method that knows what an evaluation gains, like 'conbo' or 'pei'"
            raise SettingError(f"{rule}, but got method='{optimizer.method}'.")
    for name in ("budget", "worth"):
        if named[name] is not None and optimizer.cost is None:
            raise SettingError(f"`{name}` needs a study with a `cost`, but got {name}={named[name]!r} without one.")
    if plan.finish not in (None, "best-observed"):
        raise SettingError(f"`finish` must be None or 'best-observed', but got {plan.finish!r}.")
    if plan.finish is not None:
        listed = optimizer.states.listed()
        n = float("inf") if listed is None else len(listed[0])
        if ends.evaluations is None or n >= ends.evaluations:
            rule = "`finish='best-observed'` ends with one evaluation in every state and needs more of them than states"
            raise SettingError(f"{rule}, but got evaluations={ends.evaluations} for {n} states.")
    if plan.on_interrupt not in ("wait", "cancel"):
        raise SettingError(f"`on_interrupt` must be 'wait' or 'cancel', but got {plan.on_interrupt!r}.")


def check_arguments(objective: Callable[..., object], optimizer: Optimizer) -> None:
    """Raise SettingError if the objective cannot be called with state, action and, if the study chooses seeds, a seed.

    Without this check, every trial would fail, and the study would learn from the failures.
    """
    seeded = optimizer.seed_rule is not None
    try:
        # what a decorator wraps may have other arguments, so it is not followed
        signature(objective, follow_wrapped=False).bind({}, {}, *([0] if seeded else []))
    except TypeError as error:
        rule = "`objective` must be a function of state and action"
        if seeded:
            rule = (
                "`objective` must be a function of state, action and seed, since the study has `common_random_numbers`"
            )
        raise SettingError(f"{rule}, but got {objective!r}: {error}.") from error
    except ValueError:
        pass  # some callables have no readable signature


def check_callbacks(callbacks: object) -> None:
    """Raise SettingError unless `callbacks` is a list or tuple of functions."""
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise SettingError(f"`callbacks` must be a list of functions of study and trial, but got {callbacks!r}.")
