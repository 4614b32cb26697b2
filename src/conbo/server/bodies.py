"""The bodies of requests, as the OpenAPI description of the service shows them.

These types only describe fields. The library checks the values, so that its rules and messages are the same everywhere.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from conbo.server.records import LEASE, MAX_TRIALS


def _any(description: str, **schema: Any) -> Any:
    """Describe a field whose value the library checks."""
    return Field(description=description, json_schema_extra=schema)


Number = Annotated[Any, _any("", type="number")]
Point = Annotated[Any, _any("A value for every parameter, by name.", type="object")]
Worker = Annotated[
    Any, _any("The `worker` that `ask` has named. A result that comes too late is then no error.", type="string")
]


class Body(BaseModel):
    """The base class of bodies: a JSON object without unknown fields."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    def record(self) -> dict[str, Any]:
        """Return the fields by name, as they came."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class SignIn(Body):
    """A token that is exchanged for a cookie."""

    token: str


class NewStudy(Body):
    """The settings of a study, as `conbo export --database` keeps them; most have defaults."""

    name: Annotated[Any, _any("The study's name.", type="string")]
    space: Annotated[Any, _any('As `Space.to_dict` writes it: {"states": [...], "actions": [...]}.', type="object")]
    direction: Annotated[Any, _any("maximize or minimize.", type="string")] = None
    method: Annotated[Any, _any("A name of `conbo.methods()`.", type="string")] = None
    state_distribution: Annotated[Any, _any("By state, such as a normal or weights.", type="object")] = None
    model: Annotated[Any, _any("Settings of `GaussianProcess`.", type="object")] = None
    seed: Annotated[Any, _any("On which all suggestions depend.", type="integer")] = None
    initial: Annotated[Any, _any("Number of quasi-random trials before the method begins.", type="integer")] = None
    reward_range: Annotated[Any, _any("The least and the largest reward that there can be.", type="array")] = None
    common_random_numbers: Annotated[Any, _any("Whether trials have seeds for a simulator.", type="boolean")] = None
    seeds: Annotated[Any, _any("The seeds to choose from.", type="array")] = None
    cost: Annotated[Any, _any('"learned", where costs are told with the rewards.', type="string")] = None
    outcome_constraints: Annotated[
        Any, _any('Such as [{"name": "wait", "type": "at_most", "bound": 5}], or "at_least".', type="array")
    ] = None
    confidence: Annotated[
        Any, _any("Probability with which the policy keeps the constraints; 0.95 by default.", type="number")
    ] = None
    failures: Annotated[Any, _any('"learn", the default, or "ignore".', type="string")] = None


class Ask(Body):
    """The number of trials that are asked for, and the seconds of their lease."""

    n: Annotated[Any, _any(f"Number of trials, up to {MAX_TRIALS}.", type="integer")] = 1
    state: Annotated[Any, _any("A state that the environment dictates.", type="object")] = None
    lease: Annotated[
        Any, _any("Seconds after which others are given the trial, unless it is renewed.", type="number")
    ] = LEASE
    key: Annotated[Any, _any("A request that is repeated with the same key gets the same trials.", type="string")] = (
        None
    )
    evaluations: Annotated[
        Any,
        _any("No new trial is made where so many are completed or under way: the list may be empty.", type="integer"),
    ] = None
    worker: Annotated[Any, _any("A label for whoever evaluates, to be shown.", type="string")] = None


class Tell(Body):
    """The result of a trial."""

    reward: Annotated[Any, _any("One finite number.", type="number")]
    noise: Annotated[Any, _any("The reward's variance, for all trials or for none.", type="number")] = None
    outcomes: Annotated[Any, _any("Further results by name.", type="object")] = None
    cost: Annotated[Any, _any("What the evaluation cost, where the study learns it.", type="number")] = None
    worker: Worker = None


class Fail(Body):
    """Why a trial has no reward."""

    error: Annotated[Any, _any("What went wrong.", type="string")] = ""
    worker: Worker = None


class Renew(Body):
    """The seconds from now for which the lease of a trial is extended."""

    worker: Worker
    lease: Annotated[Any, _any("Seconds.", type="number")] = LEASE


class Release(Body):
    """The worker that gives a trial back."""

    worker: Worker


class NewTrial(Body):
    """A point to be evaluated first or, if it has a reward, an earlier result."""

    state: Point
    action: Point
    seed: Annotated[Any, _any("Of the simulator, in a study with common random numbers.", type="integer")] = None
    reward: Annotated[Any, _any("The reward of an earlier result.", type="number")] = None
    noise: Annotated[Any, _any("Its variance.", type="number")] = None
    outcomes: Annotated[Any, _any("Further results by name.", type="object")] = None


class PolicyQuestion(Body):
    """The states for which a policy's actions are asked."""

    states: Annotated[list[Any], _any("States, each with a value for every parameter.")]
    extrapolate: Annotated[bool, _any("Whether numbers out of range count as the nearest ones in range.")] = False
    fresh: Annotated[bool, _any("Whether to wait until the policy knows all rewards.")] = False
