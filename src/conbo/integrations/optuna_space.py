"""Converts the distributions of Optuna's parameters to a space of conbo, and parameter values in both directions.

| Optuna                  | conbo                                                                             |
|-------------------------|-----------------------------------------------------------------------------------|
| FloatDistribution       | Real; with a step, suggestions and the policy's actions are rounded to steps      |
| IntDistribution         | Integer; rounded likewise, if it has a step above 1                               |
| CategoricalDistribution | Categorical; choices that conbo rejects, such as None, become strings             |
| one value only          | no parameter                                                                      |

If a parameter's range differs between trials, the smallest range that contains all of them is used. For integers, the
step of this range is the greatest common divisor of all steps and of the differences between the trials' lowest values.
For floats, the step is kept if it is the same in all trials and divides the differences between their lowest values;
otherwise there is no step.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import product
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from conbo.errors import SpaceError
from conbo.notices import LOG
from conbo.spaces import Categorical, Integer, Parameter, Point, Real, Space, Value, closest

Distributions = Mapping[str, BaseDistribution]

MOST_STEPPED = 8  # largest number of actions with steps for which all roundings down and up are tried in combination


def common_distributions(trials: Iterable[FrozenTrial]) -> dict[str, BaseDistribution]:
    """The distribution of each parameter, merged over all trials; raises SpaceError if trials differ in parameters."""
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
    """The space of parameters with these Optuna distributions; None if no action has more than one value.

    `states` are the names of the states, and all other parameters are actions, whose known limits are `constraints`.
    Raises SpaceError if a state is not a parameter, or if there is no action.
    """
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
    """Convert the values `params` of an Optuna trial to conbo's values, for the parameters `names`."""
    return {name: _to_conbo(distributions[name], params[name]) for name in names}


def params_of(point: Mapping[str, Value], distributions: Distributions) -> dict[str, Any]:
    """Convert conbo's parameter values to Optuna's; if a distribution has a step, values are rounded to it."""
    return {name: _to_optuna(distributions[name], value) for name, value in point.items()}


def steps_of(distributions: Distributions, actions: Iterable[str]) -> list[tuple[int, float, float]]:
    """For every action that is rounded to steps: its index in `actions`, its lowest value and its step.

    Integers with a step of 1 need no rounding, so they are left out.
    """
    steps: list[tuple[int, float, float]] = []
    for place, name in enumerate(actions):
        each = distributions[name]
        if isinstance(each, FloatDistribution | IntDistribution) and (step := _step(each)) is not None:
            steps.append((place, float(each.low), float(step)))
    return steps


def on_steps(space: Space, state: Point, action: Point, distributions: Distributions) -> dict[str, Any]:
    """Convert a point to Optuna's values, with actions rounded up or down to steps so that the known limits hold.

    Of all such roundings, the one nearest to the action is taken. If none satisfies the limits, or if more than
    `MOST_STEPPED` actions have steps, every action is rounded to its nearest step.
    """
    there = params_of(state, distributions)
    stepped = [space.action_names[place] for place, *_ in steps_of(distributions, space.actions)]
    nearest = params_of(action, distributions)
    if space.feasible_set is None or not 0 < len(stepped) <= MOST_STEPPED:
        return {**there, **nearest}
    rounded_state = point_of(there, distributions, space.states)
    around = [_around(distributions[name], action[name]) for name in stepped]
    for values in sorted(product(*around), key=lambda pairs: sum(distance for distance, _ in pairs)):
        tried = {**nearest, **{name: value for name, (_, value) in zip(stepped, values, strict=True)}}
        if space.is_feasible(rounded_state, point_of(tried, distributions, space.actions)):
            return {**there, **tried}
    return {**there, **nearest}


def parameter_of(distribution: BaseDistribution) -> Parameter:
    """The conbo parameter with the same range or choices as an Optuna distribution; a step is ignored."""
    if isinstance(distribution, FloatDistribution):
        return Real(distribution.low, distribution.high, distribution.log)
    if isinstance(distribution, IntDistribution):
        return Integer(distribution.low, distribution.high, distribution.log)
    assert isinstance(distribution, CategoricalDistribution)
    return Categorical(_choices(distribution))


