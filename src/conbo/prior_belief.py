"""A warm start: a belief about this study that is fitted to an earlier study and to this one together.

In the joint model, the study is one more categorical state, and the correlation of the two studies is learned. With few
rewards in this study, the earlier one determines the posterior; if new rewards contradict it, its influence vanishes.
First, the earlier rewards are shifted to the mean level of this study's rewards, because similar problems often differ
by a constant, which no policy depends on.
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
    """Makes the user's function `feasible` usable in the joint space of both studies, which has one more state."""

    function: Feasible
    name: str  # of the additional state

    def __call__(self, state: dict[str, Value], action: dict[str, Value]) -> bool:
        """Return whether the action is feasible, without regard to the study."""
        return self.function({name: value for name, value in state.items() if name != self.name}, action)


def with_study(space: Space) -> Space:
    """Return the joint space of both studies, with an additional first state: "earlier" or "this"."""
    name = "study"
    while name in space.states or name in space.actions:
        name += "_"
    feasible = None if space.feasible is None else _FeasibleInBoth(space.feasible, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RedundantConstraintWarning)  # the user has already seen this warning
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
    """Shift the rewards of an earlier study to the level of this one, fit a joint model to both, and return the belief.

    `before` is the belief that was fitted to the earlier study.  The shift is the mean difference between this study's
    rewards and the predictions of that belief.
    """
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
    """Fit a joint model to the observations of this study and of an earlier one; return the belief about this study.

    The rewards of the earlier study are not shifted.
    """
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
    """Return the posterior of this study with the joint posterior of both studies averaged over its hyperparameters."""
    return replace(posterior, whole=average())
