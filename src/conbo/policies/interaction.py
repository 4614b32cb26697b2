"""Warns if the fitted model is nearly a sum g(s) + h(x) of a function of the state s and a function of the action x.

In such a sum, the state shifts the rewards of all actions equally, so every state has the same best action, unless
other actions are feasible there. The ConBO paper warns of this case.
"""

import warnings
from math import sqrt

import torch

from conbo.belief import Belief
from conbo.models.heteroscedastic_noise import LEAST_NOISE
from conbo.quasi_random import sobol

N_STATES, N_ACTIONS = 32, 32  # size of the grid on which the mean is decomposed into main effects and interaction
NEGLIGIBLE = 1e-3  # standard deviation of the interaction, relative to that of the action's effect, that is ignored


class NoInteractionWarning(UserWarning):
    """Warns that the policy is the same in every state, because the model is nearly additive in state and action."""


def depends_on_state(belief: Belief) -> bool:
    """Return whether the best action may differ between states, or there is only one state.

    It may differ if the posterior mean clearly differs from every sum g(s) + h(x), for state s and action x, or if
    limits of actions, known or learned, may differ between states.
    """
    space = belief.space
    if belief.states.listed(1) is not None:
        return True
    if belief.constraints is not None or (space.feasible_set is not None and space.feasible_set.depends_on_state):
        return True
    states = torch.from_numpy(space.snap_states(sobol(N_STATES, space.n_state_dims, seed=0).numpy()))
    actions = torch.from_numpy(space.snap_actions(sobol(N_ACTIONS, space.n_action_dims, seed=1).numpy()))
    grid = torch.cat([states.repeat_interleave(N_ACTIONS, 0), actions.repeat(N_STATES, 1)], -1)
    with torch.no_grad():
        mean = belief.posterior.mean(grid.to(belief.device)).reshape(N_STATES, N_ACTIONS)
    action_effect = mean.mean(0, keepdim=True) - mean.mean()
    interaction = mean - mean.mean(1, keepdim=True) - action_effect
    return bool(interaction.std() > max(NEGLIGIBLE * float(action_effect.std()), sqrt(LEAST_NOISE)))


def warn_without_interaction(belief: Belief) -> None:
    """Warn if the policy is the same in every state (see `depends_on_state`)."""
    if belief.n_state_dims and not depends_on_state(belief):
        message = (
            "The policy is the same for every state, since states and actions do not interact in the fitted "
            "model: its reward is a function of the state plus a function of the action. Either that is so, "
            "or there are too few evaluations to tell, or the model is additive and cannot learn otherwise."
        )
        warnings.warn(message, NoInteractionWarning, stacklevel=5)  # the caller of `Study.policy`
