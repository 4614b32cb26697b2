"""ε-greedy collection around a known policy."""

import pytest
import torch

from conbo.errors import SettingError
from conbo.models.exact import condition
from conbo.policies.policy_gradient import PolicyGradient
from conbo.proposals.epsilon_greedy import EpsilonGreedy
from random_beliefs import belief_on, generator, product_kernel, reals, tensor

POINTS = tensor([[0.5, 0.5]])
BELIEF = belief_on(
    reals(1, 1),
    condition(product_kernel(reals(1, 1)), 0.0, 1e-2, POINTS, tensor([1.0])),
    POINTS,
    tensor([1.0]),
)


@pytest.mark.parametrize(("epsilon", "sd"), [(0.0, 0.1), (1.0, (1 / 12) ** 0.5)])
def test_actions_are_drawn_from_the_policy_or_uniform(epsilon: float, sd: float) -> None:
    points = EpsilonGreedy(PolicyGradient(spread=0.1), epsilon).propose(BELIEF, 4000, generator()).points
    assert float(points[:, 1].mean()) == pytest.approx(0.5, abs=0.02)
    assert float(points[:, 1].std()) == pytest.approx(sd, rel=0.05)
    assert float(points[:, 0].std()) == pytest.approx((1 / 12) ** 0.5, rel=0.05)  # states follow P[s]


def test_a_dictated_state_is_kept() -> None:
    assert torch.equal(EpsilonGreedy().propose(BELIEF, 5, generator(), tensor([0.3])).points[:, 0], tensor([0.3] * 5))


def test_epsilon_is_checked() -> None:
    with pytest.raises(SettingError, match="`0 <= epsilon <= 1` must hold, but got epsilon=2"):
        EpsilonGreedy(epsilon=2)
