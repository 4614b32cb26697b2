"""The settings of a study, and their conversion to and from plain records that JSON can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from conbo.cost_rules import LEARNED, Cost
from conbo.direction import Direction
from conbo.errors import RecordError, SettingError, StudyError
from conbo.gaussian_process import GaussianProcess
from conbo.method_list import LISTED, Method
from conbo.outcome_constraints import (
    DEFAULT_CONFIDENCE,
    Failures,
    OutcomeConstraints,
    constraint_records,
    read_constraints,
)
from conbo.prior_study import PriorStudy
from conbo.record_fields import Fields, shown
from conbo.reward_range import RewardRange, checked_range
from conbo.spaces import FUNCTION, Space, Value, function_name
from conbo.state_distributions import Density, Normal, Product, RecipeLike, Triangular, Uniform, Weights
from conbo.study.stored_fields import LARGEST_SEED

if TYPE_CHECKING:
    from conbo.belief import ModelLike
    from conbo.optimizer import Optimizer

_MARGINALS = {"uniform": Uniform, "triangular": Triangular, "normal": Normal, "weights": Weights}


@dataclass(frozen=True)
class Settings:
    """The settings of a study; `conbo.Study` explains each of them."""

    space: Space
    direction: Direction
    method: str | Method  # a name of `conbo.methods()`, or one of the user's own
    state_distribution: RecipeLike
    model: ModelLike
    seed: int
    initial: int
    cost: Cost = None
    prior: PriorStudy | None = None
    reward_range: RewardRange | None = None
    common_random_numbers: bool = False
    seeds: tuple[int, ...] | None = None
    outcome_constraints: OutcomeConstraints | None = None
    confidence: float = DEFAULT_CONFIDENCE
    failures: Failures = "ignore"  # the value for stored studies that are older than this setting

    @classmethod
    def of(cls, optimizer: Optimizer, method: str | Method) -> Settings:
        """The settings of a study with this method, and those that the optimizer has checked and completed."""
        rule, learned = optimizer.seed_rule, optimizer.learned
        return cls(
            optimizer.space,
            "maximize" if optimizer.maximize else "minimize",
            method,
            optimizer.state_distribution,
            optimizer.model,
            optimizer.seed,
            optimizer.initial,
            optimizer.cost,
            optimizer.prior,
            optimizer.reward_range,
            rule is not None,
            None if rule is None else rule.listed,
            learned.constraints,
            learned.confidence,
            learned.failures,
        )

    def of_optimizer(self) -> dict[str, Any]:
        """All settings except the space, as keyword arguments of `Optimizer` and `Study`."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "space"}

    @property
    def method_name(self) -> str:
        """The name of the method by which points are chosen, such as "conbo"."""
        return self.method if isinstance(self.method, str) else self.method.name

    def to_record(self) -> dict[str, Any]:
        """The settings as a dict for JSON; functions become names, and the user's own `Method` becomes a dict."""
        record = {
            "space": _plain(self.space.to_dict()),
            "direction": self.direction,
            "method": _method_record(self.method),
            "state_distribution": _distribution_record(self.state_distribution, self.space),
            "model": _record(self.model),
            "seed": self.seed,
            "initial": self.initial,
        }
        if self.cost is not None:
            record["cost"] = _record(self.cost)
        if self.prior is not None:
            record["prior"] = self.prior.to_record()
        if self.reward_range is not None:
            record["reward_range"] = list(self.reward_range)
        if self.common_random_numbers:
            record["common_random_numbers"] = True
        if self.seeds is not None:
            record["seeds"] = list(self.seeds)
        if self.outcome_constraints:
            record["outcome_constraints"] = constraint_records(self.outcome_constraints)
        if self.confidence != DEFAULT_CONFIDENCE:
            record["confidence"] = self.confidence
        if self.failures != "ignore":
            record["failures"] = self.failures
        return record


def storable(settings: Settings) -> dict[str, Any]:
    """The record of settings that are to be stored; raises SettingError if they could not be read back."""
    record = settings.to_record()
    try:
        from_record(record, settings)
        json.dumps(record, allow_nan=False)  # also raises an error if an integer has too many digits
    except ValueError as error:
        raise SettingError(str(error)) from error
    return record


def from_record(record: Mapping[str, Any], mine: Settings | None = None) -> Settings:
    """Restore settings from their record, the dict that `Settings.to_record` returned.

    Functions and other objects that a record cannot hold are taken from `mine`, the settings that the user has given.
    Raises RecordError, which names the field, if the record is damaged or was written by a later version of conbo.
    Raises StudyError if a function is needed that `mine` does not have.
    """
    optional = tuple(field.name for field in fields(Settings) if field.default is not MISSING)
    names = [field.name for field in fields(Settings) if field.name not in optional]
    stored = Fields.of(record).only(names, optional=optional)
    space = _space(stored, mine)
    return Settings(
        space,
        _direction(stored),
        mine.method if mine else _method(stored),
        _distribution(stored.fields("state_distribution"), space, mine),
        mine.model if mine and _record(mine.model) == record["model"] else _model(stored),
        _seed(stored),
        stored.whole("initial", least=1),
        _cost(stored, mine),
        PriorStudy.from_record(stored.fields("prior")) if stored.has("prior") else None,
        checked_range(stored.value("reward_range")) if stored.has("reward_range") else None,
        stored.flag("common_random_numbers") if stored.has("common_random_numbers") else False,
        tuple(stored.wholes("seeds")) if stored.has("seeds") else None,
        read_constraints(stored, "outcome_constraints") if stored.has("outcome_constraints") else None,
        stored.number("confidence", 5e-324, 1 - 2**-53) if stored.has("confidence") else DEFAULT_CONFIDENCE,
        _failures(stored),
    )


