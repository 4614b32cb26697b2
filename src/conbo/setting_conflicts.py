"""Checks the model of a study, and settings that exclude each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conbo.common_random_numbers import SeedRule
from conbo.errors import SettingError
from conbo.gaussian_process import GaussianProcess
from conbo.prior_study import PriorStudy
from conbo.reward_range import RewardRange

if TYPE_CHECKING:
    from conbo.belief import ModelLike


def check_model(model: object) -> None:
    """Raise SettingError unless a value is valid for the setting `model` of a study.

    None is valid, and stands for the default model of the method.
    """
    if isinstance(model, type) and hasattr(model, "fit"):
        raise SettingError(f"`model` must be an instance, but got the class: use {model.__name__}().")
    if model is not None and not hasattr(model, "fit") and not callable(model):
        raise SettingError(f"`model` must be a GaussianProcess or a function, but got {model!r}.")


def check_together(
    model: ModelLike,
    prior: PriorStudy | None,
    reward_range: RewardRange | None,
    seed_rule: SeedRule | None,
) -> None:
    """Raise SettingError if settings of a study exclude each other, such as a prior and common random numbers."""
    given = {"prior": prior, "reward_range": reward_range, "common_random_numbers": seed_rule}
    for name, value in given.items():
        if value is not None and not isinstance(model, GaussianProcess):
            raise SettingError(f"`{name}` must go with a built-in model, but got {model!r}.")
    if seed_rule is not None and (prior is not None or reward_range is not None):
        other = "prior" if prior is not None else "reward_range"
        raise SettingError(f"`common_random_numbers` must go without a `{other}`, but got both.")
