"""Converts the distributions of Optuna's trials to a space of conbo, and values in both directions.

| Optuna                  | conbo                                                                             |
|-------------------------|-----------------------------------------------------------------------------------|
| FloatDistribution       | Real; where it has steps, suggestions are rounded to them                         |
| IntDistribution         | Integer; likewise                                                                 |
| CategoricalDistribution | Categorical, with texts for choices that conbo does not know, such as None        |
| one value only          | no parameter                                                                      |

A range that changed from trial to trial becomes the smallest one that holds all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from conbo.errors import SpaceError
from conbo.spaces import Categorical, Integer, Parameter, Real, Space, Value, closest

Distributions = Mapping[str, BaseDistribution]


def common_distributions(trials: Iterable[FrozenTrial]) -> dict[str, BaseDistribution]:
    """The distributions of all trials; raises SpaceError if their parameters are not the same in every trial."""
    known: dict[str, BaseDistribution] = {}
    first: FrozenTrial | None = None
    for trial in trials:
        if first is None:
            known, first = dict(trial.distributions), trial
            continue
        if odd := sorted(known.keys() ^ trial.distributions.keys()):
            raise SpaceError(
                f"every trial must have the same parameters, but '{odd[0]}' is in one of the trials {first.number} and "
                f"{trial.number} alone: conditional (branching) spaces are not supported. Suggest all parameters in "
                "every trial, or use another sampler of Optuna."
            )
        for name, distribution in trial.distributions.items():
            if known[name] != distribution:
                known[name] = _merged(name, known[name], distribution)
    return known


def space_of(distributions: Distributions, states: Sequence[str], constraints: Sequence[str] = ()) -> Space | None:
    """The space, or None if no action has more than one value; raises SpaceError if a state is unknown."""
    for name in states:
        if name not in distributions:
            raise SpaceError(
                f"a state must be a parameter of the trials, but got '{name}': {closest(name, distributions)}"
            )
    if all(name in states for name in distributions):
        raise SpaceError(f"at least one parameter must be an action, but got the states {', '.join(states)} alone.")
    parameters = {name: parameter_of(each) for name, each in distributions.items() if not each.single()}
    actions = {name: parameter for name, parameter in parameters.items() if name not in states}
    if not actions:
        return None
    return Space({name: parameters[name] for name in states if name in parameters}, actions, constraints)


def point_of(params: Mapping[str, Any], distributions: Distributions, names: Iterable[str]) -> dict[str, Value]:
    """Optuna's values as conbo's."""
    return {name: _to_conbo(distributions[name], params[name]) for name in names}


def params_of(point: Mapping[str, Value], distributions: Distributions) -> dict[str, Any]:
    """conbo's values as Optuna's."""
    return {name: _to_optuna(distributions[name], value) for name, value in point.items()}


def parameter_of(distribution: BaseDistribution) -> Parameter:
    """The parameter that has the values of a distribution."""
    if isinstance(distribution, FloatDistribution):
        return Real(distribution.low, distribution.high, distribution.log)
    if isinstance(distribution, IntDistribution):
        return Integer(distribution.low, distribution.high, distribution.log)
    assert isinstance(distribution, CategoricalDistribution)
    return Categorical(_choices(distribution))


def _choices(distribution: CategoricalDistribution) -> list[Value]:
    """The choices themselves, or their texts if conbo would refuse some or treat some as equal."""
    plain = [choice for choice in distribution.choices if isinstance(choice, str | int | float)]
    known = len(set(plain)) == len(distribution.choices)
    return [*plain] if known else [repr(choice) for choice in distribution.choices]


def _to_conbo(distribution: BaseDistribution, value: Any) -> Value:
    if not isinstance(distribution, CategoricalDistribution):
        return value
    return _choices(distribution)[int(distribution.to_internal_repr(value))]


def _to_optuna(distribution: BaseDistribution, value: Value) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[_choices(distribution).index(value)]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    assert isinstance(value, int | float)
    if distribution.step is None or (isinstance(distribution, IntDistribution) and distribution.step == 1):
        return value
    steps = round((value - distribution.low) / distribution.step)
    return min(distribution.low + steps * distribution.step, distribution.high)


def _merged(name: str, a: BaseDistribution, b: BaseDistribution) -> BaseDistribution:
    """A distribution that holds all values of both."""
    if isinstance(a, FloatDistribution) and isinstance(b, FloatDistribution) and a.log == b.log:
        return FloatDistribution(min(a.low, b.low), max(a.high, b.high), log=a.log)
    if isinstance(a, IntDistribution) and isinstance(b, IntDistribution) and a.log == b.log:
        return IntDistribution(min(a.low, b.low), max(a.high, b.high), log=a.log)
    raise SpaceError(f"'{name}' must be of one kind in every trial, but got {a!r} and {b!r}.")
