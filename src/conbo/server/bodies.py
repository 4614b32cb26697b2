"""The JSON bodies of requests, as the OpenAPI description of the service shows them.

These types only describe the fields. The library checks their values, so that the rules and the error messages are the
same for clients as for users of the library.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from conbo.server.records import LEASE, MAX_TRIALS


def _any(description: str, **schema: Any) -> Any:
    """Declare a field of a request by its description and JSON schema; the library checks its value later."""
    return Field(description=description, json_schema_extra=schema)


Number = Annotated[Any, _any("", type="number")]
Point = Annotated[Any, _any("A value for every parameter, by name.", type="object")]
Worker = Annotated[
    Any, _any("The `worker` that `ask` returned. With it, a result that comes too late is no error.", type="string")
]


class Body(BaseModel):
    """Base class of the bodies of requests: JSON objects in which unknown fields are not allowed."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    def record(self) -> dict[str, Any]:
        """Return the fields of the request by name, unchanged."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class SignIn(Body):
    """A request to sign in to the dashboard: it exchanges an access token for a session cookie."""

    token: str


class NewStudy(Body):
    """The settings of a new study, in the form in which the database stores them; most have defaults."""

    name: Annotated[Any, _any("The study's name.", type="string")]
    space: Annotated[Any, _any('As `Space.to_dict` writes it: {"states": [...], "actions": [...]}.', type="object")]
    direction: Annotated[Any, _any("maximize or minimize.", type="string")] = None
    method: Annotated[Any, _any("A name of `conbo.methods()`.", type="string")] = None
    state_distribution: Annotated[
        Any, _any("The distribution of each state, by name, such as a normal or weights.", type="object")
    ] = None
    model: Annotated[Any, _any("Settings of `GaussianProcess`.", type="object")] = None
    seed: Annotated[Any, _any("Seed of all suggestions.", type="integer")] = None
    initial: Annotated[Any, _any("Number of quasi-random trials before the method begins.", type="integer")] = None
    reward_range: Annotated[Any, _any("Known limits of the expected reward, such as [0, null].", type="array")] = None
    common_random_numbers: Annotated[Any, _any("Whether trials have seeds for a simulator.", type="boolean")] = None
    seeds: Annotated[Any, _any("The seeds to choose from.", type="array")] = None
    cost: Annotated[Any, _any('"learned", if costs are told with the rewards.', type="string")] = None
    outcome_constraints: Annotated[
        Any, _any('Such as [{"name": "wait", "type": "at_most", "bound": 5}], or "at_least".', type="array")
    ] = None
    confidence: Annotated[
        Any, _any("Probability with which the policy satisfies the constraints; 0.95 by default.", type="number")
    ] = None
    failures: Annotated[
        Any, _any('Whether to learn where evaluations fail: "learn" (default) or "ignore".', type="string")
    ] = None


class Ask(Body):
    """A request for trials, which are leased to the client."""

    n: Annotated[Any, _any(f"Number of trials, up to {MAX_TRIALS}.", type="integer")] = 1
    state: Annotated[Any, _any("The state of the trials, if the environment sets it.", type="object")] = None
    lease: Annotated[
        Any, _any("Seconds after which others may get the trials, unless the lease is renewed.", type="number")
    ] = LEASE
    key: Annotated[Any, _any("A request that is repeated with the same key gets the same trials.", type="string")] = (
        None
    )
    evaluations: Annotated[
        Any,
        _any(
            "No more trials are returned than are missing until this many are completed or being evaluated.",
            type="integer",
        ),
    ] = None
    worker: Annotated[Any, _any("A label for whoever evaluates, which the dashboard shows.", type="string")] = None


class Tell(Body):
    """The result of a trial."""

    reward: Annotated[Any, _any("One finite number.", type="number")]
    noise: Annotated[Any, _any("Variance of the reward; given for all trials or for none.", type="number")] = None
    outcomes: Annotated[Any, _any("Further results by name.", type="object")] = None
    cost: Annotated[Any, _any("What the evaluation cost, if the study learns costs.", type="number")] = None
    worker: Worker = None


class Fail(Body):
    """The report that a trial has failed."""

    error: Annotated[Any, _any("What went wrong.", type="string")] = ""
    worker: Worker = None


class Renew(Body):
    """A request to extend the lease of a trial."""

    worker: Worker
    lease: Annotated[Any, _any("Seconds from now at which the lease will end.", type="number")] = LEASE


class Release(Body):
    """A request to give up the lease of a trial, so that another worker or client can evaluate it."""

    worker: Worker


class NewTrial(Body):
    """A point to be evaluated before further suggestions or, if a reward is given, an earlier result."""

    state: Point
    action: Point
    seed: Annotated[Any, _any("Seed of the simulator, in a study with common random numbers.", type="integer")] = None
    reward: Annotated[Any, _any("The reward of an earlier result.", type="number")] = None
    noise: Annotated[Any, _any("Variance of the reward.", type="number")] = None
    outcomes: Annotated[Any, _any("Further results by name.", type="object")] = None


class PolicyQuestion(Body):
    """A request for the policy's actions in some states."""

    states: Annotated[list[Any], _any("States, each with a value for every parameter.")]
    extrapolate: Annotated[bool, _any("Whether a number out of range is replaced by the nearest one in range.")] = False
    fresh: Annotated[bool, _any("Whether to wait for a policy that is fitted to all rewards.")] = False
