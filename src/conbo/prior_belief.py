"""A warm start: a belief that is fitted to an earlier study and to this one together.

The model compares the two studies as it compares categories, by a correlation that it learns. With few rewards of this
study the earlier one decides; if rewards contradict it, it is forgotten. The earlier rewards are first shifted to the
level of this study's, because studies of similar problems often differ in level, which no policy depends on.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from conbo.belief import Belief, ModelLike, fit_belief, standardized
from conbo.bound_states import StateDistribution, bind
from conbo.gaussian_process import GaussianProcess
from conbo.models.fit_memory import FitMemory
from conbo.models.one_study import OneStudy, of_both
from conbo.models.posterior import Posterior
from conbo.observations import Observations
from conbo.spaces import Categorical, Feasible, RedundantConstraintWarning, Space, Value


@dataclass(frozen=True)
class _FeasibleInBoth:
    """The user's function `feasible` for the joint space of both studies, which has one more state."""

    function: Feasible
    name: str

    def __call__(self, state: dict[str, Value], action: dict[str, Value]) -> bool:
        """Whether the action is feasible, which does not depend on the study."""
        return self.function({name: value for name, value in state.items() if name != self.name}, action)


def with_study(space: Space) -> Space:
    """The space of both studies, whose first state says which study it is."""
    name = "study"
    while name in space.states or name in space.actions:
        name += "_"
    feasible = None if space.feasible is None else _FeasibleInBoth(space.feasible, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RedundantConstraintWarning)  # the warning was given when the space was made
        return Space(
            {name: Categorical(["earlier", "this"]), **space.states}, space.actions, space.constraints, feasible
        )


def fit_with_prior(
    space: Space,
    states: StateDistribution,
    observations: Observations,
    before: Belief,
    model: ModelLike,
    memory: FitMemory | None = None,
) -> Belief:
    """The belief about this study, given its observations and the belief of an earlier study."""
    earlier = before.observations
    if len(observations):
        expected = before.to_reward(before.posterior.mean(observations.points))
        level = float((observations.rewards - expected).mean())
        earlier = replace(earlier, rewards=earlier.rewards + level)
    return fit_both(space, states, observations, earlier, model, memory)


def fit_both(
    space: Space,
    states: StateDistribution,
    observations: Observations,
    earlier: Observations,
    model: ModelLike,
    memory: FitMemory | None = None,
) -> Belief:
    """The belief about this study, given its observations and those of an earlier study, used without a shift."""
    both = with_study(space)
    if isinstance(model, GaussianProcess) and model.state_kernel == "auto":
        model = replace(
            model, state_kernel="product"
        )  # because "trend" would treat the same category in the two studies as unrelated
    whole = fit_belief(both, bind(None, both), of_both(earlier, observations), model, memory)
    seen = standardized(earlier, whole.shift, whole.scale)
    posterior, average = OneStudy(whole.posterior, both, len(observations), seen), whole.average
    if average is not None:
        average = partial(_averaged, posterior, average)
    return Belief(space, states, observations, posterior, whole.shift, whole.scale, average=average)


def _averaged(posterior: OneStudy, average: Callable[[], Posterior]) -> OneStudy:
    """The posterior of this study, with the joint posterior of both studies averaged over its hyperparameters."""
    return replace(posterior, whole=average())
