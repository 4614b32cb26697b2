"""Warm start: fits a belief about this study to the observations of this study and of an earlier study together.

The joint model has one more categorical state parameter, the study, and learns the correlation between the two studies.
While this study has few rewards, the posterior depends mostly on the earlier rewards. The more this study's rewards
contradict the earlier ones, the less influence the earlier ones have. Before the fit, a constant is added to the
earlier rewards, so that they agree with this study's rewards on average. The reason is that similar problems often
differ by a constant, which does not change the best actions.
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
    """The user's function `feasible` for a space with one more state parameter: the study, "earlier" or "this".

    A call removes this parameter from the state, because the user's function does not expect it.
    """

    function: Feasible  # the user's function
    name: str  # name of the additional state

    def __call__(self, state: dict[str, Value], action: dict[str, Value]) -> bool:
        """Return whether the action is feasible in the state; the state parameter that names the study is ignored."""
        return self.function({name: value for name, value in state.items() if name != self.name}, action)


def with_study(space: Space) -> Space:
    """Return the space with a new first state parameter: the study that an evaluation is from, "earlier" or "this"."""
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
    """Fit a belief about a study to its observations and to those of an earlier study (a warm start).

    `before` is the belief that was fitted to the earlier study. Before the joint fit, the earlier rewards are shifted
    by the mean difference between this study's rewards and what `before` predicts for the same points.
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
    """Fit a joint model to the observations of this study and of an earlier one; return the belief about this study."""
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
    """Return this study's posterior averaged over the hyperparameters, for predictions.

    `posterior` is this study's posterior before averaging. `average` returns the averaged posterior of the joint model
    of this study and the earlier one.
    """
    return replace(posterior, whole=average())
