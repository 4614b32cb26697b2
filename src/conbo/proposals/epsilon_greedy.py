"""The proposal of the policy gradient method: states from P[s], and actions drawn from the current Gaussian policy.

With probability ε an action is uniform instead.  The ConBO paper does not state its ε; the default here is 0.1.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from conbo.belief import Belief
from conbo.errors import SettingError
from conbo.policies.policy_gradient import PolicyGradient
from conbo.proposals import Suggestion


@dataclass(frozen=True)
class EpsilonGreedy:
    """Proposes states from P[s], with actions from the fitted Gaussian policy or, with probability ε, uniform ones."""

    policy: PolicyGradient = field(default_factory=PolicyGradient)
    epsilon: float = 0.1  # probability of a uniform action

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise SettingError(f"`0 <= epsilon <= 1` must hold, but got epsilon={self.epsilon}.")

    def propose(self, belief: Belief, n: int, generator: torch.Generator, state: Tensor | None = None) -> Suggestion:
        """Choose n points (n, d) to evaluate next, with states from P[s] unless a state (d_s,) is given."""
        states = belief.states.sample(n, generator) if state is None else state.expand(n, -1)
        d_x = belief.space.n_action_dims
        uniform = torch.rand(n, d_x, generator=generator, dtype=torch.float64)
        noise = self.policy.spread * torch.randn(n, d_x, generator=generator, dtype=torch.float64)
        explores = torch.rand(n, 1, generator=generator, dtype=torch.float64) < self.epsilon
        greedy = self.policy.build(belief, generator).mean(states.to(belief.device)) + noise.to(belief.device)
        uniform = belief.spread(torch.cat([states, uniform], -1).to(belief.device))
        greedy = belief.snap(torch.cat([states.to(belief.device), greedy.clamp(0, 1)], -1))
        return Suggestion(torch.where(explores.to(belief.device), uniform, greedy))