def _method_record(method: str | Method) -> Any:
    if isinstance(method, str):
        return method
    from conbo.method_table import METHODS

    known = METHODS.get(method.name)
    return method.name if known is not None and repr(known) == repr(method) else _record(method)


def _record(value: object) -> Any:
    """Convert a value to what JSON can hold.

    Finite numbers, strings and None are returned unchanged, and other numbers become strings, such as "inf". A
    dataclass becomes a dict with the name of its type and its fields, a function becomes its name, and any other object
    becomes the name of its type.
    """
    if is_dataclass(value) and not isinstance(value, type):
        settings = {field.name: _record(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, **settings}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if callable(value):
        return function_name(value)
    return type(value).__name__


def _distribution_record(recipe: RecipeLike, space: Space) -> dict[str, Any]:
    if isinstance(recipe, Mapping):
        recipe = Product(recipe)
    if recipe is None or isinstance(recipe, Uniform | Triangular | Normal | Weights):
        recipe = Product(dict.fromkeys(space.states, recipe or Uniform()))
    if isinstance(recipe, Product):
        return {name: _marginal_record(recipe.marginals.get(name, Uniform())) for name in space.states}
    return _record(_density(recipe))


def _density(recipe: Any) -> Density | None:
    return recipe if isinstance(recipe, Density) else Density(recipe) if callable(recipe) else None


def _marginal_record(recipe: Uniform | Triangular | Normal | Weights) -> dict[str, Any]:
    kind = {"type": type(recipe).__name__.lower()}
    if isinstance(recipe, Weights):
        # a list, since the keys of a JSON object are strings
        pairs = _plain([[value, weight] for value, weight in recipe.weights.items()])
        return {**kind, "weights": sorted(pairs, key=lambda pair: str(pair[0]))}
    return {**kind, **_plain({field.name: getattr(recipe, field.name) for field in fields(recipe)})}


def _plain(value: Any) -> Any:
    """Convert the NumPy numbers in nested dicts and lists to those of Python, which JSON can hold."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _space(stored: Fields, mine: Settings | None) -> Space:
    record = stored.fields("space")
    if mine is None and record.has("feasible"):
        limited = f"the study's actions are limited by the {record.text('feasible')}"
        raise StudyError(f"{limited}: open it with Study(Space(..., feasible=...)).")
    return Space.from_dict(record.record, mine.space.feasible if mine else None)


def _direction(stored: Fields) -> Direction:
    return "maximize" if stored.text("direction", get_args(Direction)) == "maximize" else "minimize"


def _method(stored: Fields) -> str:
    record = stored.value("method")
    if isinstance(record, str) and record in LISTED:
        return record
    name = record if isinstance(record, str) else stored.fields("method").text("name")
    raise StudyError(f"the study's method '{name}' is not one of conbo's: open it with Study(..., method=...).")


def _model(stored: Fields) -> ModelLike:
    if not isinstance(stored.value("model"), Mapping):
        raise StudyError("the study's model is a function: open it with Study(..., model=...).")
    model, known = stored.fields("model"), {field.name: field.default for field in fields(GaussianProcess)}
    model.text("type", (GaussianProcess.__name__,))
    model.only(("type",), optional=known)
    settings = {name: value for name, value in model.record.items() if name != "type"}
    if isinstance(settings.get("profile"), Mapping) or str(settings.get("state_kernel", "")).startswith(FUNCTION):
        raise StudyError("the study's model has a kernel of your own: open it with Study(..., model=...).")
    for name, value in settings.items():
        if type(value) is not type(known[name]):
            raise RecordError(f"{model.path(name)} must be like {known[name]!r}, but got {shown(value)}.")
    return GaussianProcess(**settings)


def _seed(stored: Fields) -> int:
    seed = stored.value("seed")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed <= LARGEST_SEED:
        raise RecordError(f"{stored.path('seed')} must be a whole number from 0 to 2**4096, but got {shown(seed)}.")
    return seed


def _cost(stored: Fields, mine: Settings | None) -> Cost:
    if not stored.has("cost"):
        return None
    record = stored.text("cost")
    if record == LEARNED:
        return LEARNED
    if mine is not None and _record(mine.cost) == record:
        return mine.cost
    raise StudyError("the study's cost is a function: open it with Study(..., cost=...).")


def _failures(stored: Fields) -> Failures:
    if not stored.has("failures"):
        return "ignore"
    return "learn" if stored.text("failures", get_args(Failures)) == "learn" else "ignore"


def _distribution(stored: Fields, space: Space, mine: Settings | None) -> RecipeLike:
    if stored.record.get("type") == Density.__name__:
        if mine is not None and _record(_density(mine.state_distribution)) == stored.record:
            return mine.state_distribution
        raise StudyError(
            "the study's state distribution is a function: open it with Study(..., state_distribution=...)."
        )
    stored.only(tuple(space.states))
    return {name: _marginal(stored.fields(name)) for name in stored.record}


def _marginal(stored: Fields) -> Uniform | Triangular | Normal | Weights:
    kind: Any = _MARGINALS[stored.text("type", _MARGINALS)]
    stored.only(("type", *(field.name for field in fields(kind))))
    if kind is Weights:
        return Weights(_weights(stored))
    return kind(**{name: value for name, value in stored.record.items() if name != "type"})


def _weights(stored: Fields) -> dict[Value, float]:
    pairs = stored.items("weights")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str | int | float):
            rule = f"{stored.path('weights')} must hold pairs of a value and its weight"
            raise RecordError(f"{rule}, but got {shown(pair)}.")
    weights = dict(pairs)
    if len(weights) < len(pairs):
        raise RecordError(f"{stored.path('weights')} must name every value once, but got {shown(pairs)}.")
    return weights