def warn_of_strings(distributions: Distributions) -> None:
    """Warn in the log of every parameter for which conbo has strings in the place of some choices."""
    for name, each in distributions.items():
        if isinstance(each, CategoricalDistribution) and (made := _choices(each)) != list(each.choices):
            LOG.warning("The choices of '%s' are %s in conbo, which has no None and no two equal choices.", name, made)


def _choices(distribution: CategoricalDistribution) -> list[Value]:
    """The choices of an Optuna distribution, as choices of a conbo `Categorical`.

    Choices that conbo rejects, such as None and infinite numbers, become strings, by `repr`. If choices are equal in
    Python, as 1 and True are, all of them become strings.
    """
    choices: Any = distribution.choices
    for made in (choices, [choice if _is_allowed(choice) else repr(choice) for choice in choices]):
        with suppress(SpaceError):
            return list(Categorical(made).choices)
    return [repr(choice) for choice in choices]


def _is_allowed(choice: Any) -> bool:
    """Whether conbo accepts a choice, if it is alone."""
    try:
        Categorical([choice])
    except SpaceError:
        return False
    return True


def _to_conbo(distribution: BaseDistribution, value: Any) -> Value:
    if not isinstance(distribution, CategoricalDistribution):
        return value
    return _choices(distribution)[int(distribution.to_internal_repr(value))]


def _to_optuna(distribution: BaseDistribution, value: Value) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[_choices(distribution).index(value)]
    return value if _step(distribution) is None else min(_around(distribution, value))[1]


def _step(distribution: BaseDistribution) -> float | None:
    """The step of a distribution; None if all numbers, or all integers, in its range are allowed."""
    if isinstance(distribution, FloatDistribution):
        return distribution.step
    return distribution.step if isinstance(distribution, IntDistribution) and distribution.step > 1 else None


def _around(distribution: BaseDistribution, value: Value) -> list[tuple[float, float]]:
    """The nearest allowed values below and above a value, as pairs (distance in steps, allowed value).

    There is only one pair if the value itself is allowed, or is outside the range.
    """
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    assert isinstance(value, int | float)
    assert distribution.step is not None
    low, step = distribution.low, distribution.step
    place, last = (value - low) / step, round((distribution.high - low) / step)
    counts = {min(max(count, 0), last) for count in (math.floor(place), math.ceil(place))}
    return [(abs(place - count), min(low + count * step, distribution.high)) for count in sorted(counts)]


def _merged(name: str, a: BaseDistribution, b: BaseDistribution) -> BaseDistribution:
    """Return a distribution that contains all values of the distributions `a` and `b` of the parameter `name`.

    Raises SpaceError unless both are ranges of floats, or both ranges of integers, on the same (linear or log) scale.
    """
    if isinstance(a, FloatDistribution) and isinstance(b, FloatDistribution) and a.log == b.log:
        return FloatDistribution(min(a.low, b.low), max(a.high, b.high), log=a.log, step=_common_step(a, b))
    if isinstance(a, IntDistribution) and isinstance(b, IntDistribution) and a.log == b.log:
        step = math.gcd(a.step, b.step, a.low - b.low)
        return IntDistribution(min(a.low, b.low), max(a.high, b.high), log=a.log, step=step)
    raise SpaceError(f"'{name}' must be of one kind in every trial, but got {a!r} and {b!r}.")


def _common_step(a: FloatDistribution, b: FloatDistribution) -> float | None:
    """The step of both ranges if it is the same and their values are on one grid; otherwise None."""
    if a.step is None or a.step != b.step:
        return None
    # decimal, as Optuna checks steps itself: 0.3 is three steps of 0.1
    apart = Decimal(str(a.low)) - Decimal(str(b.low))
    return a.step if apart % Decimal(str(a.step)) == 0 else None
