"""The settings of a study as a plain record that JSON can hold, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from conbo.errors import StudyError
from conbo.gaussian_process import GaussianProcess
from conbo.method_list import LISTED, Method
from conbo.optimizer import Direction
from conbo.spaces import Space
from conbo.state_distributions import Density, Normal, Product, RecipeLike, Triangular, Uniform, Weights

if TYPE_CHECKING:
    from conbo.belief import ModelLike

_MARGINALS = {"uniform": Uniform, "triangular": Triangular, "normal": Normal, "weights": Weights}


@dataclass(frozen=True)
class Settings:
    """What a study is made of."""

    space: Space
    direction: Direction
    method: str | Method  # a name of `conbo.methods()`, or one of the user's own
    state_distribution: RecipeLike
    model: ModelLike
    seed: int
    initial: int

    @property
    def method_name(self) -> str:
        """The name of the method."""
        return self.method if isinstance(self.method, str) else self.method.name

    def to_record(self) -> dict[str, Any]:
        """A plain record; of functions and methods of the user's own it has no more than their names and fields."""
        return {
            "space": self.space.to_dict(),
            "direction": self.direction,
            "method": _method_record(self.method),
            "state_distribution": _distribution_record(self.state_distribution, self.space),
            "model": _record(self.model),
            "seed": self.seed,
            "initial": self.initial,
        }


def from_record(record: Mapping[str, Any], mine: Settings | None = None) -> Settings:
    """The settings of a record; what it cannot hold is taken from `mine`."""
    return Settings(
        Space.from_dict(record["space"]),
        record["direction"],
        mine.method if mine else _method(record["method"]),
        _distribution(record["state_distribution"], mine),
        mine.model if mine and _record(mine.model) == record["model"] else _model(record["model"]),
        record["seed"],
        record["initial"],
    )


def _method_record(method: str | Method) -> Any:
    if isinstance(method, str):
        return method
    from conbo.method_table import METHODS

    known = METHODS.get(method.name)
    return method.name if known is not None and repr(known) == repr(method) else _record(method)


def _record(value: object) -> Any:
    """Recipes by their fields, functions by their names."""
    if is_dataclass(value) and not isinstance(value, type):
        settings = {field.name: _record(getattr(value, field.name)) for field in fields(value)}
        return {"type": type(value).__name__, **settings}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        return f"function {getattr(value, '__module__', None)}.{name}"
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
        pairs = [[value, weight] for value, weight in recipe.weights.items()]
        return {**kind, "weights": sorted(pairs, key=lambda pair: str(pair[0]))}
    return {**kind, **{field.name: getattr(recipe, field.name) for field in fields(recipe)}}


def _method(record: Any) -> str:
    if isinstance(record, str) and record in LISTED:
        return record
    name = record if isinstance(record, str) else record["name"]
    raise StudyError(f"the study's method '{name}' is not one of conbo's: open it with Study(..., method=...).")


def _model(record: Any) -> ModelLike:
    if isinstance(record, Mapping) and record["type"] == GaussianProcess.__name__:
        return GaussianProcess(**{key: value for key, value in record.items() if key != "type"})
    raise StudyError("the study's model is a function: open it with Study(..., model=...).")


def _distribution(record: Mapping[str, Any], mine: Settings | None) -> RecipeLike:
    if record.get("type") == Density.__name__:
        if mine is not None and _record(_density(mine.state_distribution)) == record:
            return mine.state_distribution
        raise StudyError(
            "the study's state distribution is a function: open it with Study(..., state_distribution=...)."
        )
    return {name: _marginal(marginal) for name, marginal in record.items()}


def _marginal(record: Mapping[str, Any]) -> Uniform | Triangular | Normal | Weights:
    settings = dict(record)
    kind: Any = _MARGINALS[settings.pop("type")]
    if kind is Weights:
        settings["weights"] = dict(settings["weights"])
    return kind(**settings)
