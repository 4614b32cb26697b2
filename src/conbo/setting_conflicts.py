"""Checks that a study's model is valid, that its method fits its space, and that its settings can be combined."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from conbo.bound_states import StateDistribution
from conbo.common_random_numbers import SeedRule
from conbo.density_states import MAX_STATES
from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.method_list import Listed, Method
from conbo.parameters import Parameter
from conbo.prior_study import PriorStudy
from conbo.reward_range import RewardRange
from conbo.spaces import Space

if TYPE_CHECKING:
    from torch import Tensor

    from conbo.belief import ModelLike

ROUNDING = 1e-9  # tolerance of the bounds of the unit cube
FEWEST_REWARDS = 4  # number of rewards from which on their mean is compared with `reward_range`
_USE = "use 'pei', 'mts' or 'conbo', which take any."


def outside_range(given: RewardRange | None, rewards: Sequence[float]) -> str | None:
    """Return a warning if the mean of the rewards is clearly outside the setting `reward_range`, else None.

    Single rewards may be outside because of noise, so at least four are needed, and the mean must be outside by more
    than two of its standard errors.
    """
    if given is None or len(rewards) < FEWEST_REWARDS:
        return None
    mean = statistics.fmean(rewards)
    room = 2 * statistics.stdev(rewards) / math.sqrt(len(rewards)) + 1e-9 * abs(mean)  # for noise and rounding
    low, high = (-math.inf if given[0] is None else given[0], math.inf if given[1] is None else given[1])
    if low - room <= mean <= high + room:
        return None
    so = "predictions stay inside it, and nothing is learned. Is the unit the same?"
    return f"the mean of the {len(rewards)} rewards is {mean:.6g}, outside reward_range={given}: {so}"


def check_model(model: object) -> None:
    """Raise SettingError unless a value is valid for the setting `model` of a study.

    Valid values are an object with a method `fit` (but not its class), a function, and None, which stands for the
    default model of the study's method.
    """
    if isinstance(model, type) and hasattr(model, "fit"):
        raise SettingError(f"`model` must be an instance, but got the class: use {model.__name__}().")
    if model is not None and not hasattr(model, "fit") and not callable(model):
        raise SettingError(f"`model` must be a GaussianProcess or a function, but got {model!r}.")


def check_draws(name: str, method: Method | Listed, model: ModelLike) -> None:
    """Raise SettingError if the method `name` draws functions from the model, but the model is a BoTorch model."""
    if method.draws_functions and not hasattr(model, "fit"):
        rule = f"'{name}' must have a model that can draw functions"
        raise SettingError(f"{rule}, but got the BoTorch model {model!r}: {_USE}")


def check_suggestion(name: str, points: Tensor, n: int, n_columns: int) -> None:
    """Raise SettingError unless the proposal of the method `name` suggests n points (n, n_columns) in the unit cube."""
    rule = f"the proposal of '{name}' must suggest {n} points ({n}, {n_columns}) of the unit cube"
    if tuple(points.shape) != (n, n_columns):
        raise SettingError(f"{rule}, but got the shape {tuple(points.shape)}.")
    outside = points[~((points >= -ROUNDING) & (points <= 1 + ROUNDING))]
    if len(outside):
        raise SettingError(f"{rule}, but got the coordinate {float(outside[0])}.")


def check_finite(name: str, method: Method | Listed, space: Space, states: StateDistribution) -> None:
    """Raise SettingError if the method `name` needs finitely many states or actions, but there are too many to list."""
    if not (method.needs_finite_states or method.needs_finite_actions):
        return
    listed = states.listed()
    if method.needs_finite_states and listed is None:
        _refuse_real(name, "states", space.states)
        raise SettingError(f"'{name}' must have at most {MAX_STATES:,} states, but there are more: {_USE}")
    if method.needs_finite_actions:
        _refuse_real(name, "actions", space.actions)
        n_actions = math.prod(one.n_levels or 1 for one in space.actions.values())
        n_pairs = n_actions * (1 if listed is None else len(listed[0]))
        if n_pairs > MAX_STATES:
            rule = f"'{name}' must have at most {MAX_STATES:,} pairs of a state and an action"
            raise SettingError(f"{rule}, but there are {n_pairs:,}: {_USE}")


def _refuse_real(name: str, what: str, parameters: Mapping[str, Parameter]) -> None:
    """Raise SettingError if one of the parameters is real-valued, which the method `name` does not allow.

    `what` says which parameters these are, "states" or "actions", for the error message.
    """
    for parameter, one in parameters.items():
        if one.n_levels is None:
            raise SettingError(f"'{name}' must have finitely many {what}, but '{parameter}' is {one!r}: {_USE}")


def check_together(
    model: ModelLike,
    prior: PriorStudy | None,
    reward_range: RewardRange | None,
    seed_rule: SeedRule | None,
) -> None:
    """Raise SettingError if settings of a study cannot be combined, such as a prior and common random numbers."""
    given = {"prior": prior, "reward_range": reward_range, "common_random_numbers": seed_rule}
    for name, value in given.items():
        if value is not None and not isinstance(model, GaussianProcess):
            raise SettingError(f"`{name}` must go with a built-in model, but got {model!r}.")
    if seed_rule is not None and (prior is not None or reward_range is not None):
        other = "prior" if prior is not None else "reward_range"
        raise SettingError(f"`common_random_numbers` must go without a `{other}`, but got both.")
